"""Address: where an item of a drive is, and which names a drive can hold. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

LONGEST = 400
"""Characters of a path that OneDrive and SharePoint take."""
_SIGNS = re.compile(r'["*:<>?\\|]')
_TAKEN = re.compile(r"(?i)\A(?:con|prn|aux|nul|com\d|lpt\d|desktop\.ini|\.lock|_vti_|~\$.*)\Z")


@dataclass(frozen=True, slots=True)
class Address:
    """A drive by its address: `https://graph.microsoft.com/v1.0`, and `me/drive` or `drives/ID` or `sites/ID/drive`."""

    base: str
    drive: str

    def item(self, path: str, part: str = "") -> str:
        """An item by its path, or a part of it: its content, its children, an action."""
        root = f"{self.base}/{self.drive}/root"
        if not path:
            return f"{root}/{part}" if part else root
        whole = f"{root}:/{'/'.join(quote(name, safe='') for name in path.split('/'))}"
        return f"{whole}:/{part}" if part else whole

    def by_id(self, item: str, part: str = "") -> str:
        """An item by its id: it stays the same wherever the item is moved, so that a move can be asked for twice."""
        whole = f"{self.base}/{self.drive}/items/{quote(item, safe='')}"
        return f"{whole}/{part}" if part else whole

    def is_home(self, url: str) -> bool:
        """Is this the service itself? Only there the token may go."""
        ours, theirs = urlsplit(self.base), urlsplit(url)
        return (ours.scheme, ours.netloc) == (theirs.scheme, theirs.netloc)


def problem(path: str) -> str | None:
    """Why a drive cannot hold this path; None where it can."""
    if len(path) > LONGEST:
        return f"it is {len(path):,} characters long, and a drive takes {LONGEST}"
    for name in path.split("/"):
        found = _SIGNS.search(name)
        if found:
            return f"{found[0]} is not allowed in the name of an item"
        if name != name.strip() or name.endswith("."):
            return f"the name {name!r} begins or ends with a space, or ends with a dot"
        if _TAKEN.match(name):
            return f"{name!r} is a name that a drive keeps for itself"
    return None


def without_query(url: str) -> str:
    """For people: what stands after `?` in such an address is a key to the file."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"
