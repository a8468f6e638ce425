"""Dead letters that are exported and replayed with another payload: the dead letter keeps the original."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from redrive import App
from redrive.cli.root import app as cli
from redrive.errors import NotAllowed
from redrive.ledger import Ledger, NewJob
from redrive.ops import DeadLetterFilter
from redrive.ops.operator import Operator
from tests.conformance.ops.world import SECRET, die


def call(url: str, *arguments: str, typed: str | None = None) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["dead", *arguments, "--ledger", url], input=typed)
    return done.exit_code, done.output


@pytest.mark.req("M-4")
def test_an_edited_replay_runs_the_new_payload_and_the_dead_letter_keeps_the_original(ledger: Ledger, ann: Operator) -> None:
    (number,) = die(ledger, "o-1", payload={"cents": "many"}, headers={"x": "1"})
    job_id = ann.dead_letters.replay_edited(number, b'{"cents": 5}', because="the shop sent a word")
    (lease,) = ledger.claim({"crm.sync": 10}, worker="w1")
    assert (lease.job_id, lease.key, lease.payload, lease.dead_id) == (job_id, "o-1", b'{"cents": 5}', number)
    assert lease.headers == {"x": "1", "redrive-edited": "ann"}
    ledger.settle(lease.dead("attempts", error="still wrong"))
    (letter,) = ledger.dead_letters(ids=[number])
    assert (json.loads(letter.payload), letter.status, letter.replay_count) == ({"cents": "many"}, "pending", 1)
    entry = ann.audit.find()[0]
    assert (entry.action, entry.actor, entry.because) == ("dead.replay", "ann", "the shop sent a word")
    assert entry.what["edited"][str(number)]["bytes"] == 12
    assert ledger.imbalance() == []


@pytest.mark.req("M-4")
def test_the_report_names_the_replays_with_an_edited_payload(url: str, ledger: Ledger, ann: Operator) -> None:
    (number,) = die(ledger, "o-1", payload={"cents": "many"}, headers={"x": "1"})
    edited = ann.dead_letters.replay_edited(number, b'{"cents": 5}', because="the shop sent a word")
    ledger.settle(ledger.claim({"crm.sync": 1}, worker="w1")[0].dead("attempts", error="still wrong"))
    ann.apply(ann.dead_letters.replay(DeadLetterFilter(ids=(number,))), because="as it came")
    (lease,) = ledger.claim({"crm.sync": 1}, worker="w1")
    assert (json.loads(lease.payload), lease.headers) == ({"cents": "many"}, {"x": "1"}), "no longer edited"
    report = ann.dead_letters.get(number)
    assert report is not None
    assert report.edited_jobs == (edited,)
    assert [job.edited_by for job in report.jobs] == [None, "ann", None]
    printed = call(url, "show", str(number))[1]
    assert f"payload of job {edited}; " in printed
    assert "The payload below is the original" in printed
    assert "payload edited by ann" in printed


@pytest.mark.parametrize(("reason", "is_suggested"), [("undecodable", False), ("payload_lost", False), ("attempts", True)])
def test_no_replay_is_suggested_if_it_would_fail_again(
    url: str, ledger: Ledger, ann: Operator, reason: str, is_suggested: bool
) -> None:
    ledger.submit(NewJob("crm.sync", "o-1", b"{}"))
    (lease,) = ledger.claim({"crm.sync": 1}, worker="w1")
    ledger.settle(lease.dead(reason, error="stored arguments don't fit crm.sync"))
    (letter,) = ann.dead_letters.find()
    printed = call(url, "show", str(letter.id))[1]
    assert (f"redrive dead replay {letter.id}" in printed) is is_suggested
    assert f"redrive dead discard {letter.id}" in printed
    report = ann.jobs.get(lease.job_id)
    assert report is not None
    assert (f"redrive dead replay {letter.id}" in report.says) is is_suggested
    if reason == "undecodable":
        assert "code that accepts the stored arguments, or a corrected payload (--edit FILE)" in printed
        assert f"redrive dead export {letter.id} --raw" in printed


def test_an_edit_that_would_fail_again_is_rejected(ledger: Ledger, ann: Operator) -> None:
    (number,) = die(ledger, "o-1")
    with pytest.raises(ValueError, match=r"has \[redacted\] in place of a secret"):
        ann.dead_letters.replay_edited(number, b'{"user": "bob", "password": "[redacted]"}', because="x")
    with pytest.raises(ValueError, match="was JSON, but the new one is not"):
        ann.dead_letters.replay_edited(number, b'{"user": ', because="x")
    with pytest.raises(ValueError, match="the ledger takes at most"):
        ann.dead_letters.replay_edited(number, b"x" * (ledger.max_payload + 1), because="x")
    with pytest.raises(NotAllowed, match="dead letter 99 not found"):
        ann.dead_letters.replay_edited(99, b"{}", because="x")
    with pytest.raises(ValueError, match="because"):
        ann.dead_letters.replay_edited(number, b"{}", because=" ")
    assert ledger.dead_letters(ids=[number])[0].status == "pending"
    ann.apply(ann.dead_letters.discard(DeadLetterFilter(ids=(number,))), because="enough")
    with pytest.raises(NotAllowed, match="was not replayed: discarded"):
        ann.dead_letters.replay_edited(number, b"{}", because="x")


@pytest.mark.req("J-4")
def test_an_export_has_no_secrets_unless_a_reason_is_passed(ledger: Ledger, ann: Operator) -> None:
    first, second = die(ledger, "o-1", "o-2", headers={"authorization": f"Bearer {SECRET}"})
    (binary,) = die(ledger, "o-3", kind="mail", payload=b"\xff\x00")
    masked = list(ann.dead_letters.export())
    assert [one["id"] for one in masked] == [first, second, binary]
    assert SECRET not in json.dumps(masked)
    assert masked[0]["payload"]["user"] == "ann"
    assert [(one.because, one.what["masked"]) for one in ann.audit.find()] == [("secrets masked", True)]
    raw = {one["id"]: one for one in ann.dead_letters.export(because="to compare with the shop")}
    assert json.loads(raw[first]["payload_text"])["password"] == SECRET
    assert raw[first]["headers"]["authorization"] == f"Bearer {SECRET}"
    assert base64.b64decode(raw[binary]["payload_base64"]) == b"\xff\x00"
    assert [one.because for one in ann.audit.find(action="dead.export")] == ["to compare with the shop", "secrets masked"]
    assert [one["id"] for one in ann.dead_letters.export(DeadLetterFilter(kind="mail"))] == [binary]
    assert [one["id"] for one in ann.dead_letters.export(DeadLetterFilter(limit=2))] == [first, second]


def test_edited_payloads_are_replayed_on_the_command_line(url: str, ledger: Ledger, tmp_path: Path) -> None:
    first, second, third = die(ledger, "o-1", "o-2", "o-3")
    status, printed = call(url, "export")
    assert status == 0
    assert [json.loads(line)["id"] for line in printed.splitlines()] == [first, second, third]
    assert SECRET not in printed
    assert len(json.loads(call(url, "export", "--json", "--limit", "2")[1])) == 2
    assert call(url, "export", "--raw")[0] == 2
    assert SECRET in call(url, "export", str(first), "--raw", "--because", "to mend it")[1]
    file = tmp_path / "payload.json"
    file.write_text('{"user": "bob"}')
    assert call(url, "replay", str(first), "--edit", str(file), "--because", "a wrong user")[0] == 0
    status, printed = call(url, "replay", str(second), "--edit", "-", "--because", "x", "--json", typed='{"user": "cid"}')
    assert (status, json.loads(printed)["edited"]) == (0, [second])
    assert call(url, "replay", str(third), "--payload", '{"user": "dan"}', "--because", "x")[0] == 0
    assert {lease.payload for lease in ledger.claim({"crm.sync": 9}, worker="w")} == {
        b'{"user": "bob"}', b'{"user": "cid"}', b'{"user": "dan"}',
    }  # fmt: skip
    assert call(url, "replay", str(first), str(second), "--payload", "{}", "--because", "x")[0] == 2
    assert call(url, "replay", str(first), "--edit", str(tmp_path / "none"), "--because", "x")[0] == 2
    assert call(url, "replay", str(first), "--payload", "{}", "--because", "x")[0] == 1, "it is being replayed"


def test_a_payload_that_does_not_fit_the_command_is_rejected(ledger: Ledger) -> None:
    app = App(ledger)

    @app.command("crm.sync")
    def charge(cents: int, token: str = "s3cret-value") -> None: ...

    (number,) = die(ledger, "o-1", payload={"cents": 1})
    ann = Operator(app, actor="ann")
    with pytest.raises(ValueError, match=r"does not fit crm.sync: .*'?cent.*Nothing was changed") as caught:
        ann.dead_letters.replay_edited(number, b'{"cent": 5}', because="typo")
    assert "cents: int, token: str = …" in str(caught.value)
    assert "s3cret-value" not in str(caught.value)
    assert ledger.dead_letters()[0].status == "pending"
    assert ann.dead_letters.replay_edited(number, b'{"cents": 5}', because="corrected")
