"""Dead letters of every type: listed, shown, replayed and discarded."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from redrive.core.context import IDS
from redrive.errors import Drift, NotAllowed
from redrive.ledger import Ledger
from redrive.ledger import sweep as sweep_model
from redrive.ledger.failpoint import VARIABLE
from redrive.ledger.sweep import MAX_STEP_ITEMS
from redrive.ops import DeadLetterFilter
from redrive.ops.operator import Operator
from redrive.ops.render import document
from redrive.ops.sweeps import Applied
from tests.conformance.ledger.world import pass_time
from tests.conformance.ops.world import SECRET, die

REFUSED = "HTTPStatusError: 503 for 100% of_them"


def test_dead_letters_are_found_by_filter(ledger: Ledger, ann: Operator) -> None:
    (old,) = die(ledger, "old")
    pass_time(ledger, 7200)
    slow = die(ledger, "a", "b")
    (refused,) = die(ledger, "c", kind="mail", reason="not_retryable", error=REFUSED, signature="HTTPStatusError")
    found = {
        "all": ann.dead_letters.find(),
        "kind": ann.dead_letters.find(DeadLetterFilter(kind="mail")),
        "error": ann.dead_letters.find(DeadLetterFilter(error="READ timed")),
        "signature": ann.dead_letters.find(DeadLetterFilter(error="HTTPStatusError")),
        "percent": ann.dead_letters.find(DeadLetterFilter(error="100% of_them")),
        "not as a pattern": ann.dead_letters.find(DeadLetterFilter(error="100_ of%")),
        "reason": ann.dead_letters.find(DeadLetterFilter(reason="not_retryable")),
        "since": ann.dead_letters.find(DeadLetterFilter(since=datetime.now(timezone.utc) - timedelta(hours=1))),
        "until": ann.dead_letters.find(DeadLetterFilter(until=datetime.now(timezone.utc) - timedelta(hours=1))),
        "limit": ann.dead_letters.find(DeadLetterFilter(limit=2)),
    }
    assert {name: [letter.id for letter in letters] for name, letters in found.items()} == {
        "all": [refused, *slow[::-1], old],
        "kind": [refused],
        "error": [*slow[::-1], old],
        "signature": [refused],
        "percent": [refused],
        "not as a pattern": [],
        "reason": [refused],
        "since": [refused, *slow[::-1]],
        "until": [old],
        "limit": [refused, slow[1]],
    }


@pytest.mark.req("J-4")
def test_a_dead_letter_is_shown_without_secrets(ledger: Ledger, ann: Operator) -> None:
    token = IDS.set({"request_id": "r-1"})
    headers = {"content-type": "application/json", "authorization": f"Bearer {SECRET}"}
    (number,) = die(ledger, "shop:ann:o-1:receipt:v1", headers=headers)
    IDS.reset(token)
    ann.apply(ann.dead_letters.replay(DeadLetterFilter(ids=(number,))), because="again")
    lease = ledger.claim({"crm.sync": 1}, worker="w2")[0]
    ledger.settle(lease.dead("attempts", error=f"again, password={SECRET}"))
    report = ann.dead_letters.get(number)
    assert report is not None
    assert SECRET not in str(document(report))
    assert report.payload == {"user": "ann", "password": "[redacted]"}
    assert report.headers == {"content-type": "application/json", "authorization": "[redacted]"}
    assert report.ids == {"request_id": "r-1"}
    assert (report.letter.status, report.letter.replay_count) == ("pending", 1)
    first, second = report.jobs
    assert (first.state, second.state, second.replay_of) == ("replaced by a replay", "dlq", first.id)
    assert [(one.number, one.outcome, one.worker) for job in report.jobs for one in job.tries] == [
        (1, "failed", "w1"),
        (1, "failed", "w2"),
    ]
    assert ann.dead_letters.get(10**9) is None


@pytest.mark.parametrize(
    ("payload", "shown"),
    [(b"plain text", "plain text"), (b"\xff\x00", None), (b"", ""), (b"[1, 2]", [1, 2]), (b"\x00\x01", None)],
)
def test_payloads_of_any_type_are_shown_or_omitted(ledger: Ledger, ann: Operator, payload: bytes, shown: object) -> None:
    (number,) = die(ledger, "a", payload=payload)
    report = ann.dead_letters.get(number)
    assert report is not None
    assert (report.payload, report.payload_bytes) == (shown, len(payload))


@pytest.mark.req("O-5")
def test_a_preview_changes_nothing(ledger: Ledger, ann: Operator) -> None:
    die(ledger, "a", "b")
    before = ledger.dead_letters(), ledger.counts(), ledger.audit()
    plan = ann.dead_letters.replay(DeadLetterFilter(kind="crm.sync"))
    assert (plan.count, plan.kinds, plan.reasons) == (2, {"crm.sync": 2}, {"attempts": 2})
    ann.dead_letters.discard(DeadLetterFilter(kind="crm.sync"))
    ann.dead_letters.find()
    ann.status()
    ann.health.check()
    assert (ledger.dead_letters(), ledger.counts(), ledger.audit()) == before


@pytest.mark.req("O-5")
def test_actions_are_in_the_audit_log_with_actor_and_reason(ledger: Ledger, ann: Operator) -> None:
    first, second = die(ledger, "a", "b")
    ann.apply(ann.dead_letters.replay(DeadLetterFilter(ids=(first,))), because="the CRM is back")
    ann.apply(ann.dead_letters.discard(DeadLetterFilter(ids=(second,))), because="a test order")
    assert [(one.actor, one.action, one.because, one.what) for one in ann.audit.find()] == [
        ("ann", "dead.discard", "a test order", {"sweep": 2, "count": 1, "letters": [second], "rate": None, "canary": 0}),
        ("ann", "dead.replay", "the CRM is back", {"sweep": 1, "count": 1, "letters": [first], "rate": None, "canary": 0}),
    ]
    assert ann.audit.verify().holds


@pytest.mark.parametrize("because", ["", " \n", None])
def test_an_action_without_a_reason_is_rejected(ledger: Ledger, ann: Operator, because: str) -> None:
    (number,) = die(ledger, "a")
    for plan in (
        ann.dead_letters.replay(DeadLetterFilter(ids=(number,))),
        ann.dead_letters.discard(DeadLetterFilter(ids=(number,))),
    ):
        with pytest.raises(ValueError, match="because= must say why"):
            ann.apply(plan, because=because)
    assert ledger.audit() == []
    assert ledger.dead_letters()[0].status == "pending"


def test_an_operator_needs_a_name(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="actor= must say who"):
        Operator(ledger, actor=" ")


def test_an_empty_selection_is_rejected(ann: Operator) -> None:
    for wrong in (DeadLetterFilter(), DeadLetterFilter(limit=5)):
        with pytest.raises(ValueError, match="no dead letters selected; pass ids, kind"):
            ann.dead_letters.replay(wrong)
    with pytest.raises(ValueError, match="limit must be at least 1"):
        ann.dead_letters.replay(DeadLetterFilter(kind="x", limit=0))


def test_only_pending_dead_letters_are_planned_and_others_are_named(ledger: Ledger, ann: Operator) -> None:
    first, second, third = die(ledger, "a", "b", "c")
    ann.apply(ann.dead_letters.discard(DeadLetterFilter(ids=(second,))), because="old")
    plan = ann.dead_letters.replay(
        DeadLetterFilter(
            ids=(
                str(first),
                second,
                999,
            )
        )
    )
    assert (plan.ids, plan.skipped) == ((first,), {second: "discarded already", 999: "not found"})
    bounded = ann.dead_letters.replay(DeadLetterFilter(kind="crm.sync", limit=1))
    assert (bounded.ids, bounded.more, bounded.matched) == ((first,), True, 2)
    assert not ann.dead_letters.replay(DeadLetterFilter(kind="crm.sync", limit=2)).more
    assert ann.dead_letters.replay(DeadLetterFilter(kind="crm.sync")).ids == (first, third)


def test_dead_letters_changed_since_the_plan_are_skipped(ledger: Ledger, ann: Operator) -> None:
    first, second = die(ledger, "a", "b")
    plan = ann.dead_letters.discard(DeadLetterFilter(kind="crm.sync"))
    Operator(ledger, actor="bob").apply(ann.dead_letters.replay(DeadLetterFilter(ids=(first,))), because="mine")
    applied = ann.apply(plan, because="old")
    assert (list(applied.done), applied.skipped) == ([second], {first: "replaying"})


def test_a_large_plan_is_applied_in_complete_steps(ledger: Ledger, ann: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_model, "MAX_STEP_ITEMS", 2)
    numbers = die(ledger, "a", "b", "c", "d", "e")
    begun = ann.begin(ann.dead_letters.replay(DeadLetterFilter(kind="crm.sync")), because="all")
    steps = [list(step.done) for step in ann.carry_out(begun.id)]
    assert steps == [numbers[:2], numbers[2:4], numbers[4:]]
    assert len(ann.audit.find()) == 1
    assert ledger.imbalance() == []


PROGRAM = """
import sys
from redrive.ledger import open_ledger
from redrive.ledger import sweep
from redrive.ops.operator import Operator
sweep.MAX_STEP_ITEMS = 2
url, act = sys.argv[1:]
with open_ledger(url) as ledger:
    bob = Operator(ledger, actor="bob")
    running = [one for one in bob.sweeps() if one.state == "running"]
    begun = running[0] if running else bob.begin(getattr(bob, act)(kind="crm.sync"), because="bulk")
    for _ in bob.carry_out(begun.id):
        pass
"""


@pytest.mark.req("O-5", "M-4")
@pytest.mark.parametrize("how", ["exit", "kill"])
@pytest.mark.parametrize("step", ["before_commit", "after_commit"])
@pytest.mark.parametrize("act", ["replay", "discard"])
def test_a_sweep_of_a_killed_process_is_finished_by_the_next_one(
    url: str, ledger: Ledger, ann: Operator, act: str, step: str, how: str
) -> None:
    numbers = die(ledger, "a", "b", "c", "d", "e")
    command = [sys.executable, "-c", PROGRAM, url, act]
    killed = subprocess.run(command, env=os.environ | {VARIABLE: f"sweep.{step}:3:{how}"}, capture_output=True, text=True)
    assert killed.returncode == (137 if how == "exit" else -9), killed.stderr
    done = 2 if step == "before_commit" else 4
    left = [letter.id for letter in ledger.dead_letters(status="pending")]
    assert left == numbers[done:]
    assert (ann.sweeps.find()[0].made, ann.sweeps.find()[0].state) == (done, "running")
    assert ann.audit.verify().holds
    assert ledger.imbalance() == []
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert ledger.dead_letters(status="pending") == []
    (sweep,) = ann.sweeps.find()
    assert (sweep.state, sweep.made, sweep.skipped) == ("done", 5, 0)
    assert [entry.what["letters"] for entry in ann.audit.find()] == [numbers]
    report = ann.sweeps.get(sweep.id)
    assert report is not None
    assert [one.letter_id for one in report.outcomes] == numbers
    assert {one.outcome for one in report.outcomes} == {"replaying" if act == "replay" else "discarded"}
    assert ledger.imbalance() == []


def test_a_dead_letter_that_failed_again_has_its_first_and_last_time(ledger: Ledger, ann: Operator) -> None:
    (first,) = die(ledger, "a")
    pass_time(ledger, 7200)
    ann.apply(ann.dead_letters.replay(DeadLetterFilter(ids=(first,))), because="fixed")
    ledger.settle(ledger.claim({"crm.sync": 1}, worker="w")[0].dead("attempts", error="503"))
    (letter,) = ann.dead_letters.find(DeadLetterFilter(since=ledger.now() - timedelta(hours=1)))
    assert letter.id == first
    assert ledger.now() - letter.died_at < timedelta(hours=1) < ledger.now() - letter.created_at
    (group,) = ann.dead_letters.groups()
    assert group.last == letter.died_at
    assert ann.dead_letters.find(DeadLetterFilter(until=ledger.now() - timedelta(hours=1))) == []
    ann.apply(ann.dead_letters.discard(DeadLetterFilter(ids=(first,))), because="old")
    (discarded,) = ann.dead_letters.find(DeadLetterFilter(until=ledger.now() + timedelta(hours=1)), status=None)
    assert ann.dead_letters.find(DeadLetterFilter(until=discarded.died_at), status=None) == []


@pytest.mark.parametrize("name", ["kind", "reason", "error", "source"])
def test_an_empty_text_selects_nothing_for_a_plan(ann: Operator, name: str) -> None:
    values: dict[str, Any] = {name: ""}
    with pytest.raises(ValueError, match=f"{name}: empty text; leave it out, or pass a text"):
        ann.dead_letters.discard(DeadLetterFilter(**values))


def test_a_time_selects_the_same_for_plans_counts_and_exports(ledger: Ledger, ann: Operator) -> None:
    (old,) = die(ledger, "old")
    pass_time(ledger, 7200)
    die(ledger, "new")
    window = DeadLetterFilter(since=ledger.now() - timedelta(hours=3), until=ledger.now() - timedelta(hours=1))
    until = DeadLetterFilter(until=window.until)
    assert ann.dead_letters.replay(window).ids == ann.dead_letters.discard(until).ids == (old,)
    assert ann.dead_letters.count(window) == 1
    assert [one["id"] for one in ann.dead_letters.export(window)] == [old]
    with pytest.raises(ValueError, match="a datetime needs a time zone"):
        ann.dead_letters.find(DeadLetterFilter(until=datetime(2026, 1, 31)))  # noqa: DTZ001  # on purpose


@pytest.mark.req("M-4")
def test_apply_reports_changes_by_workers_too(ledger: Ledger) -> None:
    class BesideAWorker(Operator):
        def carry_out(self, sweep_id: int, /) -> Iterator[Applied]:
            for step in super().carry_out(sweep_id):
                yield step
                ledger.sweeps.step(sweep_id)

    many = 2 * MAX_STEP_ITEMS + 5
    for start in range(0, many, 50):
        die(ledger, *(f"k{at}" for at in range(start, min(many, start + 50))))
    ann = BesideAWorker(ledger, actor="ann")
    applied = ann.apply(ann.dead_letters.replay(DeadLetterFilter(kind="crm.sync")), because="fixed")
    assert (len(applied.done), applied.sweep.made) == (many, many)
    assert sorted(applied.done.values()) == sorted(item.job_id or 0 for item in ledger.sweeps.items(1, limit=many))


@pytest.mark.req("M-4")
def test_the_report_of_a_sweep_includes_the_canary_result(ledger: Ledger, ann: Operator) -> None:
    die(ledger, "a", "b", "c")
    begun = ann.begin(ann.dead_letters.replay(DeadLetterFilter(kind="crm.sync")), because="fixed", canary=2)
    ledger.sweeps.step(begun.id)
    seen = []
    for end in ("done", "again", "done"):
        report = ann.sweeps.get(begun.id)
        assert report is not None
        assert report.canary is not None
        seen.append((report.canary.verdict, report.canary.done, report.canary.failed, report.canary.error))
        lease = ledger.claim({"crm.sync": 1}, worker="w")[0]
        ledger.settle(lease.done() if end == "done" else lease.again(0, error="503 still\nat line 3", reason="failed"))
    assert seen == [("running", 0, 0, None), ("running", 1, 0, None), ("failed", 1, 1, "503 still")]
    report = ann.sweeps.get(begun.id)
    assert report is not None
    assert report.canary is not None
    assert report.canary.verdict == "passed", "its retry ended well"


def test_a_sweep_is_controlled_with_an_actor_and_a_reason(ledger: Ledger, ann: Operator) -> None:
    die(ledger, "a", "b")
    begun = ann.begin(ann.dead_letters.replay(DeadLetterFilter(kind="crm.sync")), because="fixed", rate=1, canary=1)
    assert (begun.state, begun.selection, begun.rate, begun.canary, begun.left) == ("running", {"kind": "crm.sync"}, 1.0, 1, 2)
    with pytest.raises(ValueError, match="because= must say why"):
        ann.sweeps.pause(begun.id, because=" ")
    assert ann.sweeps.pause(begun.id, because="wait").state == "paused"
    assert [step.done for step in ann.carry_out(begun.id)] == [{}]
    assert ann.sweeps.resume(begun.id, because="go on").state == "running"
    assert ann.sweeps.cancel(begun.id, because="never mind").state == "cancelled"
    with pytest.raises(NotAllowed, match="is cancelled"):
        ann.sweeps.pause(begun.id, because="x")
    said = [entry.action for entry in ann.audit.find()]
    assert said == ["sweep.cancel", "sweep.resume", "sweep.pause", "dead.replay"]
    assert ann.sweeps.get(99) is None


@pytest.mark.req("M-4")
def test_resume_after_a_failed_canary_must_accept_the_failure(ledger: Ledger, ann: Operator) -> None:
    die(ledger, "a", "b", "c")
    begun = ann.begin(ann.dead_letters.replay(DeadLetterFilter(kind="crm.sync")), because="fixed", canary=1)
    ledger.sweeps.step(begun.id)
    ledger.settle(ledger.claim({"crm.sync": 1}, worker="w")[0].dead("attempts", error="503"))
    assert ledger.sweeps.step(begun.id).sweep.state == "halted"
    with pytest.raises(NotAllowed, match="replay the other 2 without another canary.*accept_failed_canary=True"):
        ann.sweeps.resume(begun.id, because="go on")
    assert ann.sweeps.resume(begun.id, because="go on", accept_failed_canary=True).state == "running"
    ann.sweeps.pause(begun.id, because="wait")
    assert ann.sweeps.resume(begun.id, because="go on").state == "running", "the failure was accepted before"


@pytest.mark.parametrize("wrong", [{"rate": 0}, {"rate": -1}, {"canary": -1}, {"canary": True}])
def test_a_sweep_with_invalid_numbers_is_rejected_and_nothing_is_written(
    ledger: Ledger, ann: Operator, wrong: dict[str, Any]
) -> None:
    die(ledger, "a")
    with pytest.raises(ValueError, match="rate|canary"):
        ann.begin(ann.dead_letters.replay(DeadLetterFilter(kind="crm.sync")), because="x", **wrong)
    assert ann.sweeps.find() == []
    assert ledger.audit() == []


@pytest.mark.req("O-2")
def test_a_reviewed_plan_excludes_later_dead_letters_and_detects_drift(ledger: Ledger, ann: Operator) -> None:
    first = die(ledger, "a", "b", "c")
    seen = ann.dead_letters.replay(DeadLetterFilter(kind="crm.sync", upto=first[-1]))
    assert (seen.ids, seen.errors) == (tuple(first), {"TimeoutError": 3})
    later = die(ledger, "d")
    same = ann.dead_letters.replay(DeadLetterFilter(kind="crm.sync", upto=first[-1]))
    assert same.digest == seen.digest, "later dead letters are not part of the plan"
    assert ann.dead_letters.discard(DeadLetterFilter(kind="crm.sync", upto=first[-1])).digest != seen.digest
    ledger.discard(first[:1], actor="ben", because="faster")
    with pytest.raises(Drift, match="the plan has changed"):
        ann.begin(
            ann.dead_letters.replay(DeadLetterFilter(kind="crm.sync", upto=first[-1])), because="it is back", seen=seen.digest
        )
    assert [one.id for one in ann.dead_letters.find()] == [*later, *first[:0:-1]], "nothing was done"


def test_lists_have_pages_and_groups_are_by_cause(ledger: Ledger, ann: Operator) -> None:
    timeouts = die(ledger, "a", "b", "c")
    rejected = die(ledger, "d", kind="mail.send", reason="permanent", error="Refused: 422", signature=None)
    assert [one.id for one in ann.dead_letters.find(DeadLetterFilter(limit=2))] == [*rejected, timeouts[-1]]
    assert [one.id for one in ann.dead_letters.find(before=timeouts[-1])] == timeouts[1::-1]
    found = [(group.kind, group.signature, group.count, group.letter_id) for group in ann.dead_letters.groups()]
    assert found == [("crm.sync", "TimeoutError", 3, timeouts[-1]), ("mail.send", "permanent", 1, rejected[0])]
    assert {one.kind for one in ann.jobs.find(state="dlq", limit=3)} == {"crm.sync", "mail.send"}


@pytest.mark.req("Q-12")
def test_groups_cover_all_dead_letters(ledger: Ledger, ann: Operator) -> None:
    old = die(ledger, *(f"old-{each}" for each in range(30)), signature="KeyError", error="KeyError: 7")
    unsigned = die(ledger, "x", "y", signature=None, reason="permanent")
    new = die(ledger, *(f"{each}" for each in range(1100)))
    mail = die(ledger, "z", kind="mail.send", signature="KeyError")

    def found(*which: DeadLetterFilter, **options: Any) -> list[tuple[str, str, int, int]]:
        groups = ann.dead_letters.groups(*which, **options)
        return [(group.kind, group.signature, group.count, group.letter_id) for group in groups]

    crm = [
        ("crm.sync", "TimeoutError", 1100, new[-1]),
        ("crm.sync", "KeyError", 30, old[-1]),
        ("crm.sync", "permanent", 2, unsigned[-1]),
    ]
    assert found() == [*crm, ("mail.send", "KeyError", 1, mail[0])]
    assert found(DeadLetterFilter(kind="crm.sync")) == crm
    assert found(DeadLetterFilter(error="KeyError: 7")) == [crm[1]]
    assert found(DeadLetterFilter(kind="crm.sync", since=ledger.now() - timedelta(hours=1))) == crm
    assert found(status=None) == found()
    ledger.discard(old[:10], actor="ann", because="old")
    assert found(DeadLetterFilter(kind="crm.sync"))[1] == ("crm.sync", "KeyError", 20, old[-1])
    assert found(status="discarded") == [("crm.sync", "KeyError", 10, old[9])]
