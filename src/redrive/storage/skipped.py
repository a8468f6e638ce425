"""Skipped: names in a listing that are not names of files. A server may be wrong, or hostile: `../../evil`."""

from __future__ import annotations

import logging

from .path import RESERVED, paths_among, problem

LOG = logging.getLogger("redrive.storage")
NAMED = 10
"""Names that one listing warns of."""
LONGEST = 120
"""Characters of a name that the log has."""


class Skipped:
    """Decides which names of one listing are passed on, and warns of the others. For one listing, and not shared."""

    def __init__(self, backend: str, /) -> None:
        self._backend = backend
        self._count = 0

    def is_name(self, name: object, /) -> bool:
        """Whether this is one name in a folder: not empty, `.` or `..`, without separators and control characters."""
        if isinstance(name, str) and "/" not in name:
            return self.is_path(name)
        self._warn(name, "it has / in it" if isinstance(name, str) else "it is not text")
        return False

    def is_path(self, path: str, /) -> bool:
        """Whether this is the path of a file. Folder markers and files that are being written are skipped silently."""
        wrong = problem(path)
        if wrong is None:
            return True
        is_ours = path.endswith("/") or any(part.startswith(RESERVED) for part in path.split("/"))
        if not is_ours:
            self._warn(path, wrong)
        return False

    def paths(self, paths: list[str], /) -> list[str]:
        """Those that are paths of files."""
        kept = paths_among(paths)
        if len(kept) < len(paths):
            for path in set(paths).difference(kept):
                self.is_path(path)
        return kept

    def _warn(self, name: object, wrong: str) -> None:
        self._count += 1
        if self._count <= NAMED:
            text = ascii(name)
            shown = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
            LOG.warning("%s: skipped %s in a listing: not a valid path: %s", self._backend, shown, wrong)
