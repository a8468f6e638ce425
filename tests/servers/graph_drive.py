"""A drive of Graph: items with ids under a root, upload sessions, and copies that take a few polls. Without a network."""

from __future__ import annotations

import hashlib
import itertools
import threading
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

UNIT = 320 * 1024


class Refused(Exception):
    """An error response: its status, and the error code of the service."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(status, code)
        self.status = status
        self.code = code


@dataclass(eq=False)
class Item:
    id: str
    name: str
    parent: Item | None
    data: bytes | None = None
    """None for a folder."""
    modified: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    children: dict[str, Item] = field(default_factory=dict)


@dataclass(eq=False)
class Upload:
    path: str
    conflict: str
    received: bytearray = field(default_factory=bytearray)
    total: int | None = None
    takes: int | None = None
    """Accept only this number of bytes of the next chunk."""


class Drive:
    """The state of the service. Names are compared without case, as in OneDrive."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._ids = itertools.count(1)
        self.root = Item("root", "root", None)
        self.items: dict[str, Item] = {"root": self.root}
        self.uploads: dict[str, Upload] = {}
        self.copies: dict[str, dict[str, Any]] = {}
        self.looks = 1
        """Number of polls until a copy is done."""

    def find(self, path: str) -> Item:
        item = self.root
        for name in [part for part in path.split("/") if part]:
            if name.lower() not in item.children:
                raise Refused(404, "itemNotFound")
            item = item.children[name.lower()]
        return item

    def by_id(self, identity: str) -> Item:
        if identity not in self.items:
            raise Refused(404, "itemNotFound")
        return self.items[identity]

    def put(self, path: str, data: bytes, conflict: str) -> tuple[Item, bool]:
        """Write a file and its folders. Return whether it is new."""
        *folders, name = path.split("/")
        parent = self.root
        for folder in folders:
            parent = parent.children.get(folder.lower()) or self.add(parent, folder, None)
            if parent.data is not None:
                raise Refused(400, "invalidRequest")
        there = parent.children.get(name.lower())
        if there is None:
            return self.add(parent, name, data), True
        if conflict == "fail" or there.data is None:
            raise Refused(409, "nameAlreadyExists")
        there.data, there.modified = data, datetime.now(timezone.utc)
        return there, False

    def add(self, parent: Item, name: str, data: bytes | None) -> Item:
        if name.lower() in parent.children:
            raise Refused(409, "nameAlreadyExists")
        item = Item(f"item-{next(self._ids)}", name, parent, data)
        parent.children[name.lower()] = self.items[item.id] = item
        return item

    def remove(self, item: Item) -> None:
        assert item.parent is not None
        del item.parent.children[item.name.lower()]
        del self.items[item.id]

    def move(self, item: Item, change: dict[str, Any]) -> None:
        parent = self.by_id(change["parentReference"]["id"])
        self._make_room(parent, change["name"], item, change.get("@microsoft.graph.conflictBehavior", "fail"))
        assert item.parent is not None
        del item.parent.children[item.name.lower()]
        item.parent, item.name = parent, change["name"]
        parent.children[item.name.lower()] = item

    def copy(self, item: Item, change: dict[str, Any], conflict: str) -> None:
        parent = self.by_id(change["parentReference"]["id"])
        self._make_room(parent, change["name"], item, conflict)
        self.add(parent, change["name"], item.data)

    def _make_room(self, parent: Item, name: str, mover: Item, conflict: str) -> None:
        there = parent.children.get(name.lower())
        if there is not None and there is not mover:
            if conflict != "replace" or there.data is None:
                raise Refused(409, "nameAlreadyExists")
            self.remove(there)

    # ---- upload sessions ----

    def begin(self, path: str, conflict: str) -> str:
        name = f"upload-{next(self._ids)}"
        self.uploads[name] = Upload(path, conflict)
        return name

    def chunk(self, name: str, content_range: str, data: bytes) -> Item | None:
        """Store a chunk. Return the item after the last one."""
        upload = self.upload(name)
        span, _, total = content_range.removeprefix("bytes ").partition("/")
        start, end = (int(each) for each in span.split("-"))
        if end - start + 1 != len(data) or (end + 1 != int(total) and len(data) % UNIT and upload.takes is None):
            raise Refused(400, "invalidRequest")
        if start != len(upload.received):
            raise Refused(416, "invalidRange")
        upload.total = int(total)
        upload.received += data[: upload.takes]
        upload.takes = None
        if len(upload.received) < upload.total:
            return None
        del self.uploads[name]
        return self.put(upload.path, bytes(upload.received), upload.conflict)[0]

    def upload(self, name: str) -> Upload:
        if name not in self.uploads:
            raise Refused(404, "itemNotFound")
        return self.uploads[name]


def as_json(item: Item, download: str) -> dict[str, Any]:
    """Return the item as JSON."""
    found: dict[str, Any] = {
        "id": item.id,
        "name": item.name,
        "lastModifiedDateTime": item.modified.isoformat().replace("+00:00", "Z"),
    }
    if item.parent is None:
        return found | {"root": {}, "folder": {"childCount": len(item.children)}}
    if item.data is None:
        return found | {"folder": {"childCount": len(item.children)}}
    tag = hashlib.sha256(item.data).hexdigest()[:16]
    return found | {"file": {}, "size": len(item.data), "cTag": f'"c:{tag}"', "@microsoft.graph.downloadUrl": download}
