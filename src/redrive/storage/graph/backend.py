"""Graph: files of OneDrive and SharePoint, over Microsoft Graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from ...core.classification.known.http_responses import header, http_date
from ...core.policy import RetryPolicy
from ...errors import NotFound, PathInvalid, StorageError, Unavailable
from ..backend import Capabilities, FileInfo, How
from ..body import CHUNK_BYTES, Body
from ..errors import file_not_found
from ..path import ListingFilter, join_path
from ..reader import ResumingStream, open_reader
from .client import (
    DriveAddress,
    GraphClient,
    TokenCache,
    check_drive_path,
    drive_path_problem,
    from_response,
    from_spent_retries,
    json_object,
    retry_rule,
    status_and_code,
)
from .transfer import Download, UploadSession, open_download, wait_for_operation

if TYPE_CHECKING:
    import httpx2

MAX_PUT_BYTES = 4 * 1024 * 1024
"""Larger files are sent in an upload session."""
PAGE_QUERY = "?$top=200"
NEXT_LINK = "@odata.nextLink"
DOWNLOAD_URL = "@microsoft.graph.downloadUrl"
CONFLICT_BEHAVIOR = "@microsoft.graph.conflictBehavior"


class Graph:
    """Files of a drive. Experimental. Threads may share it. A forked child connects again.

    Every request is retried by the policy, all fields of which apply. A wait that the service asks
    for is respected.

    Args:
        name: Name in messages.
        drive: `me/drive`, `drives/ID` or `sites/ID/drive`.
        token: A token, or a function that returns a new one. Or pass tenant_id, client_id and
            client_secret of an app.
        timeout: Seconds without any bytes, for each request.
        copy_timeout: Seconds for a copy, which the service makes in the background.
        retry: Retries of each request. Default: `RetryPolicy()`.
    """

    capabilities = Capabilities(
        atomic_write=True,
        exclusive_create=True,
        atomic_move=True,
        native_copy=True,
        empty_folders=True,
    )

    def __init__(
        self,
        name: str = "graph",
        /,
        *,
        drive: str,
        token: str | Callable[[], str] | None = None,
        tenant_id: str | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
        base_url: str = "https://graph.microsoft.com/v1.0",
        login_url: str = "https://login.microsoftonline.com",
        proxy: str | None = None,
        timeout: float = 30.0,
        copy_timeout: float = 600.0,
        retry: RetryPolicy | None = None,
    ) -> None:
        login_form = _login_form(tenant_id, client_id, client_secret)
        if (token is None) == (login_form is None):
            raise TypeError("graph needs a token, or tenant_id, client_id and client_secret")
        token_url = f"{login_url.rstrip('/')}/{tenant_id}/oauth2/v2.0/token"

        def log_in() -> str:
            return _log_in(self._client, token_url, login_form)

        fetch_token: Callable[[], str] = log_in
        if token is not None:
            fetch_token = token if callable(token) else partial(str, token)
        self.name = name
        self._copy_timeout = copy_timeout
        self._address = DriveAddress(base_url.rstrip("/"), drive.strip("/"))
        self._client = GraphClient(
            self._address,
            TokenCache(fetch_token),
            policy=retry,
            timeout=timeout,
            proxy=proxy,
            name=name,
        )

    def read(self, path: str, /) -> BinaryIO:
        item = self._file_item(path)
        stream = ResumingStream(
            self._open_download(path, item, 0),
            int(item["size"]),
            partial(self._reopen_download, path, item.get("cTag")),
            policy=self._client.policy,
            break_rules=(retry_rule,),
            operation=f"storage.{self.name}.read",
        )
        return open_reader(stream, partial(self._to_storage_error, path), window=CHUNK_BYTES)

    def read_bytes(self, path: str, /) -> bytes:
        with self.read(path) as file:
            return file.read()

    def write(self, path: str, body: Body, how: How, /) -> None:
        check_drive_path(path, self.name)
        if body.size is not None:
            self._upload(path, body, body.size, how)
            return
        with SpooledTemporaryFile(MAX_PUT_BYTES) as spool:
            # An upload session needs the size before the first byte.
            for piece in body.pieces():
                spool.write(piece)
            spool.seek(0)
            self._upload(path, Body(cast(BinaryIO, spool)), body.moved, how)

    def files(self, folder: str, /, *, recursive: bool) -> Iterator[FileInfo]:
        pending = [folder]
        while pending:
            parent = pending.pop()
            for item in self._list_children(parent):
                path = join_path(parent, item["name"])
                if "file" in item:
                    yield _file_info(path, item)
                elif recursive:
                    pending.append(path)

    def folders(self, folder: str, /) -> Iterator[str]:
        for item in self._list_children(folder):
            if "folder" in item:
                yield join_path(folder, item["name"])

    def info(self, path: str, /) -> FileInfo:
        return _file_info(path, self._file_item(path))

    def delete(self, path: str, /) -> None:
        try:
            item = self._file_item(path)  # A DELETE by path would delete a whole folder.
        except NotFound:
            return
        response = self._client.send("DELETE", self._address.item_by_id(item["id"]), path)
        self._expect(response, path, 204, 404)

    def move(self, source: str, target: str, /) -> None:
        item, destination = self._file_item(source), self._prepare_destination(target)
        url = self._address.item_by_id(item["id"])
        change = {**destination, CONFLICT_BEHAVIOR: "replace"}
        self._complete(self._client.send("PATCH", url, target, json=change), target)

    def copy(self, source: str, target: str, /) -> None:
        item, destination = self._file_item(source), self._prepare_destination(target)
        url = f"{self._address.item_by_id(item['id'], 'copy')}?{CONFLICT_BEHAVIOR}=replace"
        self._complete(self._client.send("POST", url, target, json=destination), target)

    def check(self) -> None:
        self._expect(self._client.send("GET", self._address.item(""), ""), "", 200)

    def close(self) -> None:
        self._client.close()

    # ---- items ----

    def _file_item(self, path: str) -> dict[str, Any]:
        """Return the item of a file. A folder is not a file."""
        item = self._get_item(path)
        if item is None or "file" not in item:
            raise file_not_found(path, self.name)
        return item

    def _get_item(self, path: str) -> dict[str, Any] | None:
        if path:
            check_drive_path(path, self.name)
        response = self._client.send("GET", self._address.item(path), path)
        if response.status_code == 404:
            return None
        self._expect(response, path, 200)
        return json_object(response)

    def _list_children(self, folder: str) -> Iterator[dict[str, Any]]:
        if folder and drive_path_problem(folder):
            return
        listing = ListingFilter(self.name)
        url: str | None = self._address.item(folder, "children") + PAGE_QUERY
        while url is not None:
            response = self._client.send("GET", url, folder)
            if response.status_code == 404 and folder:
                return
            self._expect(response, folder, 200)
            page = json_object(response)
            for item in page.get("value", ()):
                if listing.accepts_name(item.get("name")):
                    yield item
            url = page.get(NEXT_LINK)

    def _prepare_destination(self, target: str) -> dict[str, Any]:
        """Return the new parent and name of a moved or copied item. Create the folders."""
        check_drive_path(target, self.name)
        folder, _, name = target.rpartition("/")
        return {"parentReference": {"id": self._ensure_folder(folder)["id"]}, "name": name}

    def _ensure_folder(self, path: str) -> dict[str, Any]:
        item = self._get_item(path)
        if item is not None and "folder" not in item and "root" not in item:
            message = f"{self.name}: {path!r} is a file, not a folder"
            raise PathInvalid(message, path=path, backend=self.name)
        if item is not None:
            return item
        if not path:
            message = f"{self.name}: drive not found: {self._address.drive}"
            raise NotFound(message, path="", backend=self.name)
        parent, _, name = path.rpartition("/")
        url = self._address.item_by_id(self._ensure_folder(parent)["id"], "children")
        folder = {"name": name, "folder": {}, CONFLICT_BEHAVIOR: "fail"}
        response = self._client.send("POST", url, path, json=folder)
        if response.status_code == 409:
            return self._ensure_folder(path)  # Another writer has just created it.
        self._expect(response, path, 201)
        return json_object(response)

    def _complete(self, response: httpx2.Response, path: str) -> None:
        """Wait for an operation that the service accepted, or return if it is complete."""
        if response.status_code == 202 and "location" in response.headers:
            url = response.headers["location"]
            wait_for_operation(self._client, url, path, self._copy_timeout)
        else:
            self._expect(response, path, 200, 201)

    # ---- bytes ----

    def _open_download(self, path: str, item: Mapping[str, Any], position: int) -> Download:
        url = item.get(DOWNLOAD_URL)
        if not isinstance(url, str):
            message = f"{self.name}: {path!r}: Graph gives no address to read from"
            raise Unavailable(message, path=path, backend=self.name)
        return open_download(self._client, url, path, position)

    def _reopen_download(self, path: str, tag: str | None, position: int) -> Download:
        item = self._file_item(path)  # For a new URL: the old one may have expired.
        if item.get("cTag") != tag:
            message = f"{self.name}: {path!r} was changed while it was read"
            raise StorageError(message, path=path, backend=self.name)
        return self._open_download(path, item, position)

    def _upload(self, path: str, body: Body, size: int, how: How) -> None:
        conflict = "fail" if how == "create" else "replace"
        if size <= MAX_PUT_BYTES:
            self._put(path, body.read(), conflict)
            return
        url = self._address.item(path, "createUploadSession")
        options = {"item": {CONFLICT_BEHAVIOR: conflict}}
        response = self._client.send("POST", url, path, json=options)
        upload_url = json_object(response).get("uploadUrl")
        if response.status_code != 200 or not isinstance(upload_url, str):
            if response.status_code >= 400:
                raise from_response(response, path=path, backend=self.name)
            message = f"{self.name}: {path!r}: Graph gives no address to upload to"
            raise Unavailable(message, path=path, backend=self.name)
        started_at = http_date(header(response.headers, "date"))
        has_arrived = partial(self._has_arrived, path, size, started_at)
        UploadSession(self._client, upload_url, body, size, path, has_arrived).run()

    def _has_arrived(self, path: str, size: int, started_at: datetime | None) -> bool:
        """Return whether the complete file exists, written since a time of the service's clock."""
        item = self._get_item(path)
        if item is None or started_at is None or item.get("size") != size:
            return False
        return _modified_at(item) >= started_at

    def _put(self, path: str, data: bytes, conflict: str) -> None:
        url = f"{self._address.item(path, 'content')}?{CONFLICT_BEHAVIOR}={conflict}"
        headers = {"content-type": "application/octet-stream"}
        response = self._client.send("PUT", url, path, content=data, headers=headers)
        is_conflict = response.status_code == 409 and conflict == "fail"
        if is_conflict and response.extensions["attempt"] > 1 and self.read_bytes(path) == data:
            return  # An earlier attempt, whose response was lost, wrote this file.
        self._expect(response, path, 200, 201)

    # ---- errors ----

    def _expect(self, response: httpx2.Response, path: str, *statuses: int) -> None:
        """Raise the storage error of a response with another status."""
        if response.status_code not in statuses:
            raise from_response(response, path=path, backend=self.name)

    def _to_storage_error(self, path: str, error: Exception) -> Exception:
        if isinstance(error, StorageError):
            return error
        return from_spent_retries(error, path=path, backend=self.name)


def _login_form(
    tenant_id: str | None, client_id: str | None, client_secret: str | None
) -> dict[str, str] | None:
    """Return the login request of an app. None without credentials."""
    credentials = {"tenant_id": tenant_id, "client_id": client_id, "client_secret": client_secret}
    missing = [name for name, value in credentials.items() if value is None]
    if len(missing) == len(credentials):
        return None
    if missing:
        raise TypeError(f"graph needs all of {', '.join(credentials)}: {missing[0]} is missing")
    return {
        "client_id": client_id or "",
        "client_secret": client_secret or "",
        "scope": "https://graph.microsoft.com/.default",
        "grant_type": "client_credentials",
    }


def _log_in(client: GraphClient, url: str, form: Mapping[str, str] | None) -> str:
    """Return a token of the app. The login service gets the secret, and no token."""
    response = client.send("POST", url, "", authorized=False, data=form)
    token = json_object(response).get("access_token")
    if not isinstance(token, str):
        raise PermissionError(status_and_code(response))
    return token


def _file_info(path: str, item: Mapping[str, Any]) -> FileInfo:
    return FileInfo(path, int(item["size"]), _modified_at(item), item.get("cTag"))


def _modified_at(item: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(item["lastModifiedDateTime"])
