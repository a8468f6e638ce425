"""Objects in the user's code, named as `module:object`."""

from __future__ import annotations

import importlib
import sys
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import Any


class Unreadable(ValueError):
    """A name cannot be resolved. The message says what is wrong, where, and how to fix it."""


def names_object(source: str, /) -> bool:
    """Return whether a text has the form `module:object`."""
    module, _, name = source.partition(":")
    return bool(module and name)


def import_object(source: str, /) -> Any:
    """Import the object of `module:object`. The current folder is searched first.

    Raises:
        Unreadable: The module cannot be imported, or has no such object.
    """
    module, _, name = source.partition(":")
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        value: Any = import_module(module)
    except (Exception, SystemExit) as wrong:  # A module of the user may do anything.
        problem = f"{type(wrong).__name__}: {wrong}{_place(wrong)}"
        if isinstance(wrong, ModuleNotFoundError) and f"{module}.".startswith(f"{wrong.name}."):
            problem = f"not found in {folder} or in the installed packages"
        raise Unreadable(f"module {module} cannot be imported: {problem}") from wrong
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError as wrong:
            known = [attribute for attribute in dir(value) if not attribute.startswith("__")]
            raise Unreadable(f"{source}: no attribute {part!r}{suggest(part, known)}") from wrong
    return value


def search_current_folder() -> None:
    """Search the current folder for all modules that are imported later.

    An app needs this, because its `include` names modules of this folder too.
    """
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)


def suggest(name: str, known: list[str] | tuple[str, ...], /) -> str:
    """Return the known name that is most similar, in brackets. Empty: none is."""
    similar = get_close_matches(name, known, 1)
    return f" (did you mean {similar[0]!r}?)" if similar else ""


def _place(error: BaseException) -> str:
    """Return file and line of the user's code where the error was raised, if known."""
    skipped = (str(Path(__file__).parents[2]), f"{Path(importlib.__file__).parent}/", "<")
    frames = [f for f in extract_tb(error.__traceback__) if not f.filename.startswith(skipped)]
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
