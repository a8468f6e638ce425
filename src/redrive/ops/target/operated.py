"""Operated: what the console is of: an app in the user's code, with all that is registered, or a ledger alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...app import App
from ..settings import known
from .imported import Unreadable, imported
from .target import Operated, opened, source_of


@contextmanager
def operated(given: str | None = None, /) -> Iterator[Operated]:
    """The app of `module:app`, or the ledger at an address, open for the block; an app goes first. As `opened` otherwise.

    Its ledger is reached once before the block: what is wrong with it is said now, not on the first page.
    """
    source = given or known().app or source_of(None)
    module, colon, name = source.partition(":")
    if "://" in source or module == "sqlite" or not colon or not module or not name or Path(source).exists():
        with opened(source) as ledger:
            yield ledger
        return
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # for as long as it is served: `include` names modules that are there too
    found = imported(module, name)
    if not isinstance(found, App):
        with opened(source) as ledger:
            yield ledger
        return
    try:
        found.registrations.load()
    except ImportError as missing:
        raise Unreadable(f"{source}: {missing}") from missing
    with opened(source, create=True):
        yield found
