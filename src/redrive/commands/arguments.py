"""Values that are made from the arguments of a call: tenant, sequence, and tags to find its job."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from datetime import date, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from string import Formatter
from typing import Any, Self
from uuid import UUID

from ..core.callables import qualified_name
from ..core.seconds import real, whole_number
from ..journal.redaction.secrets import is_secret
from ..ledger.jobs.tenants import TenantLimit
from ..ledger.tags import MAX_TAGS, check_tag_name
from ..ledger.validation import MAX_KIND_BYTES, check_name
from .options import CommandOptions

PLAIN_TYPES = (str, int, float, bool, bytes)
"""Annotations of parameters whose attributes are known at registration."""


class ArgumentTemplate:
    """Makes a text from the arguments of a call: `"{user}"`, `"{order.account}"`.

    Immutable: anything may share it.

    Args:
        label: What the text is, with the command, for messages.
        text: The template.
        signature: The parameters of the function.
    """

    __slots__ = ("_fields", "_label", "_signature")

    def __init__(self, label: str, text: str, signature: inspect.Signature) -> None:
        self._label = label
        self._signature = signature
        self._fields = [
            (literal, tuple(field.split(".")) if field else ())
            for literal, field, _, _ in Formatter().parse(text)
        ]

    @classmethod
    def over(cls, label: str, text: object, fn: Callable[..., Any], /, *, skip: int) -> Self:
        """Check a template against the parameters of a function.

        Raises:
            TypeError: The template is not text.
            ValueError: It is not valid, or names something that is not a parameter.
        """
        if not isinstance(text, str):
            raise TypeError(
                f"{label} must be a template such as '{{user}}', not {type(text).__name__}"
            )
        try:
            parts = list(Formatter().parse(text))
        except ValueError as problem:
            raise ValueError(f"{label} {text!r}: {problem}") from None
        signature = inspect.signature(fn)
        parameters = list(signature.parameters.values())[skip:]
        known = [parameter.name for parameter in parameters]
        for _, field, spec, conversion in parts:
            if field is None:
                continue
            if spec or conversion or not all(name.isidentifier() for name in field.split(".")):
                raise ValueError(f"{label} {text!r}: write {{name}} or {{name.attribute}}")
            name = field.partition(".")[0]
            if name not in known:
                listed = ", ".join(known) or "no parameters"
                raise ValueError(
                    f"{label} {text!r} names {name!r}, but {qualified_name(fn)} has {listed}"
                )
            _check_attribute(f"{label} {text!r}", field, fn)
        return cls(label, text, signature.replace(parameters=parameters))

    @property
    def is_constant(self) -> bool:
        """Whether it names no parameter."""
        return not any(names for _, names in self._fields)

    def read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], /) -> str:
        """Return the text of a call.

        Raises:
            ValueError: An argument is None or empty.
            TypeError: An argument does not have the attribute.
        """
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return "".join(
            literal + (self._value(names, bound.arguments) if names else "")
            for literal, names in self._fields
        )

    def _value(self, names: tuple[str, ...], arguments: Mapping[str, Any]) -> str:
        value = arguments[names[0]]
        for name in names[1:]:
            if value is not None and not hasattr(value, name):
                raise TypeError(
                    f"{self._label}: {{{'.'.join(names)}}} cannot be read from "
                    f"{type(value).__name__}, which has no {name!r}"
                )
            value = getattr(value, name, None)
        text = "" if value is None else str(value)
        if not text:
            field = ".".join(names)
            raise ValueError(f"{self._label}: {{{field}}} is {value!r}; pass a value for it")
        return text


def _check_attribute(place: str, field: str, fn: Callable[..., Any]) -> None:
    """Raise ValueError if a field names an attribute that its parameter cannot have."""
    name, _, attributes = field.partition(".")
    attribute = attributes.partition(".")[0]
    if not attribute:
        return
    try:
        hint = typing.get_type_hints(fn).get(name)
    except Exception:  # annotations that cannot be read
        return
    choices = typing.get_args(hint) or (hint,)
    classes = [choice for choice in choices if choice is not type(None)]
    if all(choice in PLAIN_TYPES and not hasattr(choice, attribute) for choice in classes):
        listed = " or ".join(choice.__name__ for choice in classes)
        raise ValueError(
            f"{place}: {{{field}}} cannot be read, because {name!r} is {listed}; write {{{name}}}"
        )


def tenant_template(
    name: str, fn: Callable[..., Any], options: CommandOptions, /
) -> ArgumentTemplate | None:
    """Check `tenant=` of a command."""
    if options.tenant is None:
        return None
    skip = int(options.in_transaction)
    template = ArgumentTemplate.over(f"{name}: tenant=", options.tenant, fn, skip=skip)
    if template.is_constant:
        raise ValueError(
            f"{name}: tenant= {options.tenant!r} names no parameter, so that all jobs have one "
            "tenant; write the parameter in braces, such as '{user}'"
        )
    return template


def sequence_template(
    name: str, fn: Callable[..., Any], options: CommandOptions, /
) -> ArgumentTemplate | None:
    """Check `sequence=` of a command. A constant is one sequence of all jobs."""
    if options.sequence is None:
        return None
    label, text, skip = f"{name}: sequence=", options.sequence, int(options.in_transaction)
    template = ArgumentTemplate.over(label, text, fn, skip=skip)
    if not text:
        raise ValueError(f"{label} is empty; write a template such as '{{user}}', or remove it")
    if template.is_constant:
        check_name(label, text, MAX_KIND_BYTES)
    if text in list(inspect.signature(fn).parameters)[skip:]:
        raise ValueError(
            f"{label} {text!r} is the name of a parameter without braces, so that all jobs have "
            f"one sequence; write '{{{text}}}'"
        )
    return template


def tenant_limit(name: str, options: CommandOptions, /) -> TenantLimit | None:
    """Check the limits of the tenants of a command. None: it has no tenants."""
    concurrency, rate = options.tenant_concurrency, options.tenant_rate
    if options.tenant is None:
        if concurrency is not None or rate is not None:
            raise TypeError(
                f"{name}: tenant_concurrency= and tenant_rate= need tenant=; "
                "pass it, such as tenant='{user}'"
            )
        return None
    if concurrency is not None:
        concurrency = whole_number(f"{name}: tenant_concurrency=", concurrency)
    if rate is not None and (rate := real(f"{name}: tenant_rate=", rate)) <= 0:
        raise ValueError(
            f"{name}: tenant_rate= must be a number of starts per second, above 0: "
            f"{options.tenant_rate!r}"
        )
    return TenantLimit(concurrency, rate)


# --- Tags

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
