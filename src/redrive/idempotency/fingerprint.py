"""Fingerprint: what must be the same when the key is the same, as 32 bytes."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping
from json.encoder import encode_basestring as quoted
from typing import Any

from ..core.codec import Codec, codec

_ANY = codec(Any)


def fingerprint(request: object, /) -> bytes | None:
    """Of a request as a caller of `claim` gives it: bytes, JSON, or anything that a codec knows. None: nothing is compared."""
    if request is None:
        return None
    if isinstance(request, (bytes, bytearray, memoryview)):
        return hashlib.sha256(request).digest()
    try:
        plain = _ANY.dump(request)
    except TypeError:
        plain = codec(type(request)).dump(request)
    return digest(plain)


_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)


def digest(plain: Any, /) -> bytes:
    """Of what JSON can hold; in one order, however a mapping was made."""
    return _hashed(_encoder.encode(plain))


def _hashed(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class Arguments:
    """A function's arguments by name, and what of them is compared: all, each as its annotation says. Immutable.

    An argument that equals its default is not compared, so that a parameter added later does not turn old requests into others.
    """

    __slots__ = ("_codecs", "_defaults", "_names", "_signature", "_texts")

    def __init__(self, signature: inspect.Signature) -> None:
        self._signature = signature
        parameters = signature.parameters.values()
        self._defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
        plain = all(each.kind is each.POSITIONAL_OR_KEYWORD for each in parameters)
        self._names = tuple(signature.parameters) if plain else None
        self._codecs: dict[str, Codec] = {}
        self._texts: list[tuple[str, str]] | None = None
        """Names, and how each begins in JSON, where all are texts: most are, and that takes half the time."""

    def compare(self, name: str, hints: Mapping[str, Any], /) -> None:
        """Find out how each argument is compared. TypeError where one cannot be."""
        for at, (given, parameter) in enumerate(self._signature.parameters.items()):
            if at == 0 and given in ("self", "cls"):
                continue  # of a method: not part of what is asked for
            hint = hints.get(given, Any)
            if parameter.kind is parameter.VAR_POSITIONAL:
                hint = tuple.__class_getitem__((hint, ...))
            elif parameter.kind is parameter.VAR_KEYWORD:
                hint = dict.__class_getitem__((str, hint))
            try:
                self._codecs[given] = codec(hint)
            except TypeError as refusal:
                raise TypeError(
                    f"{name}: argument {given!r} cannot be compared: {refusal}; or pass request= to choose what is compared"
                ) from None
        if not self._defaults and all(hints.get(given) is str for given in self._codecs):
            self._texts = [(given, f"{quoted(given)}:") for given in sorted(self._codecs)]

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], /) -> dict[str, Any]:
        """By name, defaults included. TypeError as the call itself would raise."""
        names = self._names
        if names is not None and not kwargs and len(args) == len(names):
            return dict(zip(names, args, strict=True))  # a tenth of what `bind` takes
        found = self._signature.bind(*args, **kwargs)
        found.apply_defaults()
        return found.arguments

    def digest(self, arguments: Mapping[str, Any], /) -> bytes:
        """Of one call. TypeError where an argument is not what its annotation says."""
        if self._texts is not None:
            try:
                return _hashed("{" + ",".join([begins + quoted(arguments[name]) for name, begins in self._texts]) + "}")
            except TypeError:
                pass  # not text: said below
        plain = {}
        defaults = self._defaults
        for name, kept in self._codecs.items():
            value = arguments[name]
            if name in defaults and _same(value, defaults[name]):
                continue
            try:
                plain[name] = kept.dump(value)
            except (TypeError, ValueError) as refusal:
                raise TypeError(f"argument {name!r}: {refusal}") from None
        return digest(plain)


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))
