"""Senders with scripted responses, and a store in memory that records every call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol, runtime_checkable

import pytest

from redrive.batch import ItemStatus, Report, retrying


class PlainStore:
    """Items in memory, with only the three required methods."""

    def __init__(self, *known: str, counts: dict[str, int] | None = None) -> None:
        self.known = set(known)
        self.counts = dict(counts or {})
        self.gone: dict[str, str] = {}
        self.done: set[str] = set()
        self.increments: list[str] = []

    def increment(self, item_id: str, /) -> int:
        if self.known and item_id not in self.known:
            raise KeyError(item_id)
        self.increments.append(item_id)
        self.counts[item_id] = self.counts.get(item_id, 0) + 1
        return self.counts[item_id]

    def give_up(self, item_id: str, reason: str, /) -> bool:
        if item_id in self.gone:
            return False
        self.gone[item_id] = reason
        return True

    def pending(self, among: Collection[str], /) -> set[str]:
        return set(among) - set(self.gone) - self.done


class Store(PlainStore):
    """A store that also counts rejections in outages."""

    def __init__(self, *known: str, counts: dict[str, int] | None = None) -> None:
        super().__init__(*known, counts=counts)
        self.spared: dict[str, int] = {}

    def spare_many(self, item_ids: Collection[str], /) -> dict[str, int]:
        for item_id in item_ids:
            self.spared[item_id] = self.spared.get(item_id, 0) + 1
        return {item_id: self.spared[item_id] for item_id in item_ids}


class Provider:
    """Sends pending items to a scripted receiver.

    `answer` returns "" to accept an item, or the reason of a rejection.
    """

    def __init__(self, store: PlainStore, ids: Iterable[str], answer: Callable[[str, int], str]) -> None:
        self.store = store
        self.ids = list(ids)
        self.answer = answer
        self.sent: list[list[str]] = []

    def pass_(self) -> Report:
        pending = [item_id for item_id in self.ids if item_id in self.store.pending([item_id])]
        self.sent.append(pending)
        items = []
        for item_id in pending:
            reason = self.answer(item_id, len(self.sent))
            if not reason:
                self.store.done.add(item_id)
            items.append(ItemStatus(item_id, "rejected" if reason else "acknowledged", reason))
        bad = sum(item.status == "rejected" for item in items)
        return Report("success" if not bad else "failure" if bad == len(items) else "partial", items)


class Sender(Provider):
    """A sync sender."""

    def send_pending(self, flight: str = "f") -> Report:
        return self.pass_()

    def confirm_flight_state(self) -> bool:
        return True


class AsyncSender(Provider):
    """An async sender."""

    async def send_pending(self, flight: str = "f") -> Report:
        return self.pass_()

    async def confirm_flight_state(self) -> bool:
        return True


class Script:
    """A sender that returns these reports in turn, and then the last one."""

    def __init__(self, *reports: Any) -> None:
        self.reports = list(reports)
        self.calls = 0

    def send_pending(self, *_args: Any, **_kwargs: Any) -> Any:
        self.calls += 1
        report = self.reports.pop(0) if len(self.reports) > 1 else self.reports[0]
        if isinstance(report, BaseException):
            raise report
        return report


@runtime_checkable
class Uploader(Protocol):
    """The protocol that consumers of a sender use."""

    def send_pending(self, flight: str = "f") -> Report: ...
    def confirm_flight_state(self) -> bool: ...


def partial(**items: str) -> Report:
    """a="" is acknowledged, b="why" is rejected."""
    return Report("partial", [ItemStatus(name, "rejected" if why else "acknowledged", why) for name, why in items.items()])


def success(*ids: str) -> Report:
    return Report("success", [ItemStatus(name, "acknowledged") for name in ids])


SYNC_AND_ASYNC = pytest.mark.parametrize("kind", [Sender, AsyncSender], ids=["sync", "async"])


def send(kind: type, store: PlainStore, ids: list[str], answer: Callable[[str, int], str], **options: Any) -> tuple[Report, Any]:
    """Make one call, sync or async, and return the report and the sender."""
    inner = kind(store, ids, answer)
    sender = retrying(inner, items=store, **options)
    report = asyncio.run(sender.send_pending()) if kind is AsyncSender else sender.send_pending()
    return report, inner
