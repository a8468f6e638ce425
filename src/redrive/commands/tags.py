"""Tags of a command: the arguments by which its jobs are found."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from datetime import date, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from ..core.callables import qualified_name
from ..journal.redaction.secrets import is_secret
from ..ledger.tags import MAX_TAGS, check_tag_name

RESERVED_NAMES = frozenset(
    """correlation error id job_id key kind since state tag tenant text type until
    worker""".split()
)
"""Words of a search that are not tags."""


class TagReader:
    """Reads the tags of a call from its arguments. Immutable: anything may share it.

    Args:
        command: Name of the command.
        fn: The function.
        names: Names of parameters, or of their attributes, such as `"order.id"`.
        skip: Number of leading parameters that are not stored.

    Raises:
        TypeError: `names` is a text, not a collection of them.
        ValueError: A name is not a parameter, or the name of a secret.
    """

    __slots__ = ("_command", "_paths", "_signature")

    def __init__(
        self, command: str, fn: Callable[..., Any], names: Collection[str], /, *, skip: int
    ) -> None:
        is_collection = isinstance(names, Collection) and not isinstance(names, str)
        if not is_collection or not all(isinstance(name, str) for name in names):
            raise TypeError(
                f"{command}: tags= must be names of parameters, such as ('order_id',), "
                f"not {names!r:.60}"
            )
        if len(names) > MAX_TAGS:
            raise ValueError(f"{command}: tags= has {len(names)} names; use at most {MAX_TAGS}")
        signature = inspect.signature(fn)
        parameters = list(signature.parameters.values())[skip:]
        self._command = command
        self._signature = signature.replace(parameters=parameters)
        self._paths = {name: tuple(name.split(".")) for name in names}
        known = [each.name for each in parameters if each.kind not in (2, 4)]
        for name, path in self._paths.items():
            check_tag_name(name)
            if path[0] not in known:
                listed = ", ".join(known) or "no parameters"
                raise ValueError(
                    f"{command}: tags= names {name!r}, but {qualified_name(fn)} has {listed}"
                )
            if is_secret(name):
                raise ValueError(
                    f"{command}: tags= names {name!r}, which is a secret; "
                    "a tag is stored as text, so use another argument"
                )
            if name in RESERVED_NAMES:
                raise ValueError(
                    f"{command}: tags= names {name!r}, which is a word of every search; "
                    "rename the parameter"
                )

    def read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], /) -> dict[str, str] | None:
        """Return the tags of a call, by name. None if it has none.

        Raises:
            TypeError: A value is not text, a number or another simple value.
        """
        if not self._paths:
            return None
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        tags = {}
        for name, (parameter, *attributes) in self._paths.items():
            value = bound.arguments[parameter]
            for attribute in attributes:
                value = getattr(value, attribute, None)
            if isinstance(value, Enum):
                value = value.value
            if value is not None:
                tags[name] = self._text(name, value)
        return tags or None

    def _text(self, name: str, value: object) -> str:
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (int, float, Decimal, UUID, PurePath)):
            return str(value)
        if isinstance(value, (date, time)):
            return value.isoformat()
        raise TypeError(
            f"{self._command}: the tag {name!r} is a {type(value).__name__}; "
            "name an attribute that is text or a number, such as 'order.id'"
        )
