"""LedgerOpener: opens the ledger of an app, and its idempotency keys, at first use."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..core.lazy import deferred
from ..ledger.db.address import parse
from ..ledger.open import open_ledger, require_extra

if TYPE_CHECKING:
    from .. import settings
    from ..idempotency import keys as idempotency_keys
    from ..idempotency.keys import Keys
    from ..ledger.ledger import Ledger
else:  # SQLAlchemy, and files of settings: often not needed
    (settings,) = deferred("redrive", "settings")
    (idempotency_keys,) = deferred("redrive.idempotency", "keys")

VARIABLE = "REDRIVE_LEDGER"
"""Environment variable with the address of the ledger."""
DEFAULT = "sqlite:///redrive.db"
"""Address of the ledger if nothing else is configured."""


class LedgerOpener:
    """The ledger of an app, opened at first use. Threads and forked children may share it."""

    def __init__(
        self,
        configured: str | Ledger | Callable[[], str] | None,
        migrate: bool | None,
        secrets: Collection[str],
    ) -> None:
        if isinstance(secrets, str):
            raise TypeError(
                f"secrets must be a collection of names, not one text; pass [{secrets!r}]"
            )
        require_extra()  # Report a missing extra here: an app can do nothing without it.
        if isinstance(configured, str):
            parse(configured)  # Reject an invalid address here, not when the ledger is opened.
        self._given_ledger: Ledger | None = None
        self._given_address: str | Callable[[], str] | None = None
        if configured is None or isinstance(configured, str) or callable(configured):
            self._given_address = configured
        elif hasattr(configured, "submit"):
            self._given_ledger = configured
        else:
            raise TypeError(
                "App needs the URL of a ledger or an open ledger, "
                f"not {type(configured).__name__}: {configured!r}"
            )
        self._migrate = migrate
        self._secrets = tuple(secrets)
        self._ledger: Ledger | None = None
        self._keys: Keys | None = None
        self._pid = os.getpid()
        self._lock = threading.RLock()

    @property
    def url(self) -> str:
        """The address of the ledger without its password. It need not be open."""
        if self._given_ledger is not None:
            return self._given_ledger.url
        return parse(self._address()).shown

    @property
    def is_open(self) -> bool:
        """Whether the ledger is open."""
        return self._ledger is not None

    def ledger(self) -> Ledger:
        """Return the ledger. Open it at first use.

        A forked child uses the same object, which opens new connections there.
        """
        ledger = self._ledger
        return self._open() if ledger is None else ledger

    def open_existing(self) -> Ledger:
        """Open the ledger without creating or upgrading it, even if `migrate` is True.

        Raises:
            LedgerError: No ledger exists, or its schema is from another version.
        """
        return self._open(create=False)

    def keys(self) -> Keys:
        """Return the idempotency keys of the ledger."""
        keys = self._keys
        if keys is not None:
            return keys
        ledger = self._open()
        with self._lock:
            if self._keys is None:
                self._keys = idempotency_keys.Keys(ledger)
            return self._keys

    def migrate(self) -> None:
        """Create the tables, or upgrade them to this version of Redrive."""
        if self._given_ledger is not None:
            self._given_ledger.migrate()
        else:
            open_ledger(self._address(), migrate=True).close()

    @contextmanager
    def replaced_by(self, ledger: Ledger, /) -> Iterator[None]:
        """Use another ledger inside a block, for tests. No other thread may use the app then."""
        with self._lock:
            earlier = self._ledger, self._keys
            self._ledger, self._keys = ledger, None
        try:
            yield
        finally:
            with self._lock:
                keys, (self._ledger, self._keys) = self._keys, earlier
            if keys is not None:
                keys.close()

    def close(self) -> None:
        """Close the ledger, unless the app got an open one."""
        with self._lock:
            keys, self._keys = self._keys, None
            ledger, self._ledger = self._ledger, None
        if keys is not None:
            keys.close()
        if ledger is not None and ledger is not self._given_ledger:
            ledger.close()

    def _address(self) -> str:
        given = self._given_address
        if given is None:
            return settings.ledger_address() or DEFAULT
        return given if isinstance(given, str) else given()

    def _open(self, *, create: bool = True) -> Ledger:
        if self._pid != os.getpid():
            # A forked child: another thread of the parent may have held the lock.
            self._pid, self._lock = os.getpid(), threading.RLock()
        with self._lock:
            if self._ledger is None:
                if self._given_ledger is not None:
                    self._ledger = self._given_ledger
                else:
                    address, migrate = self._address(), self._migrate
                    if migrate is None:
                        migrate = parse(address).dialect == "sqlite"
                    self._ledger = open_ledger(address, migrate=create and migrate)
                if self._secrets:
                    self._ledger.maintenance.hide(self._secrets)
            return self._ledger
