"""Group: a consumer group of a stream: read, taken over from the dead, acknowledged. The only file that speaks to Redis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .entry import Entry

if TYPE_CHECKING:
    import redis

T = TypeVar("T")
START = "0"
"""A group that is not there is made from the beginning: what was handled already is known, what was not is not lost."""
FEARED = 2
"""Deliveries, to consumers that have stored nothing of it."""


class Group:
    """One consumer of a group. Belongs to one thread."""

    def __init__(self, client: redis.Redis, stream: str, group: str, consumer: str) -> None:
        self.client, self.stream, self.group, self.consumer = client, stream, group, consumer
        self._cursor = ""
        self.acked = True
        """Whether the server may know how to free only what is acknowledged."""

    def read(self, count: int, block: float, /) -> list[Entry]:
        """New entries, waiting for them so long."""
        wait = int(block * 1000) or None  # 0 would be for ever
        found = self._there(
            lambda: self.client.xreadgroup(self.group, self.consumer, {self.stream: ">"}, count=count, block=wait)
        )
        return [entry for _, entries in _pairs(found) for entry in _entries(entries)]

    def take_over(self, count: int, idle: float, /) -> list[Entry]:
        """Entries that somebody read so long ago and never acknowledged. The cursor is kept: the next time goes on from it."""
        start = f"({self._cursor}" if self._cursor else "-"
        left: Any = self._there(
            lambda: self.client.xpending_range(self.stream, self.group, start, "+", count, idle=int(idle * 1000))
        )
        self._cursor = _words(left[-1]["message_id"]) if len(left) >= count else ""
        return self._claimed(left, idle)

    def inherit(self, count: int, gone: Callable[[str], bool], /) -> list[Entry]:
        """Entries of consumers that are certainly gone: nobody has to wait until these have been idle for long enough."""
        consumers: Any = self._there(lambda: self.client.xinfo_consumers(self.stream, self.group))
        for one in consumers:
            name = _words(one["name"])
            if one["pending"] and name != self.consumer and gone(name):
                left: Any = self.client.xpending_range(self.stream, self.group, "-", "+", count, consumername=name)
                found = self._claimed(left, 0.0)
                if found:
                    return found
        return []

    def _claimed(self, left: Sequence[Any], idle: float) -> list[Entry]:
        """Make these ours, which others have left.

        XAUTOCLAIM would strike off what was trimmed, before anybody could write down that it was (or, in Redis 6.2, not even say
        which that is): so each is looked for first. What is not there stays pending until it is acknowledged.
        """
        owners = {_words(one["message_id"]): (_words(one["consumer"]), int(one["times_delivered"])) for one in left}
        looks = self.client.pipeline(transaction=False)
        for each in owners:
            looks.xrange(self.stream, each, each)
        there: list[Any] = [each for each, entry in zip(owners, looks.execute(), strict=True) if entry] if owners else []
        claimed: Any = self.client.xclaim(self.stream, self.group, self.consumer, int(idle * 1000), there) if there else []
        found = _entries([one for one in claimed if one is not None and one[0] is not None])
        feared = {each for each, (owner, times) in owners.items() if times >= FEARED and owner != self.consumer}
        lost = [Entry(each, None) for each in owners.keys() - set(there) if self._owner(each) == owners[each][0]]
        return [*(one._replace(feared=one.id in feared) for one in found), *sorted(lost)]

    def _owner(self, entry_id: str) -> str | None:
        """Who has this entry now; None: nobody, it was acknowledged meanwhile."""
        found: Any = self.client.xpending_range(self.stream, self.group, entry_id, entry_id, 1)
        return _words(found[0]["consumer"]) if found else None

    def acknowledge(self, ids: Sequence[str], /) -> None:
        """These are stored: nobody else needs to have them."""
        if ids:
            self.client.xack(self.stream, self.group, *ids)

    def trim(self) -> int:
        """Free what every group of the stream has acknowledged; how many entries."""
        groups: Any = self.client.xinfo_groups(self.stream)
        firsts = [self._needed(_words(one["name"]), _words(one["last-delivered-id"])) for one in groups]
        if not firsts:
            return 0
        return self._freed(_id(min(firsts)))

    def _freed(self, before: str) -> int:
        """Free what is older. From Redis 8.2 on the server itself sees to it that no group needs any of it.

        Else a group that was made since we looked would lose what it came for.
        """
        from redis.exceptions import ResponseError  # noqa: PLC0415

        if self.acked:
            try:
                trim: Callable[..., Any] = self.client.execute_command  # by its name: older clients have no word for it
                return int(trim("XTRIM", self.stream, "MINID", "~", before, "ACKED"))
            except ResponseError as error:
                if "syntax" not in str(error):
                    raise
                self.acked = False  # an older one, or Valkey: it is asked once
        return int(self.client.xtrim(self.stream, minid=before, approximate=True))

    def _needed(self, group: str, delivered: str) -> tuple[int, int]:
        """The first entry that a group still needs: its oldest pending one, else the next after the last it was given."""
        pending: Any = self.client.xpending(self.stream, group)
        first = pending["min"]
        if first is not None:
            return _numbers(_words(first))
        left, right = _numbers(delivered)
        return left, right + 1

    def forget(self, idle: float, /) -> list[str]:
        """Take consumers off the group that were not seen for so long and have nothing pending, which would be gone with them."""
        found: Any = self.client.xinfo_consumers(self.stream, self.group)
        names = {_words(one["name"]) for one in found if not one["pending"] and one["idle"] > idle * 1000}
        gone = sorted(names - {self.consumer})
        for name in gone:
            self.client.xgroup_delconsumer(self.stream, self.group, name)
        return gone

    def hang_up(self) -> None:
        """Let go of the connection: after a failover it may be to a server that only repeats what another says."""
        self.client.connection_pool.disconnect()

    def _there(self, act: Callable[[], T]) -> T:
        """Do it; where the group is gone, or the stream, make it and do it again."""
        from redis.exceptions import ResponseError  # noqa: PLC0415

        try:
            return act()
        except ResponseError as error:
            if not str(error).startswith("NOGROUP") and "no such key" not in str(error):
                raise
        self.make()
        return act()

    def make(self) -> None:
        """Make the group, and the stream, where they are not there."""
        from redis.exceptions import ResponseError  # noqa: PLC0415

        self._cursor = ""
        try:
            self.client.xgroup_create(self.stream, self.group, id=START, mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise


def _pairs(found: Any) -> Any:
    if not found:
        return []
    if not isinstance(found, dict):
        return found
    # In the third version of the protocol it is a mapping, and to older clients a list in a list.
    return [(name, some[0] if some and isinstance(some[0], list) else some) for name, some in found.items()]


def _entries(found: Sequence[tuple[Any, Any]]) -> list[Entry]:
    rows = [
        (id_.decode() if isinstance(id_, bytes) else str(id_),
         fields if fields is None or isinstance(fields, dict) else dict(fields), False)
        for id_, fields in found
    ]  # fmt: skip
    return list(map(Entry._make, rows))


def _words(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _numbers(entry_id: str) -> tuple[int, int]:
    left, _, right = entry_id.partition("-")
    return int(left), int(right or 0)


def _id(numbers: tuple[int, int]) -> str:
    return f"{numbers[0]}-{numbers[1]}"
