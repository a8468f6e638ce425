"""Paths of files: the rules, the same on every backend, and the filter for names in listings."""

from __future__ import annotations

import logging
import re

from ..errors import PathInvalid

LOG = logging.getLogger("redrive.storage")
MAX_PATH_BYTES = 1024
"""Bytes of UTF-8, including the root of a store. The limit of S3, so that files move anywhere."""
TEMPORARY_PREFIX = ".redrive-"
"""Prefix of files that are being written, next to their final path."""
MAX_WARNINGS = 10
"""Names that one listing warns about."""
MAX_NAME_CHARS = 120
"""Characters of an invalid name in a log message."""
_CONTROL = re.compile("[\x00-\x1f\x7f]")
_INVALID_NAME = re.compile(f"^{re.escape(TEMPORARY_PREFIX)}|[\x00-\x1f\x7f\\\\\ud800-\udfff]")


def check_path(path: str, /, *, backend: str) -> str:
    """Return the path of a file if it is valid, or raise PathInvalid.

    Parts are separated by `/`. No part is empty, `.` or `..`: a path cannot leave its root, and a
    file has exactly one path. Case and Unicode form are kept: two forms of `é` are two files if
    the backend distinguishes them.
    """
    problem = path_problem(path)
    if problem is not None:
        raise PathInvalid(
            f"invalid path {_shorten(path)}: {problem}", path=str(path), backend=backend
        )
    return path


def path_problem(path: str, /) -> str | None:
    """Return the problem of a path of a file. None if it is valid."""
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
    if size > MAX_PATH_BYTES:
        return f"it is {size:,} bytes long; at most {MAX_PATH_BYTES:,} fit every backend"
    return _part_problem(path.split("/"))


def check_folder(path: str, /, *, backend: str) -> str:
    """Return the path of a folder if it is valid. `""` is the root."""
    return check_path(path, backend=backend) if path != "" else ""


def join_path(root: str, path: str, /) -> str:
    """Return a path below a folder. Either may be empty."""
    return f"{root}/{path}" if root and path else root or path


def is_valid_name(name: str, /) -> bool:
    """Return whether a name can be a part of a path."""
    if name in ("", ".", "..") or "/" in name:
        return False
    return _INVALID_NAME.search(name) is None


def are_plain_names(names: list[str], /) -> bool:
    """Return True only if all names are valid parts of a path.

    False means that each name needs its own check. One check of all names together is much faster.
    """
    joined = f"/{'/'.join(names)}/"
    is_one_part_each = joined.count("/") == len(names) + 1 and "//" not in joined
    return not names or (is_one_part_each and _is_plain(joined))


def valid_paths(paths: list[str], /) -> list[str]:
    """Return the valid paths. Usually all are, and one check tells."""
    joined = f"/{'/'.join(paths)}/"
    max_chars = MAX_PATH_BYTES // 4  # A character has at most 4 bytes.
    if "//" not in joined and _is_plain(joined) and max(map(len, paths), default=0) <= max_chars:
        return paths
    return [path for path in paths if path_problem(path) is None]


class ListingFilter:
    """Drops invalid names from one listing, and warns about them. Do not share it.

    A server may be wrong or hostile, and list a name such as `../../evil`.
    """

    def __init__(self, backend: str, /) -> None:
        self._backend = backend
        self._warnings = 0

    def accepts_name(self, name: object, /) -> bool:
        """Return whether this is a valid name in a folder."""
        if isinstance(name, str) and "/" not in name:
            return self.accepts_path(name)
        self._warn(name, "it has / in it" if isinstance(name, str) else "it is not text")
        return False

    def accepts_path(self, path: str, /) -> bool:
        """Return whether this is the path of a file.

        Folder markers and files that are being written are dropped without a warning.
        """
        problem = path_problem(path)
        if problem is None:
            return True
        is_expected = path.endswith("/") or any(
            part.startswith(TEMPORARY_PREFIX) for part in path.split("/")
        )
        if not is_expected:
            self._warn(path, problem)
        return False

    def accepted_paths(self, paths: list[str], /) -> list[str]:
        """Return the paths of files among these."""
        accepted = valid_paths(paths)
        if len(accepted) < len(paths):
            for path in set(paths).difference(accepted):
                self.accepts_path(path)
        return accepted

    def _warn(self, name: object, problem: str) -> None:
        self._warnings += 1
        if self._warnings <= MAX_WARNINGS:
            text = ascii(name)
            shown = text if len(text) <= MAX_NAME_CHARS else f"{text[:MAX_NAME_CHARS]}…"
            LOG.warning(
                "%s: skipped %s in a listing: not a valid path: %s", self._backend, shown, problem
            )


def _is_plain(joined: str) -> bool:
    """Return whether names joined by slashes have no character or prefix that needs a check."""
    return joined.isprintable() and "/." not in joined and "\\" not in joined


def _part_problem(parts: list[str]) -> str | None:
    for part in parts:
        if not part:
            return "it contains //, which some backends treat as / and others do not"
        if part in (".", ".."):
            return f"it contains {part!r}; a path cannot leave its root"
        if part.startswith(TEMPORARY_PREFIX):
            return f"names that begin with {TEMPORARY_PREFIX} are files being written"
    return None


def _shorten(path: object) -> str:
    text = ascii(path)
    return text if len(text) <= 120 else f"{text[:80]}… ({len(text):,} characters)"
