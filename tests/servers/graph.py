"""Graph for tests: our own server that follows the documented protocol, with scripted faults.

It has two hosts like the original: the service, which needs a token, and another one for bytes, upload sessions and monitors,
whose URLs contain their own keys. It counts and records every request.
"""

from __future__ import annotations

import json
import re
import secrets
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

from tests.servers.graph_drive import Drive, Refused, as_json

Fault: TypeAlias = int | str | tuple[int, str, dict[str, str]]
"""A status, (status, code, headers), "reset" (before any effect), "lost" (done, but without a response), "cut", "slow" (after
SLOW seconds). Otherwise a normal response.
"""
SLOW = 1.0
ADDRESS = re.compile(r"/v1\.0/drives/d1/(?:root(?::/(?P<path>.*?))?(?::?/(?P<part>content|children|createUploadSession|copy))?"
                     r"|items/(?P<id>[^/]+)(?:/(?P<more>children|copy))?)")  # fmt: skip


@dataclass
class Seen:
    """One recorded request."""

    label: str
    headers: dict[str, str]
    at: float
    size: int


@dataclass
class GraphServer:
    """The service and its second host. Threads may share it."""

    drive: Drive = field(default_factory=Drive)
    tokens: set[str] = field(default_factory=lambda: {"good"})
    seen: list[Seen] = field(default_factory=list)
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    page: int = 100
    next_host: str | None = None
    """Host of the next pages of listings, like that of an attacker who steals tokens."""
    service: str = ""
    other: str = ""

    def fail(self, label: str, *faults: Fault) -> None:
        """Let the next requests of this kind fail. For kinds see `label` in the handler."""
        self.faults[label] = list(faults)

    def count(self, label: str) -> int:
        return sum(seen.label == label for seen in self.seen)

    def of(self, label: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.label == label]

    def next_fault(self, label: str) -> Fault | None:
        with self.drive.lock:
            waiting = self.faults.get(label)
            if not waiting:
                return None
            return waiting.pop(0)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    graph: GraphServer
    is_service: bool

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline:
            self.close_connection = True
            return
        if not self.parse_request():
            return
        self.body = self.rfile.read(int(self.headers.get("content-length") or 0))
        url = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(url.query).items()}
        self.place = url.path
        label = self.label()
        self.graph.seen.append(
            Seen(label, {name.lower(): value for name, value in self.headers.items()}, time.monotonic(), len(self.body))
        )
        fault = self.graph.next_fault(label)
        if fault == "reset":
            self.reset()
            return
        if fault == "slow":
            time.sleep(SLOW)
        try:
            with self.graph.drive.lock:
                answer = self.refusal(fault) if isinstance(fault, (int, tuple)) else self.answer()
        except Refused as refused:
            answer = refused.status, {"error": {"code": refused.code}}, {}
        if fault == "lost":
            self.reset()
        else:
            self.send(*answer, cut=fault == "cut")

    def label(self) -> str:
        """Return the kind of request: `GET item`, `PUT content`, `PUT upload`, `GET bytes`, `GET monitor`, `POST token`, …"""
        if self.elsewhere:
            return f"{self.command} {self.place.split('/')[1]}"
        found = ADDRESS.fullmatch(self.place)
        if found is None:
            return f"{self.command} token" if self.place.endswith("/token") else f"{self.command} unknown"
        return f"{self.command} {found['part'] or found['more'] or 'item'}"

    def refusal(self, fault: int | tuple[int, str, dict[str, str]]) -> tuple[int, Any, dict[str, str]]:
        status, code, headers = (fault, "faulty", {}) if isinstance(fault, int) else fault
        return status, {"error": {"code": code}}, headers

    @property
    def elsewhere(self) -> bool:
        """Return whether it is for the second host. Behind a proxy both are one, and the path decides."""
        return not self.is_service or self.place.split("/")[1] in ("bytes", "upload", "monitor")

    def answer(self) -> tuple[int, Any, dict[str, str]]:
        if self.elsewhere:
            _, kind, name = self.place.split("/", 2)
            return getattr(self, f"_{kind}")(name)  # type: ignore[no-any-return]
        if self.place.endswith("/oauth2/v2.0/token"):
            return self._token()
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or token not in self.graph.tokens:
            raise Refused(401, "InvalidAuthenticationToken")
        found = ADDRESS.fullmatch(self.place)
        if found is None:
            raise Refused(404, "resourceNotFound")
        part = found["part"] or found["more"] or "item"
        return getattr(self, f"_{self.command.lower()}_{part}")(found)  # type: ignore[no-any-return]

    # ---- the service ----

    def _token(self) -> tuple[int, Any, dict[str, str]]:
        form = parse_qs(self.body.decode())
        if form.get("client_secret") != ["s3cret"]:
            return 401, {"error": "invalid_client"}, {}
        fresh = secrets.token_hex(8)
        self.graph.tokens = {fresh}
        return 200, {"access_token": fresh, "expires_in": 3600}, {}

    def _found(self, found: re.Match[str]) -> Any:
        drive = self.graph.drive
        return drive.by_id(unquote(found["id"])) if found["id"] else drive.find(unquote(found["path"] or ""))

    def _described(self, item: Any) -> Any:
        return as_json(item, f"{self.graph.other}/bytes/{item.id}?sig=download-key")

    def _get_item(self, found: re.Match[str]) -> tuple[int, Any, dict[str, str]]:
        return 200, self._described(self._found(found)), {}

    def _delete_item(self, found: re.Match[str]) -> tuple[int, Any, dict[str, str]]:
        self.graph.drive.remove(self._found(found))
        return 204, None, {}

    def _patch_item(self, found: re.Match[str]) -> tuple[int, Any, dict[str, str]]:
        item = self._found(found)
        self.graph.drive.move(item, json.loads(self.body))
        return 200, self._described(item), {}

    def _get_children(self, found: re.Match[str]) -> tuple[int, Any, dict[str, str]]:
        item = self._found(found)
        if item.data is not None:
            raise Refused(404, "itemNotFound")
        start = int(self.query.get("$skiptoken", 0))
        items = sorted(item.children.values(), key=lambda child: child.name)
        page: dict[str, Any] = {"value": [self._described(child) for child in items[start : start + self.graph.page]]}
        if start + self.graph.page < len(items):
            host = self.graph.next_host or self.graph.service
            page["@odata.nextLink"] = f"{host}{self.place}?$skiptoken={start + self.graph.page}"
        return 200, page, {}

    def _post_children(self, found: re.Match[str]) -> tuple[int, Any, dict[str, str]]:
        return 201, self._described(self.graph.drive.add(self._found(found), json.loads(self.body)["name"], None)), {}

    def _put_content(self, found: re.Match[str]) -> tuple[int, Any, dict[str, str]]:
        conflict = self.query.get("@microsoft.graph.conflictBehavior", "replace")
        item, fresh = self.graph.drive.put(unquote(found["path"]), self.body, conflict)
        return 201 if fresh else 200, self._described(item), {}

    def _post_createUploadSession(self, found: re.Match[str]) -> tuple[int, Any, dict[str, str]]:  # noqa: N802  # its API name
        conflict = json.loads(self.body)["item"]["@microsoft.graph.conflictBehavior"]
        name = self.graph.drive.begin(unquote(found["path"]), conflict)
        return 200, {"uploadUrl": f"{self.graph.other}/upload/{name}?sig=upload-key"}, {}

    def _post_copy(self, found: re.Match[str]) -> tuple[int, Any, dict[str, str]]:
        item, name = self._found(found), secrets.token_hex(4)
        conflict = self.query.get("@microsoft.graph.conflictBehavior", "fail")
        self.graph.drive.copies[name] = {"item": item, "change": json.loads(self.body), "conflict": conflict, "looks": 0}
        return 202, None, {"location": f"{self.graph.other}/monitor/{name}?sig=monitor-key"}

    # ---- the second host ----

    def _bytes(self, name: str) -> tuple[int, Any, dict[str, str]]:
        data = self.graph.drive.by_id(name).data
        assert data is not None
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("range", ""))
        if asked is None:
            return 200, data, {}
        return 206, data[int(asked[1]) :], {"content-range": f"bytes {asked[1]}-{len(data) - 1}/{len(data)}"}

    def _upload(self, name: str) -> tuple[int, Any, dict[str, str]]:
        drive = self.graph.drive
        if self.command == "DELETE":
            drive.uploads.pop(name, None)
            return 204, None, {}
        if self.command == "PUT":
            item = drive.chunk(name, self.headers["content-range"], self.body)
            if item is not None:
                return 201, self._described(item), {}
        received = len(drive.upload(name).received)
        return 202 if self.command == "PUT" else 200, {"nextExpectedRanges": [f"{received}-"]}, {}

    def _monitor(self, name: str) -> tuple[int, Any, dict[str, str]]:
        drive = self.graph.drive
        if name not in drive.copies:
            raise Refused(404, "itemNotFound")
        copy = drive.copies[name]
        copy["looks"] += 1
        if copy["looks"] <= drive.looks:
            return 202, {"status": "inProgress", "percentageComplete": 50.0}, {}
        try:
            drive.copy(copy["item"], copy["change"], copy["conflict"])
        except Refused as refused:
            return 200, {"status": "failed", "error": {"code": refused.code}}, {}
        return 200, {"status": "completed", "resourceId": "new"}, {}

    # ---- the wire ----

    def send(self, status: int, content: Any, headers: dict[str, str], *, cut: bool = False) -> None:
        data = content if isinstance(content, bytes) else b"" if content is None else json.dumps(content).encode()
        self.send_response_only(status)
        for name, value in {"Date": self.date_time_string(), "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if cut else data)
        self.close_connection = self.close_connection or cut

    def reset(self) -> None:
        self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.request.close()
        self.close_connection = True

    def finish(self) -> None:
        try:
            super().finish()
        except OSError:
            pass  # the connection was closed on purpose

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is that of the base class
        """Not to stderr, because `seen` has all requests."""


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def shutdown_request(self, request: Any) -> None:
        try:
            super().shutdown_request(request)
        except OSError:
            pass

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients of a failing server disconnect early, which is expected."""


@contextmanager
def graph_server() -> Iterator[GraphServer]:
    """Yield the two hosts, running."""
    graph = GraphServer()
    listeners = []
    for is_service in (True, False):
        handler = type("Bound", (Handler,), {"graph": graph, "is_service": is_service})
        listener = Listener(("127.0.0.1", 0), handler)
        threading.Thread(target=listener.serve_forever, args=(0.02,), daemon=True).start()
        listeners.append(listener)
    graph.service, graph.other = (f"http://127.0.0.1:{listener.server_address[1]}" for listener in listeners)
    try:
        yield graph
    finally:
        for listener in listeners:
            listener.shutdown()
            listener.server_close()
