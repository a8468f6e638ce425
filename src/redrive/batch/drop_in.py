"""DropIn: an object that is its sender in every respect but one method.

A class is made for each sender, with a name on it for everything that the sender has: from Python 3.12 on, `isinstance` with a
runtime-checkable protocol looks at the class, and no longer asks `__getattr__`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import getattr_static
from typing import Any

OURS = frozenset(
    """__class__ __new__ __init__ __init_subclass__ __subclasshook__ __getattribute__ __getattr__ __setattr__ __delattr__ __dir__
    __dict__ __weakref__ __slots__ __module__ __doc__ __qualname__ __annotations__ __annotate__ __annotate_func__
    __annotations_cache__ __repr__ __copy__ __deepcopy__ __del__ __reduce__ __reduce_ex__ __getstate__ __sizeof__
    __abstractmethods__ __orig_bases__ __parameters__ __class_getitem__ __static_attributes__ __firstlineno__ __set_name__ __get__
    __set__ __delete__""".split()
)
"""What belongs to an object itself, or to how it was made; never taken over."""


class Own:
    """A name that is the sender's own: read, set and deleted there. Belongs to the class of one drop-in."""

    def __init__(self, name: str, of: type) -> None:
        self.name = name
        self.of = of

    def __get__(self, drop_in: Any, owner: type | None = None) -> Any:
        return getattr(self.of, self.name) if drop_in is None else getattr(drop_in._redrive_sender, self.name)

    def __set__(self, drop_in: Any, value: Any) -> None:
        setattr(drop_in._redrive_sender, self.name, value)

    def __delete__(self, drop_in: Any) -> None:
        delattr(drop_in._redrive_sender, self.name)


class DropIn:
    """What all of them have. As safe to share as the sender itself."""

    __slots__ = ("__weakref__", "_redrive_sender")

    def __init__(self, sender: Any) -> None:
        object.__setattr__(self, "_redrive_sender", sender)

    @property  # type: ignore[misc]  # object's can be set as well
    def __class__(self) -> type:
        # Also where somebody asks for the sender's own class, or an abstract one that it was registered with.
        return self._redrive_sender.__class__  # type: ignore[no-any-return]  # whatever it says it is

    def __getattr__(self, name: str) -> Any:
        """What the sender got only later."""
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
            f"{self!r} cannot be pickled or copied in depth, as its store cannot: call retrying(...) where it is used"
        )

    def __repr__(self) -> str:
        return f"<retrying {self._redrive_sender!r}>"


def drop_in(sender: Any, method: str, body: Callable[..., Any], /) -> Any:
    """An object that is the sender, but for this method. body: what it is instead, as a function of the drop-in."""
    kind = type(sender)
    contents: dict[str, Any] = {
        "_redrive_method": method,
        "__slots__": (),
        "__doc__": kind.__doc__,
        "__module__": kind.__module__,
    }
    for name in _names(sender):
        contents[name] = None if getattr_static(kind, name, Own) is None else Own(name, kind)
    for name, entered in (("__enter__", _enter), ("__aenter__", _aenter)):
        if name in contents:
            contents[name] = entered
    contents[method] = body
    return type(f"Retrying{kind.__name__}", (DropIn,), contents)(sender)


def retries(sender: object, method: str, /) -> bool:
    """Whether this method of it is a drop-in's already."""
    return bool(getattr_static(type(sender), "_redrive_method", None) == method)


def _names(sender: Any) -> Iterator[str]:
    """All names of a sender that are its own, and not every object's."""
    everybody = dir(object)
    for name in dict.fromkeys((*dir(sender), *(name for kind in type(sender).__mro__ for name in vars(kind)))):
        if name in OURS or name.startswith("_redrive_"):
            continue
        if name in everybody and getattr_static(type(sender), name, None) is getattr_static(object, name, None):
            continue
        if name.startswith("__") and not hasattr(type(sender), name):
            continue  # special methods count on the class only
        yield name


def _enter(self: Any) -> Any:
    entered = self._redrive_sender.__enter__()
    return self if entered is self._redrive_sender else entered


async def _aenter(self: Any) -> Any:
    entered = await self._redrive_sender.__aenter__()
    return self if entered is self._redrive_sender else entered
