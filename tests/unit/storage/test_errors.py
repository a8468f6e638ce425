"""Storage errors for the errors of clients, with and without a path."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError
from botocore.exceptions import ClientError, EndpointConnectionError

from redrive.errors import Denied, StorageError, Unavailable
from redrive.storage.azure.client import from_azure
from redrive.storage.errors import from_os
from redrive.storage.s3.client import from_s3
from redrive.storage.sftp.connection import from_ssh


def s3(path: str, error: Exception) -> Exception:
    return from_s3(error, path=path, backend="lake", bucket="b-1")


def azure(path: str, error: Exception) -> Exception:
    return from_azure(error, path=path, backend="lake", container="c-1")


def local(path: str, error: Exception) -> Exception:
    assert isinstance(error, OSError)
    return from_os(error, path=path, backend="lake")


def ssh(path: str, error: Exception) -> Exception:
    return from_ssh(error, path=path, backend="lake")


def refused_key() -> Exception:
    response = {"Error": {"Code": "InvalidAccessKeyId", "Message": "no such key"}}
    error: Exception = ClientError(response, "HeadBucket")
    return error


def late_clock() -> Exception:
    response = {"Error": {"Code": "RequestTimeTooSkewed", "Message": "the clocks differ too much"}}
    error: Exception = ClientError(response, "ListObjectsV2")
    return error


CASES: list[tuple[Callable[[str, Exception], Exception], Exception, type[StorageError], str]] = [
    (s3, refused_key(), Denied, "the bucket 'b-1' is not allowed: InvalidAccessKeyId: no such key"),
    (s3, late_clock(), Denied, "the bucket 'b-1' is not allowed: RequestTimeTooSkewed: the clocks differ too much"),
    (s3, EndpointConnectionError(endpoint_url="http://x"), Unavailable, "the bucket 'b-1' cannot be reached: "),
    (azure, ClientAuthenticationError("no"), StorageError, "the container 'c-1'"),
    (azure, ServiceRequestError("no route"), Unavailable, "the container 'c-1' cannot be reached: "),
    (local, PermissionError(errno.EACCES, "Permission denied"), Denied, "its root is not allowed: Permission denied"),
    (ssh, TimeoutError(), Unavailable, "no answer in time for its root"),
]


@pytest.mark.parametrize(("to_storage_error", "error", "error_class", "message"), CASES)
def test_an_error_without_a_path_names_the_container(
    to_storage_error: Callable[[str, Exception], Exception],
    error: Exception,
    error_class: type[StorageError],
    message: str,
) -> None:
    storage_error = to_storage_error("", error)
    assert isinstance(storage_error, error_class)
    assert str(storage_error).startswith(f"lake: {message}")
    assert "''" not in str(storage_error)
    assert "'a/b'" in str(to_storage_error("a/b", error))
