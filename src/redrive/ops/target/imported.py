"""An object in the user's code, named on the command line as `module:object`."""

from __future__ import annotations

import importlib
import sys
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import Any


class Unreadable(ValueError):
    """What was named cannot be read; the message says what is wrong, where, and what would be right."""


def imported(module: str, name: str, /) -> Any:
    """The object; the directory one is in is searched for the module. Unreadable says why not."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found: Any = import_module(module)
    except (Exception, SystemExit) as wrong:  # a module of the user's may do anything
        missing = isinstance(wrong, ModuleNotFoundError) and wrong.name is not None and f"{module}.".startswith(f"{wrong.name}.")
        what = (
            f"not found in {here} or in the installed packages" if missing else f"{type(wrong).__name__}: {wrong}{_where(wrong)}"
        )
        raise Unreadable(f"module {module} cannot be imported: {what}") from wrong
    finally:
        if here in sys.path:
            sys.path.remove(here)
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as wrong:
            known = [known for known in dir(found) if not known.startswith("__")]
            raise Unreadable(f"{module}:{name}: no attribute {part!r}{meant(part, known)}") from wrong
    return found


def _where(wrong: BaseException) -> str:
    """The user's own line, where one can be told: the last that is neither ours nor the import system's."""
    ours = str(Path(__file__).parent.parent.parent)
    frames = [frame for frame in extract_tb(wrong.__traceback__) if not frame.filename.startswith((ours, "<"))]
    own = [frame for frame in frames if Path(frame.filename).parent != Path(importlib.__file__).parent]
    return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""


def meant(name: str, known: list[str] | tuple[str, ...], /) -> str:
    """What somebody who wrote `name` may have meant, in brackets; empty where nothing is near."""
    close = get_close_matches(name, known, 1)
    return f" (did you mean {close[0]!r}?)" if close else ""
