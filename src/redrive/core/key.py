"""Key: the identity of a piece of work. Equal keys are the same work."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

SHAPE = "<domain>:<user>:<entity>:<operation>:<version>"
MAX_HEADER = 255
"""Characters of a key that servers take in a header, Redrive's own middleware among them."""
_PLAIN = frozenset(chr(code) for code in range(0x21, 0x7F)) - set('",;\\')


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
            _check(name, getattr(self, name))
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
        return cls(_bare(domain), _bare(user), _bare(entity), ":".join(operation), _bare(version))

    def step(self, operation: str, /) -> Self:
        """Return the key of a part of this work.

        Args:
            operation: Name of the part. The new operation is `<this operation>.<operation>`.

        Returns:
            A key with the same domain, user, entity and version.
        """
        _check("operation", operation)
        return replace(self, operation=f"{self.operation}.{operation}")

    def __str__(self) -> str:
        return ":".join((_safe(self.domain), _safe(self.user), _safe(self.entity), self.operation, _safe(self.version)))


KeyLike: TypeAlias = Key | str
KeyOf: TypeAlias = str | Callable[..., KeyLike]
"""A template over the function's parameters ("billing:{order.user}:{order.id}:charge:v1"), or a function of them."""


class Template:
    """How a function's arguments become its key. Checked when the function is decorated, not at three in the morning."""

    __slots__ = ("_fields", "_signature", "text")

    def __init__(self, text: str, signature: inspect.Signature) -> None:
        self.text = text
        self._signature = signature
        # Taken apart once: keys are made at every call.
        self._fields = [(literal, tuple(field.split(".")) if field else ()) for literal, field, _, _ in _pieces(text)]

    @classmethod
    def over(cls, text: str, fn: Callable[..., Any], /, *, skip: int = 0) -> Self:
        """The template `text` over the parameters of `fn`, the first `skip` of them left out."""
        if not isinstance(text, str):
            raise TypeError(f"a key template must be text of the form {SHAPE}, not {type(text).__name__}")
        names = _names(text)
        example = "".join(literal + ("" if field is None else "x") for literal, field, _, _ in _pieces(text))
        try:
            Key.parse(example)
        except ValueError as wrong:
            raise ValueError(f"key template {text!r}: {str(wrong).replace(repr(example), 'it')}") from None
        signature = inspect.signature(fn)
        known = list(signature.parameters.values())[skip:]
        for name in names:
            if name not in {parameter.name for parameter in known}:
                there = ", ".join(parameter.name for parameter in known) or "no parameters"
                raise ValueError(f"key template {text!r} names {name!r}, but {getattr(fn, '__qualname__', fn)} has {there}")
        return cls(text, signature.replace(parameters=known))

    def key(self, args: tuple[object, ...], kwargs: Mapping[str, object], /) -> Key:
        """The key of a call with these arguments."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return Key.parse(self.filled(bound.arguments))

    def filled(self, arguments: Mapping[str, Any], /) -> str:
        """The text of the key, from all arguments by name, defaults included."""
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
                raise TypeError(f"key template {self.text!r}: {{{'.'.join(names)}}} cannot be read from {value!r:.100}") from None
            if type(value) is not str:
                self._check(".".join(names), value)
                value = str(value)
            pieces.append(_safe(value))
        return "".join(pieces)

    def _check(self, field: str, value: Any) -> None:
        if value is None:
            raise ValueError(
                f"key template {self.text!r}: {{{field}}} is None, so different work would share one key; pass a value"
            )
        kind: Any = type(value)
        if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
            raise TypeError(
                f"key template {self.text!r}: {{{field}}} is {value!r}, which has no stable text, "
                f"so every call would get a new key; use an id"
            )


def header_text(key: object, /) -> str:
    """A key as a header can carry it: percent-encoded where it must be, a digest where it is longer than servers take."""
    text = header_safe(str(key))
    if len(text) <= MAX_HEADER:
        return text
    from hashlib import sha256  # noqa: PLC0415  # 2 ms that a program without long keys need not pay

    return sha256(text.encode()).hexdigest()


def header_safe(text: str, /) -> str:
    """What a header can hold; all else as in a URL."""
    if _PLAIN.issuperset(text):
        return text
    return "".join(c if c in _PLAIN else "".join(f"%{byte:02X}" for byte in c.encode("utf-8", "surrogatepass")) for c in text)


def _pieces(text: str) -> Iterable[tuple[str, str | None, str | None, str | None]]:
    from string import Formatter  # noqa: PLC0415  # only for those who have templates

    try:
        return list(Formatter().parse(text))
    except ValueError as wrong:
        raise ValueError(f"key template {text!r}: {wrong}") from None


def _names(text: str) -> list[str]:
    names = []
    for _, field, spec, conversion in _pieces(text):
        if field is None:
            continue
        if spec or conversion or not all(name.isidentifier() for name in field.split(".")):
            written = field + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
            raise ValueError(f"key template {text!r}: write {{name}} or {{name.attribute}}, not {{{written}}}")
        names.append(field.partition(".")[0])
    return names


def _check(name: str, part: object) -> None:
    if not isinstance(part, str):
        raise TypeError(f"key part {name!r} must be text, not {type(part).__name__}: {part!r}")
    if not part and name != "user":
        raise ValueError(f"key part {name!r} is empty; only 'user' may be empty")
    if not part.isprintable():
        raise ValueError(f"key part {name!r} has a character that cannot be printed: {part!r}")


def _safe(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A")


def _bare(part: str) -> str:
    return part.replace("%3A", ":").replace("%25", "%")
