"""Graph: files of OneDrive and SharePoint, over Microsoft Graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from ...core.policy import RetryPolicy
from ...core.retry_after import header, http_date
from ...errors import NotFound, PathInvalid, StorageError, Unavailable
from ..backend import How
from ..body import Body
from ..info import Capabilities, FileInfo
from ..reading import reading
from ..resumed import Resumed
from ..skipped import Skipped
from .address import Address, problem
from .download import download
from .failure import code, failed, fields, meaning, unreachable
from .monitor import watch
from .sender import Sender
from .tokens import Tokens, credentials
from .upload import Session, not_begun

if TYPE_CHECKING:
    import httpx2

SMALL = 4 * 1024 * 1024
"""Bytes that go in one request; more go in a session."""
PAGE = "?$top=200"
LINK = "@odata.nextLink"
CONFLICT = "@microsoft.graph.conflictBehavior"


class Graph:
    """Files of a drive. Experimental. Threads may share it; a forked child connects anew.

    Every request is tried again by itself, all five fields of `retry` count, and what the service asks for is waited for.
    """

    capabilities = Capabilities(atomic_write=True, exclusive_create=True, atomic_move=True, native_copy=True, empty_folders=True)

    def __init__(
        self, name: str = "graph", /, *, drive: str, token: str | Callable[[], str] | None = None, tenant_id: str | None = None,
        client_id: str | None = None, client_secret: str | None = None, base_url: str = "https://graph.microsoft.com/v1.0",
        login_url: str = "https://login.microsoftonline.com", proxy: str | None = None, timeout: float = 30.0,
        copy_timeout: float = 600.0, retry: RetryPolicy | None = None,
    ) -> None:  # fmt: skip
        """drive: "me/drive", "drives/ID", "sites/ID/drive". token: one, or a function that gives a fresh one; else the app's own

        tenant_id, client_id and client_secret. timeout: seconds without a sign of life, for each request. copy_timeout: seconds
        for a copy, which the service makes by itself. retry: for each request (default: `RetryPolicy()`).
        """
        app = credentials(tenant_id, client_id, client_secret)
        if (token is None) == (app is None):
            raise TypeError("graph needs a token, or tenant_id, client_id and client_secret")
        self.name = name
        self._login = f"{login_url.rstrip('/')}/{tenant_id}/oauth2/v2.0/token"
        self._app = app
        self._copy_timeout = copy_timeout
        self._address = Address(base_url.rstrip("/"), drive.strip("/"))
        fetch = self._log_in if token is None else token if callable(token) else partial(str, token)
        self._sender = Sender(self._address, Tokens(fetch), retry, timeout, proxy, name)

    def read(self, path: str, /) -> BinaryIO:
        item = self._file(path)
        first = self._download(path, item, 0)
        again = partial(self._resumed, path, item.get("cTag"))
        resumed = Resumed(first, int(item["size"]), again, self._sender.policy, (meaning,), f"storage.{self.name}")
        return reading(resumed, lambda error: self._ours(error, path))

    def read_bytes(self, path: str, /) -> bytes:
        with self.read(path) as file:
            return file.read()

    def write(self, path: str, body: Body, how: How, /) -> None:
        self._check(path)
        if body.size is None:
            with SpooledTemporaryFile(SMALL) as spool:  # a session must be told the size before the first byte
                for piece in body.pieces():
                    spool.write(piece)
                spool.seek(0)
                self._upload(path, Body(cast(BinaryIO, spool)), how)
        else:
            self._upload(path, body, how)

    def files(self, folder: str, /, *, recursive: bool) -> Iterator[FileInfo]:
        waiting = [folder]
        while waiting:
            here = waiting.pop()
            for item in self._children(here):
                path = f"{here}/{item['name']}" if here else item["name"]
                if "file" in item:
                    yield _info(path, item)
                elif recursive:
                    waiting.append(path)

    def folders(self, folder: str, /) -> Iterator[str]:
        for item in self._children(folder):
            if "folder" in item:
                yield f"{folder}/{item['name']}" if folder else item["name"]

    def info(self, path: str, /) -> FileInfo:
        return _info(path, self._file(path))

    def delete(self, path: str, /) -> None:
        try:
            item = self._file(path)  # by its path a whole folder would go
        except NotFound:
            return
        response = self._sender.send("DELETE", self._address.by_id(item["id"]), path)
        if response.status_code not in (204, 404):
            raise self._failed(response, path)

    def move(self, source: str, target: str, /) -> None:
        item, change = self._file(source), self._destination(target)
        response = self._sender.send("PATCH", self._address.by_id(item["id"]), target, json={**change, CONFLICT: "replace"})
        self._ended(response, target)

    def copy(self, source: str, target: str, /) -> None:
        item, change = self._file(source), self._destination(target)
        url = f"{self._address.by_id(item['id'], 'copy')}?{CONFLICT}=replace"
        self._ended(self._sender.send("POST", url, target, json=change), target)

    def check(self) -> None:
        response = self._sender.send("GET", self._address.item(""), "")
        if response.status_code != 200:
            raise self._failed(response, "")

    def close(self) -> None:
        self._sender.close()

    # ---- items ----

    def _file(self, path: str) -> dict[str, Any]:
        """The item, which is a file."""
        item = self._item(path)
        if item is None or "file" not in item:
            raise NotFound(f"{self.name}: file {path!r} not found", path=path, backend=self.name)
        return item

    def _item(self, path: str) -> dict[str, Any] | None:
        if path:
            self._check(path)
        response = self._sender.send("GET", self._address.item(path), path)
        if response.status_code == 404:
            return None
        if response.status_code != 200:
            raise self._failed(response, path)
        return fields(response)

    def _children(self, folder: str) -> Iterator[dict[str, Any]]:
        if folder and problem(folder):
            return
        skipped = Skipped(self.name)
        url: str | None = self._address.item(folder, "children") + PAGE
        while url is not None:
            response = self._sender.send("GET", url, folder)
            if response.status_code == 404 and folder:
                return
            if response.status_code != 200:
                raise self._failed(response, folder)
            page = fields(response)
            yield from (item for item in page.get("value", ()) if skipped.is_name(item.get("name")))
            url = page.get(LINK)

    def _destination(self, target: str) -> dict[str, Any]:
        """What a move or a copy is told of where to go; the folders are made."""
        self._check(target)
        folder, _, name = target.rpartition("/")
        return {"parentReference": {"id": self._folder(folder)["id"]}, "name": name}

    def _folder(self, path: str) -> dict[str, Any]:
        item = self._item(path)
        if item is not None and "folder" not in item and "root" not in item:
            message = f"{self.name}: {path!r} is a file, not a folder"
            raise PathInvalid(message, path=path, backend=self.name)
        if item is not None:
            return item
        if not path:
            raise NotFound(f"{self.name}: drive not found: {self._address.drive}", path="", backend=self.name)
        parent, _, name = path.rpartition("/")
        url = self._address.by_id(self._folder(parent)["id"], "children")
        response = self._sender.send("POST", url, path, json={"name": name, "folder": {}, CONFLICT: "fail"})
        if response.status_code == 409:
            return self._folder(path)  # somebody else has just made it
        if response.status_code != 201:
            raise self._failed(response, path)
        return fields(response)

    def _ended(self, response: httpx2.Response, path: str) -> None:
        """Done at once, or to be watched until it is."""
        if response.status_code == 202 and "location" in response.headers:
            watch(self._sender, response.headers["location"], path, self._copy_timeout)
        elif response.status_code not in (200, 201):
            raise self._failed(response, path)

    # ---- bytes ----

    def _download(self, path: str, item: Mapping[str, Any], at: int) -> Any:
        url = item.get("@microsoft.graph.downloadUrl")
        if not isinstance(url, str):
            message = f"{self.name}: {path!r}: Graph gives no address to read from"
            raise Unavailable(message, path=path, backend=self.name)
        return download(self._sender, url, path, at)

    def _resumed(self, path: str, tag: str | None, at: int) -> Any:
        item = self._file(path)  # for a new address: the old one may be why it broke
        if item.get("cTag") != tag:
            raise StorageError(f"{self.name}: {path!r} was changed while it was read", path=path, backend=self.name)
        return self._download(path, item, at)

    def _upload(self, path: str, body: Body, how: How) -> None:
        size = cast(int, body.size)
        conflict = "fail" if how == "create" else "replace"
        if size <= SMALL:
            self._put(path, body.read(), conflict)
            return
        url = self._address.item(path, "createUploadSession")
        response = self._sender.send("POST", url, path, json={"item": {CONFLICT: conflict}})
        to = fields(response).get("uploadUrl")
        if response.status_code != 200 or not isinstance(to, str):
            raise not_begun(response, path, self.name)
        since = http_date(header(response.headers, "date"))
        Session(self._sender, to, body, size, path, partial(self._arrived, path, size, since)).run()

    def _arrived(self, path: str, size: int, since: datetime | None) -> bool:
        """Is the whole file there, written since then by the service's own clock?"""
        item = self._item(path)
        if item is None or since is None or item.get("size") != size:
            return False
        return _moment(item) >= since

    def _put(self, path: str, data: bytes, conflict: str) -> None:
        url = f"{self._address.item(path, 'content')}?{CONFLICT}={conflict}"
        response = self._sender.send("PUT", url, path, content=data, headers={"content-type": "application/octet-stream"})
        again = response.status_code == 409 and conflict == "fail" and response.extensions["attempt"] > 1
        if again and self.read_bytes(path) == data:
            return  # an earlier attempt, whose answer was lost, has written it: it is ours
        if response.status_code not in (200, 201):
            raise self._failed(response, path)

    # ---- who asks, and what went wrong ----

    def _log_in(self) -> str:
        """The app's own token. Asked for without one, and not at the service itself."""
        response = self._sender.send("POST", self._login, "", authorized=False, data=self._app)
        token = fields(response).get("access_token")
        if not isinstance(token, str):
            raise PermissionError(f"{response.status_code} {code(response)}".rstrip())
        return token

    def _check(self, path: str) -> None:
        wrong = problem(path)
        if wrong is not None:
            raise PathInvalid(f"{self.name}: invalid path {path!r}: {wrong}", path=path, backend=self.name)

    def _failed(self, response: httpx2.Response, path: str) -> StorageError:
        return failed(response, path=path, backend=self.name)

    def _ours(self, error: Exception, path: str) -> Exception:
        return error if isinstance(error, StorageError) else unreachable(error, path=path, backend=self.name)


def _info(path: str, item: Mapping[str, Any]) -> FileInfo:
    return FileInfo(path, int(item["size"]), _moment(item), item.get("cTag"))


def _moment(item: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(item["lastModifiedDateTime"])
