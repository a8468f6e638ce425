"""App: the root that holds the ledger and what is registered to work from it."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar, overload

from .core.fault import Rules
from .core.key import Key, KeyLike, KeyOf
from .core.seconds import Seconds
from .storage.registry import Registry as Stores
from .storage.registry import registry

if TYPE_CHECKING:
    from .batch.ledger_items import LedgerItems
    from .commands.command import Work
    from .commands.decorator import CronDecorator, Decorator, TxDecorator
    from .commands.job import Job
    from .commands.registry import Registry
    from .engine.retry import RetryLike
    from .idempotency.claim import Claiming
    from .idempotency.decorator import TxOnce
    from .idempotency.keys import Keys
    from .ledger.caller import Transaction
    from .ledger.ledger import Ledger
    from .ledger.spill import LeaveBehind
    from .worker.kind import Kind
    from .worker.worker import Worker

F = TypeVar("F", bound=Callable[..., Any])

VARIABLE = "REDRIVE_LEDGER"
DEFAULT = "sqlite:///redrive.db"
DAY = timedelta(days=1)

ASGI: TypeAlias = Callable[[Any, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]


class App:
    """Holds the ledger, the registrations and the settings. Making one opens nothing: no file, socket or thread. Context manager.

    Threads and event loops may share it. A forked child may go on using it, and gets connections of its own.
    """

    def __init__(
        self, ledger: str | Ledger | None = None, /, *, migrate: bool | None = None, include: Sequence[str] = (),
        stores: Stores | Mapping[str, Any] | None = None, secrets: Collection[str] = (),
    ) -> None:  # fmt: skip
        """ledger: a URL, or an open one (default: REDRIVE_LEDGER, else sqlite:///redrive.db).

        migrate: make the tables, or bring them up to this code, at first use. Default: on SQLite yes, since the file is the
        program's own; on Postgres no: a schema that is missing or old is refused, with the command that makes it.
        include: modules with registrations, imported when a worker, the console or the CLI starts.
        stores: where files are, by name: {"raw": {"type": "local", "options": {"root": "raw"}}}, as a Registry takes them.
        secrets: names of fields that never reach journal, stored errors or console (added to the standard list).
        """
        if isinstance(ledger, str):
            from .ledger.address import parse  # noqa: PLC0415

            parse(ledger)  # a wrong address is said here, not at three in the morning
        elif ledger is not None and not hasattr(ledger, "submit"):
            raise TypeError(f"App takes a ledger's URL or an open ledger, not {type(ledger).__name__}: {ledger!r}")
        if isinstance(include, str):
            raise TypeError(f"include is a list of modules, not one text: [{include!r}]")
        if isinstance(secrets, str):
            raise TypeError(f"secrets is a collection of names, not one text: [{secrets!r}]")
        if secrets:
            from .journal.redaction import hide  # noqa: PLC0415

            hide(*secrets)
        self._given = ledger
        self._migrate = migrate
        self._ledger: Ledger | None = None
        self._keys: Keys | None = None
        self._commands: Registry | None = None
        self._include = tuple(include)
        self.stores = registry(stores)
        self._pid = os.getpid()
        self._lock = threading.RLock()

    @property
    def url(self) -> str:
        """Where the ledger is, or will be, without its password."""
        from .ledger.address import parse  # noqa: PLC0415

        return parse(self._url()).shown if isinstance(self._given, str | None) else self._given.url

    def _url(self) -> str:
        return self._given if isinstance(self._given, str) else os.environ.get(VARIABLE) or DEFAULT

    @property
    def ledger(self) -> Ledger:
        """The ledger, opened at first use."""
        found = self._ledger  # a forked child's too: the ledger itself gives it connections of its own
        return self._opened() if found is None else found

    def _opened(self) -> Ledger:
        if self._pid != os.getpid():
            # In a forked child: a lock that another thread of the parent held would never be given back.
            self._pid, self._lock = os.getpid(), threading.RLock()
        with self._lock:
            if self._ledger is None:
                if isinstance(self._given, str | None):
                    from .ledger.address import parse  # noqa: PLC0415
                    from .ledger.open import open_ledger  # noqa: PLC0415

                    url = self._url()
                    own_file = parse(url).dialect == "sqlite"
                    self._ledger = open_ledger(url, migrate=own_file if self._migrate is None else self._migrate)
                else:
                    self._ledger = self._given
            return self._ledger

    def keys(self) -> Keys:
        """The idempotency keys of the ledger."""
        found = self._keys
        if found is not None:
            return found
        from .idempotency.keys import Keys  # noqa: PLC0415

        ledger = self._opened()
        with self._lock:
            if self._keys is None:
                self._keys = Keys(ledger)
            return self._keys

    def migrate(self) -> None:
        """Make the ledger's tables, or bring them up to this code."""
        if isinstance(self._given, str | None):
            from .ledger.open import open_ledger  # noqa: PLC0415

            open_ledger(self._url(), migrate=True).close()
        else:
            self._given.migrate()

    def close(self) -> None:
        """Close what this app has opened; used again, it opens again. An open ledger that it was given stays open."""
        with self._lock:
            keys, self._keys = self._keys, None
            ledger, self._ledger = self._ledger, None
        if self._commands is not None:
            self._commands.close()
        if keys is not None:
            keys.close()
        if ledger is not None and ledger is not self._given:
            ledger.close()
        self.stores.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<App {self.url}>"

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

    # ---- commands ----

    @overload
    def command(
        self, name: str, /, *, in_transaction: Literal[True], key: KeyOf | None = None, retry: RetryLike | None = None,
        concurrency: int | None = None, rate: float | None = None, priority: int = 0, spent: Literal["dead", "blocked"] = "dead",
    ) -> TxDecorator: ...  # fmt: skip
    @overload
    def command(
        self, name: str, /, *, cron: str, timezone: str = "UTC", retry: RetryLike | None = None,
        concurrency: int | None = None, rate: float | None = None, priority: int = 0, spent: Literal["dead", "blocked"] = "dead",
    ) -> CronDecorator: ...  # fmt: skip
    @overload
    def command(
        self, name: str, /, *, key: KeyOf | None = None, retry: RetryLike | None = None,
        concurrency: int | None = None, rate: float | None = None, priority: int = 0, spent: Literal["dead", "blocked"] = "dead",
    ) -> Decorator: ...  # fmt: skip
    def command(
        self, name: str, /, *, key: KeyOf | None = None, retry: RetryLike | None = None, concurrency: int | None = None,
        rate: float | None = None, priority: int = 0, spent: Literal["dead", "blocked"] = "dead", cron: str | None = None,
        timezone: str = "UTC", in_transaction: bool = False,
    ) -> Any:  # fmt: skip
        """Register a function as durable work: `@app.command("receipts.send", key="shop:{user}:{order_id}:receipt:v1")`.

        key: what makes two submissions the same work (default: every submission is new work).
        retry: durable attempts (default: 5, after 5 s, 30 s, 2 min and 10 min; errors by the standard rule).
        concurrency: how many at once, over all workers. rate: starts in a second, over all workers.
        priority: from -2, the first, to 2, the last. spent: what a command becomes when its attempts are spent.
        cron: a line of five fields by which it fires, in `timezone`; the function takes no arguments.
        in_transaction: the function gets a connection as its first argument, in whose transaction it is settled.
        """
        return self.commands.decorator(
            name, key=key, retry=retry, concurrency=concurrency, rate=rate, priority=priority, spent=spent, cron=cron,
            timezone=timezone, in_transaction=in_transaction,
        )  # fmt: skip

    @property
    def commands(self) -> Registry:
        """What was registered as durable work."""
        from .commands.registry import Registry  # noqa: PLC0415  # brings SQLAlchemy

        with self._lock:
            if self._commands is None:
                self._commands = Registry(lambda: self.ledger)
            return self._commands

    def submit_many(self, works: Iterable[Work[Any]], /, *, tx: Transaction | None = None) -> list[Job[Any]]:
        """Many commands at once, all or none: `app.submit_many(send.bind(each) for each in orders)`."""
        return self.commands.submit_many(list(works), tx)

    # ---- work ----

    def load(self) -> None:
        """Import the modules of `include`, with their registrations."""
        for module in self._include:
            import_module(module)

    def kinds(self, only: Collection[str] | None = None, /) -> list[Kind]:
        """What its workers know: every kind of job that is registered, or only these. ValueError names one that is not."""
        self.load()
        return self.commands.chosen(only)

    def worker(
        self, *, threads: int = 8, only: Collection[str] | None = None, drain: Seconds = 30, name: str | None = None
    ) -> Worker:
        """A worker, to work in the background as long as a block lasts: `with app.worker():`.

        threads: plain functions at once. only: of these kinds only. drain: how long what runs may take to end at the end of the
        block; what has not ended then goes back, uncharged. name: as it is seen by others (default: host and process).
        """
        from .commands.schedule import Schedule  # noqa: PLC0415  # brings SQLAlchemy
        from .worker.worker import Worker  # noqa: PLC0415  # likewise

        kinds = self.kinds(only)
        chores = Schedule.of(self.ledger, self.commands.scheduled, kinds)
        return Worker(self.ledger, kinds, threads=threads, drain=drain, chores=chores, name=name)

    def work(
        self, *, threads: int = 8, only: Collection[str] | None = None, drain: Seconds = 30, name: str | None = None
    ) -> None:
        """Work until SIGTERM or SIGINT, then drain; a second signal stops at once. `redrive work module:app` does this."""
        from .worker.signals import until_told  # noqa: PLC0415  # brings SQLAlchemy

        until_told(self.worker(threads=threads, only=only, drain=drain, name=name))

    # ---- calls ----

    def spill(self, kind: str, /, *, key: Key | KeyOf | None = None) -> LeaveBehind:
        """What a retried call gives up on, left behind as a job of this kind: `@retry(spill=app.spill("crm.sync"))`.

        Due when trying again makes sense, with the call's arguments, what was tried, and the correlation ids around it.
        key: once for it: a Key, a template over the function's parameters, or a function of them (default: the key of the retry
        itself; where that has none, every call that gives up is new work).
        """
        from .ledger.spill import LeaveBehind  # noqa: PLC0415

        return LeaveBehind(lambda: self.ledger, kind, key)

    def items(self, name: str, /) -> LedgerItems:
        """Where the rejections of a batch's items are counted: `batch.retrying(sender, items=app.items("tiles"))`."""
        from .batch.ledger_items import LedgerItems  # noqa: PLC0415

        return LedgerItems(lambda: self.ledger, name)

    # ---- idempotency ----

    @overload
    def once(
        self, key: KeyOf, /, *, in_transaction: Literal[True], wait: Seconds | None = None, keep: Seconds = DAY,
        request: Callable[..., object] | None = None, free_on: Rules | None = None,
    ) -> TxOnce: ...  # fmt: skip
    @overload
    def once(
        self, key: KeyOf, /, *, in_transaction: Literal[False] = False, wait: Seconds | None = None, keep: Seconds = DAY,
        request: Callable[..., object] | None = None, free_on: Rules | None = None,
    ) -> Callable[[F], F]: ...  # fmt: skip
    def once(
        self, key: KeyOf, /, *, in_transaction: bool = False, wait: Seconds | None = None, keep: Seconds = DAY,
        request: Callable[..., object] | None = None, free_on: Rules | None = None,
    ) -> Any:  # fmt: skip
        """Run once for a key; everybody else gets the stored answer, as the annotated type.

        key: a template over the parameters, "billing:{order.user}:{order.id}:charge:v1", or a function of them.
        wait: how long to wait for another holder (default: not at all, KeyBusy).
        keep: how long the answer is remembered.
        request: what must be the same when the key is the same, as a function of the arguments (default: all of them).
        free_on: errors after which the key is free again: types, functions of the error, or a tuple of both (default: what the
        standard rule says may pass). After any other the failure is stored, and everybody who comes gets KeyFailed.
        in_transaction: the function gets a connection as its first argument, in whose transaction its key is settled.
        """
        from .idempotency.once import Terms, once  # noqa: PLC0415

        def decorated(fn: Callable[..., Any]) -> Callable[..., Any]:
            terms = Terms(self.keys, key, fn, skip=int(in_transaction), wait=wait, keep=keep, request=request, free_on=free_on)
            return once(fn, terms, in_transaction=in_transaction)

        return decorated

    def claim(
        self, key: KeyLike, /, *, request: object = None, tx: Transaction | None = None, wait: Seconds | None = None,
        keep: Seconds = DAY, free_on: Rules | None = None,
    ) -> Claiming:  # fmt: skip
        """The same for a block: `with app.claim(key) as claim:`, or `async with`; see `once`.

        request: what must be the same when the key is the same: bytes, or what can be stored (default: nothing is compared).
        tx: an open transaction of yours on the ledger's database, which the key joins: it is settled when you commit.
        """
        from .idempotency.claim import Claiming  # noqa: PLC0415

        return Claiming(self.keys, key, request=request, tx=tx, wait=wait, keep=keep, free_on=free_on)

    def idempotency(
        self, app: ASGI, *, required: bool = False, methods: Collection[str] = ("POST", "PATCH"), paths: str = "*",
        domain: str = "http", user: Callable[[Mapping[str, Any]], str] | None = None, keep: Seconds = DAY,
        max_body: int = 1024 * 1024,
    ) -> ASGI:  # fmt: skip
        """ASGI middleware for the Idempotency-Key header: `api.add_middleware(app.idempotency, required=True)`.

        app: the application around which it goes (by this name too: that is how Litestar gives it).
        required: refuse requests without the header (400). paths: which, as a pattern with `*`.
        user: who asks, from the ASGI scope: keys of one user are nobody else's (default: one room for all, in which another
        Authorization header is another request). max_body: bytes of a request, and of a stored response.
        """
        from .idempotency.asgi import Middleware  # noqa: PLC0415

        return Middleware(
            self.keys, app, required=required, methods=methods, paths=paths, domain=domain, user=user, keep=keep,
            max_body=max_body,
        )  # fmt: skip
