"""App: the root that holds the ledger and what is registered to work from it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..core.key import Key, KeyOf
from ..core.seconds import Seconds
from ..journal.bus import subscribe
from ..storage.registry import Registry as Stores
from ..storage.registry import registry
from .extracting import Extracting
from .idempotent import Idempotent
from .listening import Listening

if TYPE_CHECKING:
    from ..batch.ledger_items import LedgerItems
    from ..journal.record import Sink
    from ..ledger.ledger import Ledger
    from ..ledger.spill import LeaveBehind
    from ..messages.source import Source
    from ..worker.chore import Chore
    from ..worker.kind import Kind
    from ..worker.parking import Parking
    from ..worker.worker import Worker


class App(Listening, Idempotent, Extracting):
    """Holds the ledger, the registrations and the settings. Making one opens nothing: no file, socket or thread. Context manager.

    Threads and event loops may share it. A forked child may go on using it, and gets connections of its own.
    """

    def __init__(
        self, ledger: str | Ledger | None = None, /, *, migrate: bool | None = None, include: Sequence[str] = (),
        stores: Stores | Mapping[str, Any] | None = None, sources: Sequence[Source] = (), secrets: Collection[str] = (),
        parking: Parking | None = None, keep: Seconds | None = None, journal: Sequence[Sink] = (),
    ) -> None:  # fmt: skip
        """ledger: a URL, or an open one (default: REDRIVE_LEDGER, else what redrive.toml says, else sqlite:///redrive.db).

        migrate: make the tables, or bring them up to this code, at first use. Default: on SQLite yes, since the file is the
        program's own; on Postgres no: a schema that is missing or old is refused, with the command that makes it.
        include: modules with registrations, imported when a worker, the console or the CLI starts.
        stores: where files are, by name: {"raw": {"type": "local", "options": {"root": "raw"}}}, as a Registry takes them.
        sources: where events come from: [RedisStream("redis://localhost", "shop.events", group="shop")]; read by workers.
        secrets: names of fields that never reach journal, stored errors or console (added to the standard list).
        parking: when its workers take failures for an outage (default: 10 jobs, 9 in 10; off: `Parking.disabled()`).
        keep: how long its workers keep done jobs and events before they are pruned (default: 30 days; for ever: `math.inf`).
        journal: sinks that hear what happens in this process, until the app is closed: [journal.prometheus(), journal.otel()].
        """
        super().__init__(ledger, migrate)
        self._unsubscribe = [subscribe(sink) for sink in journal]
        if isinstance(include, str):
            raise TypeError(f"include is a list of modules, not one text: [{include!r}]")
        if isinstance(secrets, str):
            raise TypeError(f"secrets is a collection of names, not one text: [{secrets!r}]")
        if secrets:
            from ..journal.redaction import hide  # noqa: PLC0415

            hide(*secrets)
            self._hidden = tuple(secrets)
        if sources:
            from ..messages.source import checked  # noqa: PLC0415

            self._sources = checked(sources)
        self._include = tuple(include)
        self._parking, self._keep = parking, keep
        self.stores = registry(stores)

    def close(self) -> None:
        """Close what this app has opened; used again, it opens again. An open ledger that it was given stays open."""
        if self._commands is not None:
            self._commands.close()
        super().close()
        self.stores.close()
        while self._unsubscribe:
            self._unsubscribe.pop()()

    @contextmanager
    def on_ledger(self, ledger: Ledger, /) -> Iterator[None]:
        """On this ledger inside the block, and back on its own after it: for tests. Not while others use the app."""
        with self._lock:
            before, self._ledger, self._keys = (self._ledger, self._keys), ledger, None
        try:
            yield
        finally:
            with self._lock:
                made, (self._ledger, self._keys) = self._keys, before
            if made is not None:
                made.close()
            if self._commands is not None:
                self._commands.close()

    # ---- work ----

    def load(self) -> None:
        """Import the modules of `include`, with their registrations."""
        for module in self._include:
            import_module(module)

    def kinds(self, only: Collection[str] | None = None, /) -> list[Kind]:
        """What its workers know: every kind of job that is registered, or only these. ValueError names one that is not.

        Datasets are no kinds of jobs; `only` may name them too.
        """
        self.load()
        datasets = () if self._datasets is None else tuple(one.name for one in self._datasets)
        if self._inbox is None and not self._sources:
            return self.commands.chosen(only, beside=datasets)
        inbox = self.inbox
        others = [*inbox.kinds, *(kind for source in self._sources for kind in source.kinds(inbox))]
        return self.commands.chosen(only, others, beside=datasets)

    def chores(self, kinds: Sequence[Kind], /) -> list[Chore]:
        """What its workers do beside jobs: schedules of these kinds, sources, and what operators have begun."""
        from ..commands.schedule import Schedule  # noqa: PLC0415  # brings SQLAlchemy
        from ..settings import settings  # noqa: PLC0415
        from ..worker.anchoring import Anchoring  # noqa: PLC0415
        from ..worker.sweeping import Sweeping  # noqa: PLC0415
        from ..worker.upkeep import FOREVER  # noqa: PLC0415
        from ..worker.worker import kept  # noqa: PLC0415

        anchors = Anchoring(self.ledger, settings().worker.anchors)
        found: list[Chore] = [*Schedule.of(self.ledger, self.commands.scheduled, kinds), Sweeping(self.ledger), anchors]
        names = {kind.name for kind in kinds}
        for source in self._sources:
            if {kind.name for kind in source.kinds(self.inbox)} <= names:  # `only=` may have left it out
                found += source.chores(self.inbox)
        if self._inbox is not None and kept(self._keep) != FOREVER:
            from ..messages.forgetting import Forgetting  # noqa: PLC0415

            found.append(Forgetting(self._inbox, kept(self._keep)))
        return found

    def worker(
        self, *, threads: int = 8, only: Collection[str] | None = None, drain: Seconds = 30, name: str | None = None
    ) -> Worker:
        """A worker, to work in the background as long as a block lasts: `with app.worker():`.

        threads: plain functions at once. only: of these kinds only. drain: how long what runs may take to end at the end of the
        block; what has not ended then goes back, uncharged. name: as it is seen by others (default: host and process).
        """
        from ..worker.worker import Worker  # noqa: PLC0415  # brings SQLAlchemy

        kinds = self.kinds(only)
        chores = [*self.chores(kinds), *self.extractions(only, threads, name)]
        return Worker(
            self.ledger, kinds, threads=threads, drain=drain, chores=chores, name=name, parking=self._parking, keep=self._keep
        )

    def work(
        self, *, threads: int = 8, only: Collection[str] | None = None, drain: Seconds = 30, name: str | None = None
    ) -> None:
        """Work until SIGTERM or SIGINT, then drain; a second signal stops at once. `redrive work module:app` does this."""
        from ..worker.signals import until_told  # noqa: PLC0415  # brings SQLAlchemy

        until_told(self.worker(threads=threads, only=only, drain=drain, name=name))

    # ---- calls ----

    def spill(self, kind: str, /, *, key: Key | KeyOf | None = None) -> LeaveBehind:
        """What a retried call gives up on, left behind as a job of this kind: `@retry(spill=app.spill("crm.sync"))`.

        Due when trying again makes sense, with the call's arguments, what was tried, and the correlation ids around it.
        key: once for it: a Key, a template over the function's parameters, or a function of them (default: the key of the retry
        itself; where that has none, every call that gives up is new work).
        """
        from ..ledger.spill import LeaveBehind  # noqa: PLC0415

        return LeaveBehind(lambda: self.ledger, kind, key)

    def items(self, name: str, /) -> LedgerItems:
        """Where the rejections of a batch's items are counted: `batch.retrying(sender, items=app.items("tiles"))`."""
        from ..batch.ledger_items import LedgerItems  # noqa: PLC0415

        return LedgerItems(lambda: self.ledger, name)
