"""Drills of requirement 002: a stopped service, an invalid credential, a duplicate command, a retry after a lost response."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import requests
from sqlalchemy import Connection, text

from redrive import App, RetryPolicy, current, errors, retry
from redrive.ops import DeadLetterFilter, Operator
from redrive.testing import Answer, FaultServer
from redrive.testing.http_server import refused

QUICK = RetryPolicy(max_attempts=4, backoff_base=0.02, backoff_max=0.05, jitter=0)
SOON = 60.0


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with App(f"sqlite:///{tmp_path / 'ledger.db'}") as opened:
        yield opened
        assert opened.ledger.imbalance() == []


def post(url: str, body: object = None, token: str | None = None) -> requests.Response:
    """Send the key of the current job, within the remaining time."""
    headers = {"idempotency-key": str(current().key)} | ({"authorization": f"Bearer {token}"} if token else {})
    answer = requests.post(url, json=body, headers=headers, timeout=current().remaining or 5)
    answer.raise_for_status()
    return answer


@pytest.mark.req("W-3", "W-2")
@pytest.mark.parametrize(("spent", "state"), [("blocked", "blocked"), ("dead", "dlq")])
def test_jobs_of_a_stopped_service_are_replayed_when_it_is_back(app: App, spent: Literal["dead", "blocked"], state: str) -> None:
    """Drill 1: the job is retried, then blocked or a dead letter. After the service is back, one replay finishes it."""
    service = [""]

    @app.command("interview.plan", key="workflow:{user}:{run}:module:interview:v1", retry=QUICK, spent=spent)
    def plan(run: str, user: str) -> str:
        return post(f"{service[0]}/plan").text

    with app.worker(), refused() as nowhere:
        service[0] = nowhere
        job = plan.submit("run_456", user="user_123")
        with pytest.raises(errors.Dead) as dead:
            job.result(SOON)
        assert (job.state, job.attempts) == (state, 4)
        assert [one.outcome for one in app.ledger.attempts(int(job.id))] == ["failed"] * 4
        (letter,) = app.ledger.dead_letters()
        assert (letter.key, letter.blocked) == ("workflow:user_123:run_456:module:interview:v1", spent == "blocked")
        assert "Connection refused" in str(letter.error)
    with app.worker(), FaultServer(Answer(200, body=b"planned")) as back:
        service[0] = back.url
        ann = Operator(app, actor="ann")
        ann.apply(ann.dead_letters.replay(DeadLetterFilter(ids=(dead.value.dead_id,))), because="the interview service is back")
        assert job.result(SOON) == "planned"
        assert back.requests[0].headers["idempotency-key"] == letter.key, "the original key"
    assert [entry.action for entry in app.ledger.audit()][-1].startswith(("dead.replay", "sweep"))


@pytest.mark.req("W-3")
def test_a_command_with_a_broken_credential_is_replayed_after_the_fix(app: App) -> None:
    """Drill 3: provisioning fails with a 401. The job is not retried, and it stays visible as a dead letter."""
    token = ["expired"]

    @app.command("stack.provision", key="stack:{user}:{repo}:provision:v1", retry=QUICK)
    def provision(repo: str, user: str) -> list[int]:
        return [post(f"{gitea.url}/{step}", {"name": repo}, token[0]).status_code for step in ("user", "repo", "file")]

    with FaultServer(201) as gitea, app.worker():
        gitea.script(401, path="/repo")
        job = provision.submit("notes", user="ann")
        with pytest.raises(errors.Dead, match="stack.provision job 1 is a dead letter: not_retryable") as dead:
            job.result(SOON)
        assert [request.path for request in gitea.requests] == ["/user", "/repo"], "a 401 is not tried again"
        (letter,) = app.ledger.dead_letters()
        assert json.loads(letter.payload) == {"repo": "notes", "user": "ann"}
        assert "401" in str(letter.error)
        assert "expired" not in str(letter.error)
        assert (job.state, job.attempts) == ("dlq", 1)
        token[0] = "renewed"
        gitea.script(201, path="/repo")
        ann = Operator(app, actor="ann")
        ann.apply(ann.dead_letters.replay(DeadLetterFilter(ids=(dead.value.dead_id,))), because="the token was renewed")
        assert job.result(SOON) == [201, 201, 201]
        made = {(request.path, request.headers["idempotency-key"]) for request in gitea.requests}
        assert made == {(f"/{step}", "stack:ann:notes:provision:v1") for step in ("user", "repo", "file")}, "one of each, by key"


@pytest.mark.req("W-4")
def test_a_duplicate_command_does_not_call_the_service_twice(app: App) -> None:
    @app.command("module.run", key="workflow:{user}:{run}:module:{module}:v1")
    def run(run: str, module: str, user: str) -> str:
        return post(f"{service.url}/{module}").text

    with FaultServer(Answer(200, body=b"done", delay=0.2)) as service, app.worker(), app.worker():
        route = [threading.Thread(target=run.submit, args=("r-1", "resume", "ann")) for _ in range(8)]
        for caller in route:
            caller.start()
        for caller in route:
            caller.join()
        while_running = run.submit("r-1", "resume", "ann")
        assert while_running.result(SOON) == "done"
        after = run.submit("r-1", "resume", "ann")
        assert (after.created, after.result(SOON)) == (False, "done")
        assert run.submit("r-1", "interview", "ann").result(SOON) == "done"
        assert [request.path for request in service.requests] == ["/resume", "/interview"]


@pytest.mark.req("W-4")
def test_a_retry_creates_no_second_artifact(app: App) -> None:
    """The response is lost twice. The service creates one artifact for the key, and the ledger has one row."""

    @retry(max_attempts=2, backoff_base=0.01, jitter=0)
    def create(body: dict[str, str]) -> None:
        post(f"{opencode.url}/artifacts", body)

    @app.command("artifact.make", key="opencode:{user}:{run}:interview-plan:prompt-v4", in_transaction=True, retry=QUICK)
    def make(tx: Connection, run: str, user: str) -> int:
        tx.execute(text("INSERT INTO artifact (run) VALUES (:run)"), {"run": run})
        create({"run": run})
        return 1

    with app.ledger.begin() as tx:
        tx.execute(text("CREATE TABLE artifact (run TEXT)"))
    with FaultServer("reset", "reset", "close", 200) as opencode, app.worker():
        assert make.submit("run_456", "user_123").result(SOON) == 1
        assert opencode.count == 4, "two attempts of the call in each of two attempts of the command"
        keys = {request.headers["idempotency-key"] for request in opencode.requests}
    assert keys == {"opencode:user_123:run_456:interview-plan:prompt-v4"}, "one artifact there"
    with app.ledger.begin() as tx:
        assert tx.execute(text("SELECT count(*) FROM artifact")).scalar_one() == 1, "and one here"


@pytest.mark.req("W-3")
def test_a_command_waits_as_long_as_the_retry_after_of_an_inner_retry(app: App) -> None:
    """Retry-After does not fit the inner call, which fails immediately. The command waits for that time."""

    @retry(max_attempts=3, timeout=0.5)
    def fetch() -> str:
        return post(crm.url).text

    @app.command("crm.sync", retry=QUICK)
    def sync() -> str:
        return fetch()

    with FaultServer(Answer(429, headers={"retry-after": "1"}), Answer(200, body=b"ok")) as crm, app.worker():
        job = sync.submit()
        assert job.result(SOON) == "ok"
        assert crm.count == 2
        assert crm.waits[0] >= 0.95
