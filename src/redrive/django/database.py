"""The ledger in a database of Django: its address, and jobs through Django's own connection.

A program that only enqueues tasks needs no second connection. A task that is enqueued in `atomic()`
commits with the rows of the block, and the tests of Django see it in their transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction

from ..core.lazy import deferred
from ..errors import LedgerError, SchemaMismatch
from ..ledger.db.address import Address, parse
from ..ledger.model import STATES, Attempt, NewJob, State
from ..ledger.timestamps import from_db

if TYPE_CHECKING:
    from datetime import datetime

    from ..ledger import validation
    from ..ledger.db import caller_transaction, tables
    from ..ledger.model import Job
    from ..ledger.store.postgres import store as postgres_store
    from ..ledger.store.protocol import JobStore
    from ..ledger.store.sqlite import store as sqlite_store
else:  # they need SQLAlchemy, and a program that enqueues nothing does not
    caller_transaction, tables = deferred("redrive.ledger.db", "caller_transaction", "tables")
    (validation,) = deferred("redrive.ledger", "validation")
    postgres_store, sqlite_store = deferred(
        "redrive.ledger.store", "postgres.store", "sqlite.store"
    )

CONNECTION_OPTIONS = frozenset(
    """application_name channel_binding connect_timeout dbname gssencmode host hostaddr keepalives
    keepalives_count keepalives_idle keepalives_interval options passfile port require_auth service
    sslcert sslcrl sslkey sslmode sslnegotiation sslpassword sslrootcert target_session_attrs
    tcp_user_timeout""".split()
)
"""Parameters of Django's connections that are libpq's. The others are for psycopg or for Django."""
IN_MEMORY = Address("sqlite", "", "sqlite://")
ROW = (
    "SELECT id, kind, key, state, current, fence, started_at, ended_at, replay_of, worker, "
    "reason, error, payload, result FROM redrive_job"
)
BY_ID = f"{ROW} WHERE id = %s"
BY_KEY = f"{ROW} WHERE kind = %s AND key = %s AND current"
ATTEMPTS = (
    "SELECT job_id, fence, number, outcome, worker, reason, error, started_at, ended_at "
    "FROM redrive_attempt WHERE job_id = %s ORDER BY fence"
)
MAX_JOB_ID = 2**63 - 1


class JobRow(NamedTuple):
    """The part of a stored job that its task's result needs. Immutable."""

    id: int
    kind: str
    key: str
    state: State
    current: bool
    fence: int
    started_at: datetime | None
    ended_at: datetime | None
    replay_of: int | None
    worker: str | None
    reason: str | None
    error: str | None
    payload: bytes
    result: bytes | None

    @classmethod
    def of(cls, job: Job, /) -> JobRow:
        """Return the row of a job that the ledger has read."""
        return cls(*(getattr(job, name) for name in cls._fields))


class DjangoDatabase:
    """The ledger in the Django database of an alias. Threads may share one."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._checked: set[str] = set()
        """Names of databases whose tables were found. The tests of Django rename a database."""

    @property
    def url(self) -> str:
        """The address of the ledger, for workers and the console. It may have a password.

        Raises:
            ImproperlyConfigured: No other program can open the database.
        """
        connection = connections[self.alias]
        if connection.vendor == "sqlite":
            if connection.is_in_memory_db():
                raise ImproperlyConfigured(
                    f"DATABASES[{self.alias!r}] is in memory, where no worker finds its tasks; use "
                    "a file, in tests by 'TEST': {'NAME': 'test.sqlite3'}, or a sandbox of "
                    "redrive.testing"
                )
            return f"sqlite:///{Path(connection.settings_dict['NAME']).absolute()}"
        return _postgres_url(connection)

    @property
    def _address(self) -> Address:
        connection = connections[self.alias]
        if connection.vendor == "sqlite" and connection.is_in_memory_db():
            return IN_MEMORY
        return parse(self.url)

    def submit(self, job: NewJob, /) -> int:
        """Store a job in the open transaction of this thread, or in a new one. Return its id.

        Raises:
            TransactionManagementError: The transaction has failed.
            SchemaMismatch: The tables are missing, or of another version.
        """
        checked = validation.check_job(job, validation.MAX_PAYLOAD_BYTES)
        connection = connections[self.alias]
        connection.validate_no_broken_transaction()
        self.require_tables()
        store: JobStore = (
            sqlite_store.SqliteJobStore()
            if connection.vendor == "sqlite"
            else postgres_store.PostgresJobStore()
        )
        with transaction.atomic(using=self.alias, savepoint=False):
            run = caller_transaction.runner_of(connection, self._address)
            return store.submit_in(run, [checked])[0].id

    def find(self, job_id: int, /) -> JobRow | None:
        """Return a job by its id."""
        return self._row(BY_ID, (job_id,)) if 0 < job_id <= MAX_JOB_ID else None

    def find_current(self, kind: str, key: str, /) -> JobRow | None:
        """Return the current job of a key."""
        return self._row(BY_KEY, (kind, key))

    def attempts(self, job_id: int, /) -> list[Attempt]:
        """Return the attempts of a job that failed, were lost or do not count."""
        return [
            Attempt._make((*row[:-2], from_db(row[-2]), from_db(row[-1])))
            for row in self._fetch(ATTEMPTS, (job_id,))
        ]

    def _row(self, query: str, parameters: Sequence[Any]) -> JobRow | None:
        self.require_tables()
        for row in self._fetch(query, parameters):
            id_, kind, key, state, current, fence, started, ended, *rest, payload, result = row
            times = (from_db(started), from_db(ended))
            content = (bytes(payload), None if result is None else bytes(result))
            head = (id_, kind, key, STATES[state], bool(current), fence)
            return JobRow._make((*head, *times, *rest, *content))
        return None

    def _fetch(self, query: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        with connections[self.alias].cursor() as cursor:
            cursor.execute(query, parameters)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows

    # --- The tables

    def require_tables(self) -> None:
        """Raise SchemaMismatch if the tables are missing, or of another version."""
        name = str(connections[self.alias].settings_dict["NAME"])
        if name in self._checked:
            return
        found = self.revision()
        if found != tables.HEAD:
            raise SchemaMismatch(
                f"{self._problem_with(found)}; run `manage.py migrate{self._option}`",
                found=found,
                wanted=tables.HEAD,
            )
        self._checked.add(name)

    def revision(self) -> str | None:
        """Return the version of the tables. None: there are none."""
        connection = connections[self.alias]
        with connection.cursor() as cursor:
            if tables.VERSION_TABLE not in connection.introspection.table_names(cursor):
                return None
            cursor.execute(f"SELECT version_num FROM {tables.VERSION_TABLE}")  # noqa: S608  # a constant
            row = cursor.fetchone()
        return None if row is None else str(row[0])

    def _problem_with(self, revision: str | None) -> str:
        if revision is None:
            return f"DATABASES[{self.alias!r}] has no ledger"
        age = "older" if revision < tables.HEAD else "newer"
        return (
            f"the ledger in DATABASES[{self.alias!r}] is {age} (revision {revision}) than this "
            f"code ({tables.HEAD})"
        )

    @property
    def _option(self) -> str:
        return "" if self.alias == "default" else f" --database {self.alias}"


def _postgres_url(connection: Any) -> str:
    """Return the address of a Django database on Postgres."""
    try:
        params = dict(connection.get_connection_params())
    except ImproperlyConfigured as error:
        raise LedgerError(str(error)) from error
    user, password = params.get("user"), params.get("password")
    sign_in = quote(str(user), safe="") if user else ""
    sign_in += f":{quote(str(password), safe='')}" if password else ""
    options = {
        name: str(params[name])
        for name in sorted(CONNECTION_OPTIONS & params.keys())
        if params[name]
    }
    if role := connection.settings_dict.get("OPTIONS", {}).get("assume_role"):
        options["options"] = f"{options.get('options', '')} -c role={role}".strip()
    database = quote(options.pop("dbname", ""), safe="")
    host, place = options.get("host", ""), ""
    if host and not set(host) & set(",/:"):  # neither several hosts nor a socket
        port = options.pop("port", "")
        place = options.pop("host") + (f":{port}" if port else "")
    if connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS"):
        options["pool_mode"] = "transaction"  # Django's setting for a pooler in this mode
    query = f"?{urlencode(options, quote_via=quote)}" if options else ""
    return f"postgresql://{sign_in}{'@' if sign_in else ''}{place}/{database}{query}"
