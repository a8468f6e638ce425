"""Ledgered: an app's ledger, opened at first use."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from ..idempotency.keys import Keys
    from ..ledger.ledger import Ledger

VARIABLE = "REDRIVE_LEDGER"
DEFAULT = "sqlite:///redrive.db"


class Ledgered:
    """What an app has of its ledger. A facet of App, which says who may share it."""

    def __init__(self, ledger: str | Ledger | None, migrate: bool | None) -> None:
        from ..ledger.open import installed  # noqa: PLC0415  # all that an app does needs it: said here, not by some import

        installed()
        if isinstance(ledger, str):
            from ..ledger.db.address import parse  # noqa: PLC0415

            parse(ledger)  # a wrong address is said here, not at three in the morning
        elif ledger is not None and not hasattr(ledger, "submit"):
            raise TypeError(f"App needs the URL of a ledger or an open ledger, not {type(ledger).__name__}: {ledger!r}")
        self._given = ledger
        self._hidden: tuple[str, ...] = ()
        self._migrate = migrate
        self._ledger: Ledger | None = None
        self._keys: Keys | None = None
        self._pid = os.getpid()
        self._lock = threading.RLock()

    @property
    def url(self) -> str:
        """Where the ledger is, or will be, without its password."""
        from ..ledger.db.address import parse  # noqa: PLC0415

        return parse(self._url()).shown if isinstance(self._given, str | None) else self._given.url

    def _url(self) -> str:
        if isinstance(self._given, str):
            return self._given
        from ..settings import ledger_address  # noqa: PLC0415  # not needed where an address was given

        return ledger_address() or DEFAULT

    @property
    def ledger(self) -> Ledger:
        """The ledger, opened at first use."""
        found = self._ledger  # a forked child's too: the ledger itself gives it connections of its own
        return self._opened() if found is None else found

    def open_existing(self) -> Ledger:
        """Open the ledger without creating or upgrading it, whatever `migrate` says.

        Returns:
            The ledger.

        Raises:
            LedgerError: There is no ledger, or its schema is from another version.
        """
        return self._opened(create=False)

    def _opened(self, *, create: bool = True) -> Ledger:
        if self._pid != os.getpid():
            # In a forked child: a lock that another thread of the parent held would never be given back.
            self._pid, self._lock = os.getpid(), threading.RLock()
        with self._lock:
            if self._ledger is None:
                if isinstance(self._given, str | None):
                    from ..ledger.db.address import parse  # noqa: PLC0415
                    from ..ledger.open import open_ledger  # noqa: PLC0415

                    url = self._url()
                    wanted = parse(url).dialect == "sqlite" if self._migrate is None else self._migrate
                    self._ledger = open_ledger(url, migrate=create and wanted)
                else:
                    self._ledger = self._given
                if self._hidden:
                    self._ledger.hide(self._hidden)
            return self._ledger

    def keys(self) -> Keys:
        """Return the idempotency records of the ledger.

        Returns:
            The store that `once`, `claim` and the middleware use.
        """
        found = self._keys
        if found is not None:
            return found
        from ..idempotency.keys import Keys  # noqa: PLC0415

        ledger = self._opened()
        with self._lock:
            if self._keys is None:
                self._keys = Keys(ledger)
            return self._keys

    def migrate(self) -> None:
        """Create the ledger's tables, or upgrade them to this version of Redrive."""
        if isinstance(self._given, str | None):
            from ..ledger.open import open_ledger  # noqa: PLC0415

            open_ledger(self._url(), migrate=True).close()
        else:
            self._given.migrate()

    def close(self) -> None:
        """Close the connections that this app opened.

        An app that is used again opens them again. A `Ledger` that was passed in stays open.
        """
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
