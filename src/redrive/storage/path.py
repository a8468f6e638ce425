"""Path: how a file is named, the same on every backend. Pure: what is wrong with a path is said before anything is asked."""

from __future__ import annotations

import re

from ..errors import PathInvalid

LONGEST = 1024
"""Bytes of UTF-8, a store's root included: what S3 can hold, and so what moves between any two backends."""
RESERVED = ".redrive-"
"""Names that begin so are ours: files that are being written, next to what they will become."""
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_NO_NAME = re.compile(f"^{re.escape(RESERVED)}|[\x00-\x1f\x7f\\\\\ud800-\udfff]")


def checked(path: str, /, *, backend: str) -> str:
    """The path of a file, or PathInvalid with what is wrong with it.

    Parts with `/` between them; none is empty, `.` or `..`, so that no path leaves its root and each file has one path only.
    Case and Unicode forms are kept as they are: `é` written in two ways is two files, where the backend can tell them apart.
    """
    wrong = problem(path)
    if wrong is not None:
        raise PathInvalid(f"invalid path {_shown(path)}: {wrong}", path=str(path), backend=backend)
    return path


def problem(path: str, /) -> str | None:
    """What is wrong with the path of a file; None where nothing is."""
    if not isinstance(path, str):
        raise TypeError(f"a path is text, not {type(path).__name__}: {path!r}")
    if not path:
        return "it is empty"
    if path.startswith("/"):
        return "it begins with /; paths are relative to the root of the store"
    if path.endswith("/"):
        return "it ends with /; a file has a name"
    if "\\" in path:
        return "it has a backslash; parts are separated by /"
    if _CONTROL.search(path):
        return "it has a control character"
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "it cannot be written in UTF-8"
    if size > LONGEST:
        return f"it is {size:,} bytes long; at most {LONGEST:,} fit every backend"
    return _part_problem(path.split("/"))


def folder(path: str, /, *, backend: str) -> str:
    """The path of a folder; `""` is the root."""
    return checked(path, backend=backend) if path != "" else ""


def joined(root: str, path: str, /) -> str:
    """A path under another; either may be empty."""
    return f"{root}/{path}" if root and path else root or path


def listable(name: str, /) -> bool:
    """Can this name of a file be part of a path? Others are files being written, and what somebody else has made."""
    return _NO_NAME.search(name) is None and name not in ("", ".", "..") and "/" not in name


def all_listable(names: list[str], /) -> bool:
    """Whether all of these names can be part of a path, for certain. One check of all names is much faster than one each."""
    together = f"/{'/'.join(names)}/"
    return not names or (together.count("/") == len(names) + 1 and "//" not in together and _is_plain(together))


def paths_among(names: list[str], /) -> list[str]:
    """Those that are paths: markers of folders, and what somebody else has made, are none. Mostly all are, told at once."""
    together = f"/{'/'.join(names)}/"
    fine = "//" not in together and _is_plain(together)
    if fine and max(map(len, names), default=0) <= LONGEST // 4:  # bytes of a character, at the most
        return names
    return [name for name in names if problem(name) is None]


def _is_plain(together: str) -> bool:
    """Whether these names, with a slash around each, have no character or beginning that needs a closer look."""
    return together.isprintable() and "/." not in together and "\\" not in together


def _part_problem(parts: list[str]) -> str | None:
    for part in parts:
        if not part:
            return "it contains //, which some backends treat as / and others do not"
        if part in (".", ".."):
            return f"it contains {part!r}; a path cannot leave its root"
        if part.startswith(RESERVED):
            return f"names that begin with {RESERVED} are files being written"
    return None


def _shown(path: object) -> str:
    text = ascii(path)
    return text if len(text) <= 120 else f"{text[:80]}… ({len(text):,} characters)"
