"""The roles of deploy/postgres/roles.sql, on a real Postgres: programs run under them, and none can change the audit log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fastapi.testclient import TestClient

from redrive import App, Event, Stop
from redrive.console import asgi
from redrive.ledger import open_ledger
from redrive.ops import DeadLetterFilter, Operator
from redrive.ops.metrics import LedgerGauges

SQL = Path(__file__).parents[3] / "deploy" / "postgres" / "roles.sql"
ROLES = ("redrive_worker", "redrive_console", "redrive_submitter")
SOON = 60
TOKEN = "0123456789abcdef-token"


@pytest.fixture
def url(postgres_db: str) -> Iterator[str]:
    """A ledger with the rights granted. Roles are the server's: made once, and left."""
    open_ledger(postgres_db, migrate=True).close()
    with psycopg.connect(postgres_db, autocommit=True) as connection:
        for role in ROLES:
            made = f"BEGIN CREATE ROLE {role} NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END"
            connection.execute(f"DO $$ {made} $$".encode())
        for _ in range(2):  # after each migration again
            connection.execute(SQL.read_bytes())
    yield postgres_db
    with psycopg.connect(postgres_db, autocommit=True) as connection:
        connection.execute(f"DROP OWNED BY {', '.join(ROLES)}".encode())


def under(url: str, role: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}options=-crole%3D{role}"


def shop(url: str) -> Any:
    app = App(url, secrets=["iban"])

    @app.command("mail", key="shop:{user}:{order}:mail:v1")
    def mail(order: str, user: str) -> str:
        if order == "bad":
            raise Stop("no such address")
        return f"to {user}"

    @app.on("order.placed", name="stock")
    def stock(event: Event[dict[str, str]]) -> None: ...

    @app.once("shop:{user}:{order}:charge:v1")
    def charge(order: str, user: str) -> str:
        return f"{user} paid"

    made: Any = app
    made.mail, made.charge = mail, charge
    return made


@pytest.mark.req("O-5")
def test_each_program_runs_with_the_rights_of_its_role(url: str) -> None:
    with shop(under(url, "redrive_submitter")) as submitter:
        jobs = [submitter.mail.submit(order, user="ann") for order in ("o-1", "bad")]
        assert submitter.charge("o-1", "ann") == "ann paid"
        assert [job.state for job in jobs] == ["queued", "queued"]
        with shop(under(url, "redrive_worker")) as app, app.worker() as worker:
            app.receive(Event("order.placed", {"user": "ann"}, id="e-1"))
            end = time.monotonic() + SOON
            while worker.status.done + worker.status.dead < 3 and time.monotonic() < end:
                time.sleep(0.02)
            assert (worker.status.done, worker.status.dead) == (2, 1)
        assert [job.state for job in jobs] == ["done", "dlq"]
    with shop(under(url, "redrive_console")) as app:
        browser = TestClient(
            asgi(app, token=TOKEN), base_url="http://127.0.0.1:8321", headers={"authorization": f"Bearer {TOKEN}"}
        )
        for page in ("/", "/dead", "/jobs", "/failures", "/workers", "/audit", "/keys", "/events", "/partitions"):
            assert browser.get(page).status_code == 200, page
        assert list(LedgerGauges(app)()), "what /metrics reads; the page itself would count this process from now on"
        operator = Operator(app, actor="ann")
        operator.apply(operator.dead_letters.replay(DeadLetterFilter(ids=(1,))), because="the address was added")
        assert operator.audit.verify().holds
        assert [one.action for one in operator.audit.find()] == ["dead.replay"]


@pytest.mark.req("O-5")
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE redrive_audit SET actor = 'eve'",
        "DELETE FROM redrive_audit",
        "TRUNCATE redrive_audit",
        "DROP TABLE redrive_audit",
        "UPDATE redrive_version SET version_num = '0001'",
        "CREATE TABLE redrive_other (x int)",
    ],
)
def test_no_role_may_change_the_audit_log_or_the_schema(url: str, role: str, statement: str) -> None:
    with psycopg.connect(under(url, role), autocommit=True) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute(statement.encode())


def test_a_submitter_cannot_change_jobs_or_read_workers(url: str) -> None:
    with psycopg.connect(under(url, "redrive_submitter"), autocommit=True) as connection:
        for statement in ("UPDATE redrive_job SET state = 2", "DELETE FROM redrive_job", "SELECT * FROM redrive_worker"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())


@pytest.mark.req("O-5")
def test_doctor_names_roles_that_cannot_read_the_names_of_secret_fields(url: str) -> None:
    """Grants that were made before the table of these names existed do not cover it."""
    with shop(url) as app, psycopg.connect(url, autocommit=True) as connection:
        operator = Operator(app, actor="ann")
        assert [one.name for one in operator.health.check().findings] == [], "roles.sql grants it"
        connection.execute(b"REVOKE ALL ON redrive_hidden_name FROM redrive_console, redrive_submitter")
        (finding,) = operator.health.check().findings
        assert (finding.name, finding.severity, finding.count) == ("grants", "warning", 2)
        assert "redrive_console, redrive_submitter may read jobs but not redrive_hidden_name" in finding.says
        connection.execute(finding.mend.encode())
        assert operator.health.check().findings == ()
