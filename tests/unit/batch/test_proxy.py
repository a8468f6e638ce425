"""The sender proxy: it behaves like the sender except for one method."""

from __future__ import annotations

import abc
import asyncio
import copy
import inspect
import pickle
import weakref
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable
from unittest.mock import MagicMock

import pytest

from redrive.batch import Report, retrying
from redrive.batch.proxy import SenderProxy
from redrive.testing import instant
from tests.unit.batch.world import AsyncSender, Script, Sender, Store, Uploader, partial, success


@runtime_checkable
class WithData(Protocol):
    """A protocol with an attribute and a property."""

    name: str

    @property
    def size(self) -> int: ...
    def upload_pending_tiles(self, request: str) -> Report: ...


class Slotted:
    """No __dict__ at all."""

    __slots__ = ("name",)

    def __init__(self) -> None:
        self.name = "slotted"

    @property
    def size(self) -> int:
        return len(self.name)

    @classmethod
    def made(cls) -> str:
        return cls.__name__

    @staticmethod
    def fixed() -> int:
        return 7

    def upload_pending_tiles(self, request: str) -> Report:
        """Send them."""
        return success(request)


@pytest.mark.req("B-1")
@pytest.mark.parametrize("kind", [Sender, AsyncSender])
def test_proxy_is_an_instance_of_the_protocol(kind: type) -> None:
    sender = retrying(kind(Store(), [], lambda *_: ""), items=Store())
    assert isinstance(sender, Uploader)
    assert isinstance(sender, kind)
    assert issubclass(type(sender), SenderProxy)
    assert not isinstance(retrying(Script(), items=Store()), Uploader)  # it has no confirm_flight_state


@pytest.mark.req("B-1")
def test_protocol_with_another_method_name_and_data_members() -> None:
    inner = Slotted()
    sender = retrying(inner, items=Store(), method="upload_pending_tiles")
    assert isinstance(sender, WithData)
    assert (sender.name, sender.size, sender.made(), sender.fixed()) == ("slotted", 7, "Slotted", 7)
    sender.name = "other"
    assert (inner.name, sender.size) == ("other", 5)
    del sender.name
    assert not hasattr(sender, "name")
    with pytest.raises(AttributeError):
        sender.nothing = 1  # type: ignore[attr-defined]
    assert sender.upload_pending_tiles("t").outcome == "success"
    assert inspect.signature(sender.upload_pending_tiles) == inspect.signature(inner.upload_pending_tiles)
    assert sender.upload_pending_tiles.__doc__ == "Send them."
    assert type(sender).made() == "Slotted"


@pytest.mark.req("B-9")
def test_other_methods_are_forwarded_to_the_sender() -> None:
    inner = Sender(Store(), [], lambda *_: "")
    sender = retrying(inner, items=Store())
    assert sender.confirm_flight_state == inner.confirm_flight_state
    inner.later = "added"  # type: ignore[attr-defined]
    assert sender.later == "added"  # type: ignore[attr-defined]
    sender.more = 1  # type: ignore[attr-defined]
    assert inner.more == 1  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="'Sender' object has no attribute 'nowhere'"):
        _ = sender.nowhere  # type: ignore[attr-defined]
    assert dir(sender) == dir(inner)
    assert repr(sender) == f"<retrying {inner!r}>"
    assert inspect.iscoroutinefunction(retrying(AsyncSender(Store(), [], lambda *_: ""), items=Store()).send_pending)
    assert weakref.ref(sender)() is sender
    assert copy.copy(sender).confirm_flight_state()
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(sender)


class Abstract(abc.ABC):
    @abc.abstractmethod
    def send_pending(self) -> Report: ...


@dataclass
class Managed(Abstract):
    """A data class, a context manager of both kinds, with a length, callable."""

    log: list[str] = field(default_factory=list)

    def send_pending(self) -> Report:
        self.log.append("send")
        return partial(a="", b="no") if len(self.log) == 2 else success("b")

    def __enter__(self) -> Managed:
        self.log.append("enter")
        return self

    def __exit__(self, *_: object) -> None:
        self.log.append("exit")

    async def __aenter__(self) -> Managed:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.log.append("aexit")

    def __len__(self) -> int:
        return len(self.log)

    def __call__(self, number: int) -> int:
        return number + 1


def test_special_methods_and_context_managers_are_forwarded() -> None:
    inner = Managed()
    sender = retrying(inner, items=Store())
    with instant(), sender as entered:
        assert entered is sender  # not the bare one
        assert entered.send_pending().retry_count == 1
    assert inner.log == ["enter", "send", "send", "exit"]
    assert (len(sender), sender(1), bool(sender)) == (4, 2, True)
    assert isinstance(sender, Abstract)
    assert sender == inner
    with pytest.raises(TypeError, match="unhashable"):
        hash(sender)

    async def through() -> Any:
        async with sender as entered:
            return entered

    assert asyncio.run(through()) is sender
    assert inner.log[-1] == "aexit"


class Two:
    """Two methods that send."""

    def tiles(self) -> Report:
        return success("t")

    def logs(self) -> Report:
        return partial(a="", b="no")


@pytest.mark.req("C-7")
def test_a_method_is_wrapped_only_once() -> None:
    first = retrying(Two(), items=Store(), method="tiles")
    with pytest.raises(TypeError, match="retries tiles already: two layers around one sender would multiply"):
        retrying(first, items=Store(), method="tiles")
    both = retrying(first, items=Store(), method="logs")
    with instant():
        assert (both.tiles().outcome, both.logs().retry_count) == ("success", 3)
    assert isinstance(both, Two)


def test_a_mock_can_be_a_sender() -> None:
    mock = MagicMock()
    mock.send_pending.side_effect = [partial(a="", b="no"), success("b")]
    with instant():
        assert retrying(mock, items=Store()).send_pending("f-1").outcome == "success"
    assert mock.send_pending.call_args_list[1].args == ("f-1",)


def test_the_senders_method_is_looked_up_at_each_call() -> None:
    inner = Sender(Store(), [], lambda *_: "")
    sender = retrying(inner, items=Store())
    inner.send_pending = lambda flight="f": success(flight)  # type: ignore[method-assign]
    assert sender.send_pending("x") == success("x")
