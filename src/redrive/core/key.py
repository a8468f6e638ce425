"""Key: the idempotency key of a piece of work."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from string import Formatter
from typing import Any, Self, TypeAlias

from .callables import function_name

SHAPE = "<domain>:<user>:<entity>:<operation>:<version>"
MAX_HEADER_CHARS = 255
"""Length of a key in a header that servers accept, among them Redrive's middleware."""
_HEADER_CHARS = frozenset(chr(code) for code in range(0x21, 0x7F)) - set('",;\\')


@dataclass(frozen=True, slots=True)
class Key:
    """An idempotency key with five parts: `<domain>:<user>:<entity>:<operation>:<version>`.

    Equal keys identify the same work. `:` and `%` inside a part are escaped. Only the user may be
    empty.

    Immutable: threads, event loops and forked children may share one.

    Args:
        domain: Part of the product, such as `"billing"`.
        user: Id of the user. It may be empty.
        entity: Id of the object, such as an order number.
        operation: Name of the operation. It may have several parts: `module:resume`.
        version: Version of the operation. Change it to run the work again.

    Raises:
        ValueError: A part is empty or not printable.
    """

    domain: str
    user: str
    entity: str
    operation: str
    version: str = "v1"

    def __post_init__(self) -> None:
        for name in ("domain", "user", "entity", "operation", "version"):
            _check_part(name, getattr(self, name))
        if not all(self.operation.split(":")):
            raise ValueError(f"key part 'operation' has an empty piece: {self.operation!r}")

    @classmethod
    def parse(cls, text: str, /) -> Self:
        """Parse the text of a key.

        Args:
            text: The text, such as `"billing:ann:o-1:charge:v1"`.

        Returns:
            The key.

        Raises:
            ValueError: The text is not a valid key. The message says why.
        """
        if not isinstance(text, str):
            raise TypeError(f"a key must be text of the form {SHAPE}, not {type(text).__name__}")
        parts = text.split(":")
        if len(parts) < 5:
            raise ValueError(f"a key has at least 5 parts, {SHAPE}; {text!r} has {len(parts)}")
        domain, user, entity, *operation, version = parts
        domain, user, entity, version = map(_unescape, (domain, user, entity, version))
        return cls(domain, user, entity, ":".join(operation), version)

    def step(self, operation: str, /) -> Self:
        """Return the key of a part of this work.

        Args:
            operation: Name of the part. The new operation is `<this operation>.<operation>`.

        Returns:
            A key with the same domain, user, entity and version.
        """
        _check_part("operation", operation)
        return replace(self, operation=f"{self.operation}.{operation}")

    def __str__(self) -> str:
        domain, user, entity = map(_escape, (self.domain, self.user, self.entity))
        return ":".join((domain, user, entity, self.operation, _escape(self.version)))


KeyLike: TypeAlias = Key | str
KeyOf: TypeAlias = str | Callable[..., KeyLike]
"""A template ("billing:{order.user}:{order.id}:charge:v1"), or a function of the parameters."""


class Template:
    """Makes keys from the arguments of a function. It is checked when the function is decorated."""

    __slots__ = ("_fields", "_signature", "text")

    def __init__(self, text: str, signature: inspect.Signature) -> None:
        self.text = text
        self._signature = signature
        # Parsed once, because each call makes a key.
        self._fields = [
            (literal, tuple(field.split(".")) if field else ())
            for literal, field, _, _ in _parse_template(text)
        ]

    @classmethod
    def over(cls, text: str, fn: Callable[..., Any], /, *, skip: int = 0) -> Self:
        """Return the template for the parameters of `fn`, without the first `skip` of them."""
        if not isinstance(text, str):
            raise TypeError(
                f"a key template must be text of the form {SHAPE}, not {type(text).__name__}"
            )
        names = _field_names(text)
        example = "".join(
            literal + ("" if field is None else "x")
            for literal, field, _, _ in _parse_template(text)
        )
        try:
            Key.parse(example)
        except ValueError as problem:
            message = str(problem).replace(repr(example), "it")
            raise ValueError(f"key template {text!r}: {message}") from None
        signature = inspect.signature(fn)
        parameters = list(signature.parameters.values())[skip:]
        known_names = [parameter.name for parameter in parameters]
        for name in names:
            if name not in known_names:
                function = function_name(fn)
                listed = ", ".join(known_names) or "no parameters"
                raise ValueError(
                    f"key template {text!r} names {name!r}, but {function} has {listed}"
                )
        return cls(text, signature.replace(parameters=parameters))

    @property
    def is_constant(self) -> bool:
        """Whether it names no parameter, so that all calls have one key."""
        return not any(names for _, names in self._fields)

    def key(self, args: tuple[object, ...], kwargs: Mapping[str, object], /) -> Key:
        """Return the key of a call with these arguments."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return Key.parse(self.key_text(bound.arguments))

    def key_text(self, arguments: Mapping[str, Any], /) -> str:
        """Return the text of the key, from all arguments by name, including defaults."""
        pieces = []
        for literal, names in self._fields:
            pieces.append(literal)
            if not names:
                continue
            value = arguments[names[0]]
            try:
                for attribute in names[1:]:
                    value = getattr(value, attribute)
            except AttributeError:
                field = ".".join(names)
                raise TypeError(
                    f"key template {self.text!r}: {{{field}}} cannot be read from "
                    f"{type(value).__name__}"
                ) from None
            if type(value) is not str:
                self._check_value(".".join(names), value)
                value = str(value)
            pieces.append(_escape(value))
        return "".join(pieces)

    def _check_value(self, field: str, value: Any) -> None:
        if value is None:
            raise ValueError(
                f"key template {self.text!r}: {{{field}}} is None, so different work would share "
                "one key; pass a value"
            )
        kind: Any = type(value)
        if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
            raise TypeError(
                f"key template {self.text!r}: {{{field}}} is a {kind.__name__}, which has no "
                f"stable text, so every call would get a new key; use an id"
            )


def header_text(key: object, /) -> str:
    """Return a key for a header: percent-encoded, or a digest if it is too long."""
    text = header_safe(str(key))
    if len(text) <= MAX_HEADER_CHARS:
        return text
    from hashlib import sha256  # noqa: PLC0415  # 2 ms, rarely used

    return sha256(text.encode()).hexdigest()


def header_safe(text: str, /) -> str:
    """Return a text for a header. Characters that are not allowed in it are percent-encoded."""
    if _HEADER_CHARS.issuperset(text):
        return text
    return "".join(char if char in _HEADER_CHARS else _percent_encode(char) for char in text)


def _percent_encode(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))


def _parse_template(text: str) -> Iterable[tuple[str, str | None, str | None, str | None]]:
    try:
        return list(Formatter().parse(text))
    except ValueError as problem:
        raise ValueError(f"key template {text!r}: {problem}") from None


def _field_names(text: str) -> list[str]:
    names = []
    for _, field, spec, conversion in _parse_template(text):
        if field is None:
            continue
        if spec or conversion or not all(name.isidentifier() for name in field.split(".")):
            written = field
            written += f"!{conversion}" if conversion else ""
            written += f":{spec}" if spec else ""
            raise ValueError(
                f"key template {text!r}: write {{name}} or {{name.attribute}}, not {{{written}}}"
            )
        names.append(field.partition(".")[0])
    return names


def _check_part(name: str, part: object) -> None:
    if not isinstance(part, str):
        raise TypeError(f"key part {name!r} must be text, not {type(part).__name__}: {part!r}")
    if not part and name != "user":
        raise ValueError(f"key part {name!r} is empty; only 'user' may be empty")
    if not part.isprintable():
        raise ValueError(f"key part {name!r} has a character that cannot be printed: {part!r}")


def _escape(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A")


def _unescape(part: str) -> str:
    return part.replace("%3A", ":").replace("%25", "%")
