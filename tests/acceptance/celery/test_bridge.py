"""Celery tasks that fail for good are dead letters, and a replay sends them to their queue. With a real worker on Redis."""

from __future__ import annotations

import json

import pytest
from celery import chain, chord, group
from fastapi.testclient import TestClient

from redrive import journal, ops
from redrive.console import asgi
from redrive.journal import Record
from redrive.ledger.failpoint import STATUS
from redrive.ops import DeadLetterFilter
from tests.acceptance.celery.conftest import SOON, Shop, celery_worker, until
from tests.acceptance.celery.program import NOON, build
from tests.unit.cli.command import call

pytestmark = pytest.mark.req("X-8")


def test_a_task_whose_retries_are_used_up_is_a_dead_letter_and_a_replay_runs_it(shop: Shop) -> None:
    task_id = shop.send("shop.charge", "o-1", "hunter1", note=NOON, password="hunter2")
    letter = shop.letter(task_id)
    assert (letter.kind, letter.reason, letter.attempts) == ("celery:shop.charge", "attempts", 3)
    assert letter.error is not None
    assert letter.error.startswith("ValueError: card of o-1 declined, password=[redacted]\n")

    status, shown = call("dead", "show", str(letter.id), "--ledger", shop.place.ledger)
    assert (status, "hunter" in shown, '"order": "o-1"' in shown) == (0, False, True), shown
    for word in (task_id, f"correlation:{task_id}", f"queue:{shop.place.name}-main"):
        status, printed = call("find", word, "--ledger", shop.place.ledger)
        assert (status, "celery:shop.charge" in printed) == (0, True), printed
    asked = ("dead", "replay", str(letter.id), "--because", "the bank is back", "--yes", "--ledger", shop.place.ledger)
    status, printed = call(*asked)
    assert status == 0, printed
    with shop.app.worker(threads=2):
        again = shop.letter(task_id, replays=1)
        assert (again.id, again.reason, again.attempts) == (letter.id, "attempts", 3), "it failed again"
        shop.fix("o-1")
        headers = {"Authorization": "Bearer a-token-of-the-console"}
        with TestClient(asgi(shop.app, token="a-token-of-the-console"), base_url="http://ops.example", headers=headers) as api:
            replayed = api.post("/api/dead/replay", json={"ids": [letter.id], "because": "the bank is back"})
            assert replayed.status_code == 200, replayed.text
            shop.letter(task_id, status="replayed", replays=2)
            page = api.get(f"/dead/{letter.id}")
    assert (page.status_code, "celery:shop.charge" in page.text, "hunter" in page.text) == (200, True, False)
    assert shop.state(task_id) == "SUCCESS", "the caller has the result under the same id"
    assert shop.lines("charge o-1") == [f"charge o-1 {retry}" for retry in (0, 1, 2, 0, 1, 2, 0)]
    report = ops.Operator(shop.app, actor="ann").dead_letters.get(letter.id)
    assert report is not None
    assert [(job.state, job.attempts) for job in report.jobs] == [
        ("replaced by a replay", 3),
        ("replaced by a replay", 3),
        ("done", 1),
    ]


def test_every_way_to_fail_for_good_is_one_dead_letter(shop: Shop) -> None:
    """Also those that only the main process of the worker knows, which then forks new processes."""
    shop.celery.send_task("shop.removed", args=[{"a": 1}], task_id="removed-1")
    sent = {"die": (1,), "stall": (), "reject": (), "secretive": ()}
    ids = {name: shop.send(f"shop.{name}", *args) for name, args in sent.items()}
    letters = {name: shop.letter(task_id) for name, task_id in ids.items()}
    errors = {name: (each.error or "").partition("\n")[0] for name, each in letters.items()}
    assert errors.pop("die").startswith("billiard.exceptions.WorkerLostError: Worker exited prematurely: signal 9 (SIGKILL)")
    assert errors == {
        "stall": "billiard.exceptions.TimeLimitExceeded: TimeLimitExceeded(1,)",
        "reject": "celery.exceptions.Reject: ('not wanted', False)",
        "secretive": "Secretive('token=[redacted] is not pickled')",
    }
    assert [(each.reason, each.attempts) for each in letters.values()] == [("crashed_worker", 1), *[("not_retryable", 1)] * 3]
    assert shop.state(ids["secretive"]) == "FAILURE"
    assert json.loads(letters["die"].payload)["args"] == [{"number": 1}]
    removed = shop.letter("removed-1")
    assert (removed.kind, removed.reason) == ("celery:shop.removed", "undecodable")
    shop.fix("die")
    shop.fix("stall")
    with shop.app.worker(threads=2):
        shop.replay(letters["die"].id, letters["stall"].id)
        shop.letter(ids["die"], status="replayed", replays=1)
        shop.letter(ids["stall"], status="replayed", replays=1)


def test_an_unknown_task_of_another_program_is_a_dead_letter(shop: Shop) -> None:
    """A message of version 1 of Celery's protocol, and one whose class the worker does not have."""
    queue = {"routing_key": f"{shop.place.name}-main", "declare": [shop.celery.amqp.queues[f"{shop.place.name}-main"]]}
    body = {"task": "shop.removed", "id": "removed-2", "args": [7], "kwargs": {"password": "hunter2"}, "retries": 2}
    pickled = {"content_type": "application/x-python-serialize", "content_encoding": "binary"}
    with shop.celery.producer_pool.acquire() as producer:
        producer.publish(body, serializer="json", **queue)
        producer.publish(b"cno.module\nParcel\n.", headers={"task": "shop.removed", "id": "removed-3"}, **pickled, **queue)
    letter, lost = shop.letter("removed-2"), shop.letter("removed-3")
    assert (letter.reason, letter.attempts) == ("undecodable", 3)
    stored = json.loads(letter.payload)
    assert (stored["args"], stored["kwargs"]) == ([{"0": 7}], {"password": "hunter2"})
    assert (lost.reason, json.loads(lost.payload)["task"]) == ("payload_lost", "shop.removed")


def test_a_task_that_fails_twice_has_one_dead_letter_with_both_failures(shop: Shop) -> None:
    charge = shop.celery.tasks["shop.charge"]
    charge.apply_async(("o-2", "4111"), task_id="charge-o-2")
    shop.letter("charge-o-2", attempts=3)
    charge.apply_async(("o-2", "4111"), task_id="charge-o-2")
    letter = shop.letter("charge-o-2", attempts=6)
    assert letter.job_id is not None
    assert [attempt.number for attempt in shop.app.ledger.attempts(letter.job_id)] == [3, 6]


def test_a_canary_stops_a_sweep_until_the_tasks_succeed(shop: Shop) -> None:
    ids = [shop.send("shop.ship", [number, "parcel"], at=NOON) for number in range(3)]
    by_letter = {shop.letter(task_id).id: task_id for task_id in ids}
    letters = sorted(by_letter)
    operator = ops.Operator(shop.app, actor="ann")
    with shop.app.worker(threads=2):
        plan = operator.dead_letters.replay(DeadLetterFilter(ids=tuple(letters)))
        halted = operator.apply(plan, because="try one", canary=1)
        assert (halted.sweep.state, list(halted.done)) == ("halted", letters[:1])
        assert len(shop.lines("ship [")) == 4, "the canary alone was sent"
        shop.fix("ship")
        plan = operator.dead_letters.replay(DeadLetterFilter(ids=tuple(letters)))
        done = operator.apply(plan, because="there is a lorry", canary=1)
        assert (done.sweep.state, list(done.done)) == ("done", letters)
        for letter, replays in zip(letters, (2, 1, 1), strict=True):
            shop.letter(by_letter[letter], status="replayed", replays=replays)
    times = {line.partition("] ")[2] for line in shop.lines("ship [")}
    assert times == {str(NOON)}, "JSON keeps the types of Celery's own JSON"


def test_pickled_arguments_are_sent_as_they_were_and_are_not_edited(shop: Shop) -> None:
    weigh = shop.celery.tasks["shop.weigh"]
    task_id = str(weigh.apply_async(({1, 2},), serializer="pickle").id)
    letter = shop.letter(task_id)
    assert letter.payload[:1] == b"\xff"
    letters = ops.Operator(shop.app, actor="ann").dead_letters
    report = letters.get(letter.id)
    assert report is not None
    assert report.payload is None, "a pickle is not shown"
    edited = letters.replay_edited(letter.id, letter.payload, because="a pickle")
    shop.fix("weigh")
    with shop.app.worker(threads=2):
        again = shop.letter(task_id, replays=1)
        assert (again.reason, again.job_id) == ("undecodable", edited)
        assert (again.error or "").startswith("Undecodable: an edited message must be JSON")
        shop.replay(letter.id)
        shop.letter(task_id, status="replayed", replays=2)
    assert shop.lines("weigh") == ["weigh {1, 2}"] * 2


def test_an_edited_payload_is_checked_and_sent(shop: Shop) -> None:
    task_id = shop.send("shop.charge", "o-4", "4111")
    letter = shop.letter(task_id)
    letters = ops.Operator(shop.app, actor="ann").dead_letters
    message = json.loads(letter.payload)
    with pytest.raises(ValueError, match=r"does not fit celery:shop\.charge: missing a required argument: 'card_token'"):
        letters.replay_edited(letter.id, json.dumps({**message, "args": [{"order": "o-5"}]}).encode(), because="typo")
    with pytest.raises(ValueError, match='each of "args" must be an object with one entry'):
        letters.replay_edited(letter.id, json.dumps({**message, "args": ["o-5"]}).encode(), because="typo")
    shop.fix("o-5")
    message["args"][0]["order"] = "o-5"
    letters.replay_edited(letter.id, json.dumps(message).encode(), because="typo")
    with shop.app.worker(threads=2):
        shop.letter(task_id, status="replayed", replays=1)
    assert shop.lines("charge o-5") == ["charge o-5 0"]


def test_a_replay_continues_a_chain_and_completes_a_group_and_runs_a_chord_task_alone(shop: Shop) -> None:
    charge, pack = shop.celery.tasks["shop.charge"], shop.celery.tasks["shop.pack"]
    chained = chain(charge.s("o-6", "4111"), pack.s()).apply_async()
    grouped = group(charge.si("o-7", "4111"), pack.si("x")).apply_async()
    collected = chord([charge.si("o-8", "4111"), pack.si("y")], pack.s()).apply_async()
    members = [chained.parent.id, grouped[0].id, collected.parent[0].id]
    letters = [shop.letter(str(task_id)) for task_id in members]
    for order in ("o-6", "o-7", "o-8"):
        shop.fix(order)
    with shop.app.worker(threads=2):
        shop.replay(*(letter.id for letter in letters))
        for task_id in members:
            shop.letter(str(task_id), status="replayed", replays=1)
        until(lambda: shop.state(chained.id) == "SUCCESS")
    assert shop.lines("pack o-6") == ["pack o-6 is paid"]
    assert [shop.state(each.id) for each in grouped] == ["SUCCESS", "SUCCESS"]
    assert shop.state(collected.id) == "FAILURE", "Celery has ended the chord"
    assert shop.lines("pack [") == []


def test_a_child_with_the_headers_of_a_replay_has_a_dead_letter_of_its_own(shop: Shop) -> None:
    task_id = shop.send("shop.order", "tree")
    letter = shop.letter(task_id)
    shop.fix("order")
    with shop.app.worker(threads=2):
        shop.replay(letter.id)
        child = shop.letter("child-of-tree")
        shop.fix("wait for tree")
        again = shop.letter(task_id, replays=1)
    assert (child.kind, (again.error or "").partition("\n")[0]) == ("celery:shop.secretive", "ConnectionError: no stock again")


def test_a_revoked_replay_is_pending_again(shop: Shop) -> None:
    task_id = shop.send("shop.charge", "o-9", "4111")
    letter = shop.letter(task_id)
    shop.celery.control.revoke(task_id)
    with shop.app.worker(threads=2):
        shop.replay(letter.id)
        again = shop.letter(task_id, replays=1)
    job = shop.app.ledger.get(again.job_id or 0)
    assert job is not None
    assert (job.state, job.error) == ("cancelled", "the task was revoked")


def test_a_replay_that_no_worker_runs_is_a_dead_letter_after_the_timeout(shop: Shop) -> None:
    letter = shop.letter(shop.send("shop.charge", "o-10", "4111"))
    message = json.loads(letter.payload)
    message["queue"]["routing_key"] = f"{shop.place.name}-unread"
    other, celery = build(shop.place, replay_timeout=0.5)
    with other:
        ops.Operator(other, actor="ann").dead_letters.replay_edited(letter.id, json.dumps(message).encode(), because="lost")
        with other.worker(threads=2):
            again = shop.letter(letter.ids["task_id"], replays=1)
    assert again.reason == "deadline"
    assert again.error == (
        f"task {letter.ids['task_id']} was sent to '{shop.place.name}-unread', and its end was not reported within 0.5 s; "
        "check that a Celery worker reads the queue, and whether the task has run"
    )
    celery.close()


def test_a_broker_that_is_away_delays_a_replay(shop: Shop) -> None:
    """With a result backend on the same Redis, which Celery would subscribe to before it sends."""
    letter = shop.letter(shop.send("shop.charge", "o-14", "4111"))
    shop.fix("o-14")
    other, celery = build(shop.place._replace(broker="redis://:hunter4@127.0.0.1:1/0"))
    retries: list[Record] = []
    unsubscribe = journal.subscribe(lambda record: retries.append(record) if record.kind == "retry" else None, inline=True)
    shop.replay(letter.id)
    with other, other.worker(threads=2):
        until(lambda: retries)
    unsubscribe()
    celery.close()
    error = str(retries[0].fields["error"])
    assert error.startswith("the broker of Celery cannot be reached: Error 111 connecting to 127.0.0.1:1"), error
    assert "hunter4" not in error
    with shop.app.worker(threads=2):
        shop.letter(letter.ids["task_id"], status="replayed", replays=1)
    assert shop.state(letter.ids["task_id"]) == "SUCCESS", "the worker of Celery has stored the result"


def test_a_worker_killed_after_the_send_sends_the_task_again(shop: Shop) -> None:
    task_id = shop.send("shop.charge", "o-11", "4111")
    letter = shop.letter(task_id)
    shop.fix("o-11")
    shop.replay(letter.id)
    work = ("-m", "redrive", "work", "tests.acceptance.celery.program:app", "--threads", "1")
    with shop.process(*work, REDRIVE_CRASH_AT="celery.sent") as killed:
        assert killed.wait(SOON) == STATUS
    with shop.app.worker(threads=2):
        shop.letter(task_id, status="replayed", replays=1)
    until(lambda: shop.lines("charge o-11").count("charge o-11 0") == 3)


def test_a_ledger_that_is_away_costs_the_dead_letter_and_nothing_else(shop: Shop) -> None:
    place = shop.place._replace(ledger="postgresql://redrive:hunter3@127.0.0.1:1/shop", name=f"{shop.place.name}-away")
    _, celery = build(place)
    charge = celery.tasks["shop.charge"]
    with shop.process(*celery_worker("solo"), **place.as_environment()):
        lost = charge.apply_async(("o-12", "4111"), {"password": "hunter2"})
        until(lambda: "is not in the ledger" in shop.log)
        shop.fix("o-13")
        assert charge.apply_async(("o-13", "4111")).get(timeout=SOON) == "o-13 is paid"
    assert celery.backend.get_task_meta(lost.id, cache=False)["status"] == "FAILURE"
    (said,) = (line for line in shop.log.splitlines() if "is not in the ledger" in line and lost.id in line)
    assert f"celery:shop.charge: task {lost.id}: its end is not in the ledger (LedgerUnavailable: " in said
    assert ("ERROR" in said, '{"order": "o-12"}' in said, "hunter" in said) == (True, True, False), said
    celery.close()
