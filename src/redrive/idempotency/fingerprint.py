"""Fingerprint: 32 bytes of a request, which must be the same when the key is the same."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping
from json.encoder import encode_basestring as quote
from typing import Any

from ..core.codec import Codec, codec
from ..core.codec.misfit import misfit

_ANY = codec(Any)


def fingerprint(request: object, /) -> bytes | None:
    """Return the fingerprint of a request: bytes, JSON values, or any value with a codec.

    None has no fingerprint, and is not compared.
    """
    if request is None:
        return None
    if isinstance(request, (bytes, bytearray, memoryview)):
        return hashlib.sha256(request).digest()
    try:
        jsonable = _ANY.dump(request)
    except TypeError:
        jsonable = codec(type(request)).dump(request)
    return digest(jsonable)


_encoder = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True
)


def digest(jsonable: Any, /) -> bytes:
    """Return the hash of JSON values. The order of mappings does not matter."""
    return _hash(_encoder.encode(jsonable))


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class ArgumentFingerprint:
    """Fingerprints of the arguments of one function, each by its annotation.

    An argument that equals its default is left out, so that a parameter that is added later does
    not change the fingerprints of old requests. Immutable after `prepare`.
    """

    __slots__ = ("_codecs", "_defaults", "_positional_names", "_signature", "_text_prefixes")

    def __init__(self, signature: inspect.Signature) -> None:
        self._signature = signature
        parameters = signature.parameters.values()
        self._defaults = {
            parameter.name: parameter.default
            for parameter in parameters
            if parameter.default is not parameter.empty
        }
        is_simple = all(
            parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in parameters
        )
        self._positional_names = tuple(signature.parameters) if is_simple else None
        self._codecs: dict[str, Codec] = {}
        self._text_prefixes: list[tuple[str, str]] | None = None
        """If all arguments are texts: their names, and the JSON before each. It halves the time."""

    def prepare(self, function_name: str, hints: Mapping[str, Any], /) -> None:
        """Find the codec of each argument.

        Raises:
            TypeError: An argument has no codec.
        """
        for place, (name, parameter) in enumerate(self._signature.parameters.items()):
            if place == 0 and name in ("self", "cls"):
                continue  # the object of a method is not part of the request
            hint = hints.get(name, Any)
            if parameter.kind is parameter.VAR_POSITIONAL:
                hint = tuple.__class_getitem__((hint, ...))
            elif parameter.kind is parameter.VAR_KEYWORD:
                hint = dict.__class_getitem__((str, hint))
            try:
                self._codecs[name] = codec(hint)
            except TypeError as error:
                raise TypeError(
                    f"{function_name}: argument {name!r} cannot be compared: {error}; or pass "
                    "request= to choose what is compared"
                ) from None
        if not self._defaults and all(hints.get(name) is str for name in self._codecs):
            self._text_prefixes = [(name, f"{quote(name)}:") for name in sorted(self._codecs)]

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], /) -> dict[str, Any]:
        """Return the arguments by name, with defaults.

        Raises TypeError as the call itself would.
        """
        names = self._positional_names
        if names is not None and not kwargs and len(args) == len(names):
            return dict(zip(names, args, strict=True))  # 10 times as fast as `Signature.bind`
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    def digest(self, arguments: Mapping[str, Any], /) -> bytes:
        """Return the fingerprint of a call.

        Raises:
            TypeError: An argument does not have its annotated type.
        """
        if self._text_prefixes is not None:
            try:
                pairs = [prefix + quote(arguments[name]) for name, prefix in self._text_prefixes]
                return _hash("{" + ",".join(pairs) + "}")
            except TypeError:
                pass  # an argument is not text; the error is raised below
        jsonable = {}
        defaults = self._defaults
        for name, argument_codec in self._codecs.items():
            value = arguments[name]
            if name in defaults and _is_default(value, defaults[name]):
                continue
            try:
                jsonable[name] = argument_codec.dump(value)
            except (TypeError, ValueError) as error:
                raise TypeError(f"argument {name!r}: {misfit(error)}") from None
        return digest(jsonable)


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))
