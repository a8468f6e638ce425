"""App: the root that holds the ledger and what is registered to work from it."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Protocol, Self, TypeAlias, TypeVar, overload

from .core.fault import Rules
from .core.key import Key, KeyLike, KeyOf
from .core.seconds import Seconds

if TYPE_CHECKING:
    import sqlalchemy

    from .idempotency.claim import Claiming
    from .idempotency.keys import Keys
    from .ledger.caller import Transaction
    from .ledger.ledger import Ledger
    from .ledger.spill import LeaveBehind

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

VARIABLE = "REDRIVE_LEDGER"
DEFAULT = "sqlite:///redrive.db"
DAY = timedelta(days=1)

ASGI: TypeAlias = Callable[[Any, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]


class _TxOnce(Protocol):
    def __call__(self, fn: Callable[Concatenate[sqlalchemy.Connection, P], R], /) -> Callable[P, R]: ...


class App:
    """Holds the ledger and the settings. Making one opens nothing: no file, no socket, no thread. Context manager.

    Threads and event loops may share it. A forked child may go on using it, and gets connections of its own.
    """

    def __init__(
        self, ledger: str | Ledger | None = None, /, *, migrate: bool | None = None, secrets: Collection[str] = ()
    ) -> None:
        """ledger: a URL, or an open one (default: REDRIVE_LEDGER, else sqlite:///redrive.db).

        migrate: make the tables, or bring them up to this code, at first use. Default: on SQLite yes, since the file is the
        program's own; on Postgres no: a schema that is missing or old is refused, with the command that makes it.
        secrets: names of fields that never reach journal, stored errors or console (added to the standard list).
        """
        if isinstance(ledger, str):
            from .ledger.address import parse  # noqa: PLC0415

            parse(ledger)  # a wrong address is said here, not at three in the morning
        elif ledger is not None and not hasattr(ledger, "submit"):
            raise TypeError(f"App takes a ledger's URL or an open ledger, not {type(ledger).__name__}: {ledger!r}")
        if isinstance(secrets, str):
            raise TypeError(f"secrets is a collection of names, not one text: [{secrets!r}]")
        if secrets:
            from .journal.redaction import hide  # noqa: PLC0415

            hide(*secrets)
        self._given = ledger
        self._migrate = migrate
        self._ledger: Ledger | None = None
        self._keys: Keys | None = None
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
        if keys is not None:
            keys.close()
        if ledger is not None and ledger is not self._given:
            ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<App {self.url}>"

    # ---- calls ----

    def spill(self, kind: str, /, *, key: Key | KeyOf | None = None) -> LeaveBehind:
        """What a retried call gives up on, left behind as a job of this kind: `@retry(spill=app.spill("crm.sync"))`.

        Due when trying again makes sense, with the call's arguments, what was tried, and the correlation ids around it.
        key: once for it: a Key, a template over the function's parameters, or a function of them (default: the key of the retry
        itself; where that has none, every call that gives up is new work).
        """
        from .ledger.spill import LeaveBehind  # noqa: PLC0415

        return LeaveBehind(lambda: self.ledger, kind, key)

    # ---- idempotency ----

    @overload
    def once(
        self, key: KeyOf, /, *, in_transaction: Literal[True], wait: Seconds | None = None, keep: Seconds = DAY,
        request: Callable[..., object] | None = None, free_on: Rules | None = None,
    ) -> _TxOnce: ...  # fmt: skip
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
            self.keys,
            app,
            required=required,
            methods=methods,
            paths=paths,
            domain=domain,
            user=user,
            keep=keep,
            max_body=max_body,
        )
