"""The services of obstore: Amazon S3, Azure Blob Storage and Google Cloud Storage."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from ...core.policy import RetryPolicy
from ...core.seconds import positive
from ..backend import OBJECT_STORE_CAPABILITIES, import_client
from .backend import MAX_IN_FLIGHT_BYTES, ObstoreBackend
from .client import import_obstore

TIMEOUT_SECONDS = 60.0
CONNECT_SECONDS = 10.0
"""Longest time for connecting."""
NO_LIMIT = timedelta(days=1)
"""obstore limits the time of a request with its body. Only a stalled one should end."""
OPTION_BY_ARGUMENT = {
    "access_key_id": "key",
    "secret_access_key": "secret",
    "session_token": "token",
    "bearer_token": "token",
}
AZURE_SCOPE = "https://storage.azure.com/.default"


class S3Obstore(ObstoreBackend):
    """Objects in a bucket of S3, through obstore. Threads may share it.

    Use `s3` for the guarantees that obstore lacks: forked children, keys that are not valid paths,
    profiles of AWS, and `create` of 8 MiB and more after a lost response.

    Args:
        name: Name in messages.
        bucket: The bucket, which must exist.
        endpoint_url: Address of the service. Default: AWS.
        region: Region of the bucket. Default: AWS_REGION, or `us-east-1`.
        key: Access key. Default: found by obstore (environment, role, instance).
        timeout: Seconds without progress before a request fails.
        store_kwargs: Further arguments of obstore's `S3Store`.
        retry: The policy. None: the default of obstore, 10 retries in 3 minutes.
    """

    copies_metadata = False
    max_copy_bytes = 5 * 1024**3  # in one request
    other_type = "s3"

    def __init__(
        self,
        name: str = "s3-obstore",
        /,
        *,
        bucket: str,
        endpoint_url: str | None = None,
        region: str | None = None,
        key: str | None = None,
        secret: str | None = None,
        token: str | None = None,
        anonymous: bool = False,
        timeout: float = TIMEOUT_SECONDS,
        store_kwargs: Mapping[str, Any] | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        arguments = {
            "endpoint": endpoint_url,
            "region": region,
            "access_key_id": key,
            "secret_access_key": secret,
            "session_token": token,
            "skip_signature": anonymous or None,
            "disable_bulk_delete": True,  # Some compatible services lack it.
            "copy_if_not_exists": "multipart",
        }
        create_store = _store_factory("S3Store", bucket, arguments, timeout, store_kwargs)
        super().__init__(name, bucket, create_store, retry)


class AzureObstore(ObstoreBackend):
    """Blobs in a container of Azure, through obstore. Threads may share it.

    Use `azure` for the guarantees that obstore lacks: forked children, blobs with snapshots, names
    that are not valid paths, and `create` of 64 MiB and more. Copies and moves go through this
    process, because Azure may copy in the background, and obstore does not wait for that.

    Args:
        name: Name in messages.
        container: The container, which must exist.
        connection_string: Address with credentials. Either this or account_url.
        account_url: Address of the account, such as `https://NAME.blob.core.windows.net`.
        credential: A key, a SAS or a token credential, for account_url.
        timeout: Seconds without progress before a request fails.
        store_kwargs: Further arguments of obstore's `AzureStore`.
        retry: The policy. None: the default of obstore, 10 retries in 3 minutes.
    """

    capabilities = replace(OBJECT_STORE_CAPABILITIES, native_copy=False)
    container_kind = "container"
    max_put_bytes = MAX_IN_FLIGHT_BYTES
    max_copy_bytes = 0
    other_type = "azure"
    max_parts = 50_000
    write_token = "redrive_write"  # noqa: S105  # a name, in the form that Azure accepts

    def __init__(
        self,
        name: str = "azure-obstore",
        /,
        *,
        container: str,
        connection_string: str | None = None,
        account_url: str | None = None,
        credential: Any = None,
        timeout: float = TIMEOUT_SECONDS,
        store_kwargs: Mapping[str, Any] | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        if (connection_string is None) == (account_url is None):
            raise TypeError("azure-obstore needs either connection_string or account_url")
        if connection_string is not None:
            arguments = _read_connection_string(connection_string)
        else:
            account = urlsplit(str(account_url))
            credential = account.query or None if credential is None else credential  # A SAS.
            # An emulator has the account in the path. Azure has it in the host.
            name_in_url = account.path.strip("/") or (account.hostname or "").partition(".")[0]
            arguments = {
                "account_name": name_in_url,
                "endpoint": account._replace(query="").geturl(),
                **_credential_arguments(credential),
            }
        create_store = _store_factory("AzureStore", container, arguments, timeout, store_kwargs)
        super().__init__(name, container, create_store, retry)


class Gcs(ObstoreBackend):
    """Objects in a bucket of Google Cloud Storage, through obstore. Threads may share it.

    Experimental: it is tested with a server that follows Google's documentation, not with Google's
    service. A forked child gets an error if its parent used obstore before the fork.

    Args:
        name: Name in messages.
        bucket: The bucket, which must exist.
        service_account: Path of the JSON file of a service account.
        service_account_key: The text of such a file.
        token: An access token, which is not renewed.
        endpoint_url: Address of the service. Default: Google.
        timeout: Seconds without progress before a request fails.
        store_kwargs: Further arguments of obstore's `GCSStore`.
        retry: The policy. None: the default of obstore, 10 retries in 3 minutes.
    """

    def __init__(
        self,
        name: str = "gcs",
        /,
        *,
        bucket: str,
        service_account: str | None = None,
        service_account_key: str | None = None,
        token: str | None = None,
        endpoint_url: str | None = None,
        timeout: float = TIMEOUT_SECONDS,
        store_kwargs: Mapping[str, Any] | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        arguments = {
            "service_account": service_account,
            "service_account_key": service_account_key,
            "bearer_token": token,
            "base_url": endpoint_url,
        }
        create_store = _store_factory("GCSStore", bucket, arguments, timeout, store_kwargs)
        super().__init__(name, bucket, create_store, retry)


def _store_factory(
    class_name: str,
    container: str,
    arguments: Mapping[str, Any],
    timeout: float,
    store_kwargs: Mapping[str, Any] | None,
) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function that creates a store of obstore. It takes the arguments for retries."""
    extra = dict(store_kwargs or {})
    reserved = {"retry_config", "prefix"} & extra.keys()
    if reserved:
        fix = "use retry and the root_path of a store"
        raise TypeError(f"store_kwargs cannot hold {min(reserved)!r}; {fix}")
    seconds = positive("timeout", timeout)
    endpoint = arguments.get("endpoint") or arguments.get("base_url")
    _check_settings(endpoint, container, arguments)
    client_options = {
        "allow_http": str(endpoint).startswith("http://"),
        "timeout": NO_LIMIT,
        "read_timeout": timedelta(seconds=seconds),
        "connect_timeout": timedelta(seconds=min(seconds, CONNECT_SECONDS)),
        **extra.pop("client_options", {}),
    }
    known = {name: value for name, value in arguments.items() if value is not None}
    return partial(
        _create_store, class_name, container, {**known, "client_options": client_options, **extra}
    )


def _check_settings(endpoint: Any, container: str, arguments: Mapping[str, Any]) -> None:
    """Raise ValueError for settings at which obstore would panic, or which it would log."""
    address = urlsplit("https://aws" if endpoint is None else str(endpoint))
    if address.scheme not in ("http", "https") or not address.hostname or "@" in address.netloc:
        expected = "https://HOST or http://HOST:PORT, without user and password"
        raise ValueError(f"invalid address of the service; use {expected}")
    if not container or re.search(r"[\s/?#%\\]", container):
        raise ValueError(f"invalid name of a bucket or container: {container!r}")
    for name, value in arguments.items():
        is_header = not name.startswith("service_account")
        if is_header and not (str(value).isascii() and str(value).isprintable()):
            option = OPTION_BY_ARGUMENT.get(name, name)
            raise ValueError(f"{option} has a line break or another invalid character; remove it")


def _create_store(
    class_name: str, container: str, arguments: Mapping[str, Any], retries: Mapping[str, Any]
) -> Any:
    import_obstore()
    stores = import_client("obstore.store", "obstore")
    return getattr(stores, class_name)(container, **arguments, **retries)


def _read_connection_string(text: str) -> dict[str, Any]:
    """Return the arguments of `AzureStore`."""
    parts = dict(part.split("=", 1) for part in text.strip(";").split(";") if "=" in part)
    account = parts.get("AccountName")
    endpoint = parts.get("BlobEndpoint")
    if account is None and endpoint is not None:
        account = (urlsplit(endpoint).hostname or "").partition(".")[0]
    if account is None:
        known = ", ".join(sorted(parts)) or "none"
        raise ValueError(f"connection_string: no AccountName or BlobEndpoint; it has {known}")
    if endpoint is None:
        protocol = parts.get("DefaultEndpointsProtocol", "https")
        suffix = parts.get("EndpointSuffix", "core.windows.net")
        endpoint = f"{protocol}://{account}.blob.{suffix}"
    return {
        "account_name": account,
        "account_key": parts.get("AccountKey"),
        "sas_key": parts.get("SharedAccessSignature"),
        "endpoint": endpoint,
    }


def _credential_arguments(credential: Any) -> dict[str, Any]:
    """Return the arguments of `AzureStore` for a key, a SAS, or a token credential."""
    if credential is None:
        return {}
    if isinstance(credential, str):
        return {"sas_key" if "sig=" in credential else "account_key": credential.lstrip("?")}
    if not callable(getattr(credential, "get_token", None)):
        expected = "a key, a SAS, or an object with get_token"
        raise TypeError(f"credential is {expected}, not {type(credential).__name__}")

    def get_token() -> dict[str, Any]:
        token = credential.get_token(AZURE_SCOPE)
        expires_at = datetime.fromtimestamp(token.expires_on, timezone.utc)
        return {"token": token.token, "expires_at": expires_at}

    return {"credential_provider": get_token}
