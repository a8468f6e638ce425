"""SenderProxy: an object that behaves like its sender except for one method.

Each sender gets a class of its own, with an attribute for every name of the sender. Since Python
3.12, `isinstance` with a runtime-checkable protocol looks at the class and ignores `__getattr__`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import getattr_static
from typing import Any

NOT_FORWARDED = frozenset(
    """__class__ __new__ __init__ __init_subclass__ __subclasshook__ __getattribute__ __getattr__
    __setattr__ __delattr__ __dir__ __dict__ __weakref__ __slots__ __module__ __doc__ __qualname__
    __annotations__ __annotate__ __annotate_func__ __annotations_cache__ __repr__ __copy__
    __deepcopy__ __del__ __reduce__ __reduce_ex__ __getstate__ __sizeof__ __abstractmethods__
    __orig_bases__ __parameters__ __class_getitem__ __static_attributes__ __firstlineno__
    __set_name__ __get__ __set__ __delete__""".split()
)
"""Names that belong to an object itself, or to the way its class was made."""


class ForwardedName:
    """A descriptor that reads, sets and deletes a name of the sender."""

    def __init__(self, name: str, sender_class: type) -> None:
        self.name = name
        self.sender_class = sender_class

    def __get__(self, proxy: Any, owner: type | None = None) -> Any:
        if proxy is None:
            return getattr(self.sender_class, self.name)
        return getattr(proxy._redrive_sender, self.name)

    def __set__(self, proxy: Any, value: Any) -> None:
        setattr(proxy._redrive_sender, self.name, value)

    def __delete__(self, proxy: Any) -> None:
        delattr(proxy._redrive_sender, self.name)


class SenderProxy:
    """The base class of all proxies. As safe to share as the sender itself."""

    __slots__ = ("__weakref__", "_redrive_sender")

    def __init__(self, sender: Any) -> None:
        object.__setattr__(self, "_redrive_sender", sender)

    @property  # type: ignore[misc]  # object's can be set as well
    def __class__(self) -> type:
        # For isinstance() with the sender's class, and with classes that it is registered with.
        return self._redrive_sender.__class__  # type: ignore[no-any-return]  # a class of any type

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that the sender got after the proxy was made."""
        return getattr(object.__getattribute__(self, "_redrive_sender"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._redrive_sender, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._redrive_sender, name)

    def __dir__(self) -> list[str]:
        return dir(self._redrive_sender)

    def __copy__(self) -> Any:
        return type(self)(self._redrive_sender)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"{self!r} cannot be pickled or copied in depth, as its store cannot: call "
            "retrying(...) where it is used"
        )

    def __repr__(self) -> str:
        return f"<retrying {self._redrive_sender!r}>"


def make_proxy(sender: Any, method: str, body: Callable[..., Any], /) -> Any:
    """Return a proxy of the sender whose `method` is `body`, a function of the proxy."""
    sender_class = type(sender)
    contents: dict[str, Any] = {
        "_redrive_method": method,
        "__slots__": (),
        "__doc__": sender_class.__doc__,
        "__module__": sender_class.__module__,
    }
    for name in _names_to_forward(sender):
        # A method that is None says that its class does not support it (`__hash__ = None`).
        is_unsupported = getattr_static(sender_class, name, ForwardedName) is None
        contents[name] = None if is_unsupported else ForwardedName(name, sender_class)
    for name, enter in (("__enter__", _enter), ("__aenter__", _aenter)):
        if name in contents:
            contents[name] = enter
    contents[method] = body
    return type(f"Retrying{sender_class.__name__}", (SenderProxy,), contents)(sender)


def is_retrying(sender: object, method: str, /) -> bool:
    """Return whether an object is a proxy that already replaces this method."""
    return bool(getattr_static(type(sender), "_redrive_method", None) == method)


def _names_to_forward(sender: Any) -> Iterator[str]:
    """Yield the names of a sender, without those that it inherits from `object`."""
    sender_class = type(sender)
    class_names = (name for base in sender_class.__mro__ for name in vars(base))
    names_of_object = dir(object)
    for name in dict.fromkeys((*dir(sender), *class_names)):
        if name in NOT_FORWARDED or name.startswith("_redrive_"):
            continue
        own = getattr_static(sender_class, name, None)
        if name in names_of_object and own is getattr_static(object, name, None):
            continue
        if name.startswith("__") and not hasattr(sender_class, name):
            continue  # Python looks up special methods on the class only.
        yield name


def _enter(self: Any) -> Any:
    entered = self._redrive_sender.__enter__()
    return self if entered is self._redrive_sender else entered


async def _aenter(self: Any) -> Any:
    entered = await self._redrive_sender.__aenter__()
    return self if entered is self._redrive_sender else entered
