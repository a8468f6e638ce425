"""`redrive dead`, and behaviour of all commands: widths, JSON, exit codes, no secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len

from redrive.ledger import Ledger, NewJob
from redrive.ops import Operator
from redrive.ops.sweeps import Applied
from redrive.ops.workers import WorkerOperations
from tests.unit.cli.command import call, on_terminal
from tests.unit.cli.conftest import KEY, SECRET

SHOWN = [
    ("ledger", "status"),
    ("dead", "list"),
    ("dead", "list", "--status", "all"),
    ("dead", "show", "1"),
    ("dead", "show", "6"),
    ("dead", "replay", "4", "1", "99", "--because", "x", "--dry-run"),
    ("sweeps", "list"),
    ("sweeps", "show", "1"),
    ("keys", "list"),
    ("keys", "show", KEY),
    ("keys", "show", "shop:bob:o-2:charge:v1"),
    ("audit", "list"),
    ("audit", "verify"),
    ("doctor",),
]


@pytest.mark.parametrize("arguments", SHOWN, ids=" ".join)
@pytest.mark.usefixtures("busy")
def test_output_fits_the_terminal_and_has_no_secrets(arguments: tuple[str, ...]) -> None:
    for width in (60, 80, 120):
        _, printed = call(*arguments, width=width)
        assert max(cell_len(line) for line in printed.splitlines()) <= width, width
        assert SECRET not in printed
        assert "Traceback" not in printed


@pytest.mark.req("J-4")
@pytest.mark.parametrize("arguments", SHOWN, ids=" ".join)
@pytest.mark.usefixtures("busy")
def test_json_is_one_document_without_secrets(arguments: tuple[str, ...]) -> None:
    _, printed = call(*arguments, "--json")
    json.loads(printed)
    assert SECRET not in printed


@pytest.mark.usefixtures("busy")
def test_dead_letters_are_listed_and_filtered() -> None:
    status, printed = call("dead", "list", width=180)
    assert status == 0
    assert printed.startswith("9 dead letters: attempts ×7, the customer's credentials have expired ×2\n")
    assert "crm.sync" in printed
    assert "HTTPStatusError: 503 for https://" in printed
    assert call("dead", "list", "--kind", "receipts.send")[1] == "No dead letter matches; 9 pending in total.\n"
    assert call("dead", "list", "--since", "1h", "--error", "httpstatus", "--reason", "attempts")[1].startswith("7 dead letters")
    assert "Showing 2 of 9; use --limit for more." in call("dead", "list", "--limit", "2")[1]
    assert "discarded" in call("dead", "list", "--status", "all")[1]
    assert call("dlq", "list")[1].split("\n")[0] == printed.split("\n")[0]
    assert [letter["id"] for letter in json.loads(call("dead", "list", "--json", "--status", "discarded")[1])] == [3]


def test_empty_lists_have_a_message(ledger: Ledger) -> None:
    assert call("ledger", "status", width=300)[1].splitlines()[1:] == [
        "No jobs.",
        "",
        "No workers.",
    ]
    assert call("keys", "list")[1] == "No idempotency records. Job keys are listed by `redrive jobs list`.\n"
    assert call("audit", "list")[1].startswith("No decisions.")
    assert "Audit log unchanged: 0 entries" in call("audit", "verify")[1]
    assert call("doctor")[0] == 0
    ledger.submit(NewJob("mail", "a"))
    ledger.settle(ledger.claim({"mail": 1}, worker="w")[0].done())
    expected = "No dead letters. 1 submitted = 1 done + 0 queued + 0 running + 0 dead + 0 discarded or replayed.\n"
    assert call("dead", "list") == (0, expected)
    assert call("keys", "list", "--user", "x") == (0, "No idempotency record matches.\n")
    assert call("audit", "list", "--by", "x") == (0, "No decision matches. `redrive audit list --all` includes automatic ones.\n")
    assert call("dead", "replay", "--kind", "mail", "--because", "x") == (
        1,
        "No pending dead letter matches.\n",
    )


@pytest.mark.usefixtures("busy")
def test_a_dead_letter_is_shown_with_payload_and_attempts() -> None:
    _, printed = call("dead", "show", "1")
    for said in (
        "Dead letter 1",
        "replaying, replayed once",
        "request_id  r-1",
        '"password": "[redacted]"',
        "authorization  [redacted]",
        "replaced by a replay, 1 attempt",
        "(replay of job",
        "by web-7f9c:1201",
        " UTC",
    ):
        assert said in printed
    assert 'redrive dead replay 6 --because "..."' in call("dead", "show", "6")[1]
    assert call("dead", "show", "99") == (1, "redrive: dead letter 99: not found; `redrive dead list --status all` lists all\n")


def test_dead_letters_are_replayed_and_discarded_by_id(busy: Ledger) -> None:
    status, printed = call("dead", "replay", "4", "5", "--because", "fixed", "--actor", "carol")
    assert status == 0
    assert printed.splitlines()[0] == "To replay: 2 dead letters (crm.sync ×2; attempts ×2)"
    assert printed.splitlines()[1].startswith("Dead letter 4 queued as job ")
    assert call("dead", "discard", "6", "--because", "old", "--actor", "carol")[0] == 0
    status, printed = call("dead", "discard", "7", "4", "77", "--because", "old", "--actor", "carol")
    assert status == 1
    assert "Skipped 4: replaying already\nSkipped 77: not found\n" in printed
    assert [(one.actor, one.action) for one in busy.audit(after=4)] == [
        ("carol", "dead.replay"),
        ("carol", "dead.discard"),
        ("carol", "dead.discard"),
    ]
    assert busy.imbalance() == []


def test_the_actor_is_the_user_unless_one_is_passed(busy: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "dora")
    assert call("dead", "replay", "4", "--because", "fixed")[0] == 0
    assert busy.audit()[-1].actor == "dora"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("dead", "replay", "4"), 2, "Missing option '--because'"),
        (("dead", "replay", "4", "--because", " "), 2, "--because: pass a reason"),
        (("dead", "replay", "--because", "x"), 2, "no dead letters selected; pass IDs, or --kind"),
        (("dead", "replay", "--kind", "crm.sync", "--because", "x"), 2, "pass --yes --max 3 to replay 3. Nothing was changed"),
        (("dead", "replay", "--kind", "crm.sync", "--because", "x", "--yes"), 2, "--yes: needs --max N"),
        (
            ("dead", "replay", "--kind", "crm.sync", "--because", "x", "--yes", "--max", "1"),
            1,
            "--max 1: 3 match; nothing was changed",
        ),
        (("dead", "replay", "four", "--because", "x"), 2, "must be a whole number"),
        (("dead", "list", "--since", "yesterday"), 2, "invalid time 'yesterday': use 90s"),
        (("dead", "list", "--since", "999999999999d"), 2, "too long ago"),
        (("dead", "list", "--limit", "0"), 2, "--limit"),
        (("dead", "list", "--status", "odd"), 2, "--status"),
        (("keys", "show", "a:b"), 2, "a key has at least 5 parts"),
        (("keys", "show", "a:b:c:d:e"), 1, "a:b:c:d:e: no idempotency record; the key is free"),
        (("keys", "release", "a:b:c:d:e", "--because", "x"), 1, "key 'a:b:c:d:e' not found"),
        (("keys", "release", KEY, "--because", ""), 2, "empty value"),
        (("keys", "release", KEY), 2, "Missing option '--because'"),
        (("audit", "verify", "--anchor", "7"), 2, "an anchor must be a number and a hash"),
        (("ledger", "recount", "--because", ""), 2, "empty value"),
        (("dead", "list", "--actor", "x"), 2, "No such option"),
        (("dead", "replay", "4", "--because", "x", "--actor", ""), 2, "empty value"),
    ],
)
def test_a_rejected_command_changes_nothing(busy: Ledger, arguments: tuple[str, ...], status: int, message: str) -> None:
    before = busy.dead_letters(), busy.audit()
    found, printed = call(*arguments)
    assert (found, message in printed) == (status, True), printed
    assert (busy.dead_letters(), busy.audit()) == before


def test_yes_and_max_replace_the_prompt(busy: Ledger) -> None:
    asked = ("dead", "replay", "--kind", "crm.sync", "--error", "503", "--because", "fixed")
    assert call(*asked, "--dry-run")[0] == 0
    assert len(busy.audit()) == 4
    status, printed = call(*asked, "--yes", "--max", "2", "--json")
    told = json.loads(printed)
    assert status == 0
    assert (told["plan"]["ids"], sorted(told["done"]), told["skipped"]) == ([4, 5], ["4", "5"], {})
    assert call(*asked, "--yes", "--max", "0")[0] == 1  # no dead letter is left to replay


@pytest.mark.parametrize("act", ["discard", "replay"])
@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (("--limit", "3", "--max", "3"), "--max 3: 7 match; nothing was changed"),
        (("--limit", "3", "--max", "9"), "--limit 3: 7 match; nothing was changed; pass --limit 7, or narrow the selection"),
    ],
)
def test_a_script_changes_nothing_if_more_match_than_the_limit(
    busy: Ledger, act: str, limits: tuple[str, ...], message: str
) -> None:
    before = busy.dead_letters(), busy.audit()
    status, printed = call("dead", act, "--reason", "attempts", "--because", "old", "--yes", *limits)
    assert (status, message in printed) == (1, True), printed
    assert "7 match; only the oldest 3 are included. Use --limit 7 for all of them." in printed
    assert (busy.dead_letters(), busy.audit()) == before
    assert call("dead", act, "--reason", "attempts", "--because", "old", "--yes", "--max", "7")[0] == 0


def test_the_number_for_a_script_includes_matches_beyond_the_limit(busy: Ledger) -> None:
    status, printed = call("dead", "discard", "--reason", "attempts", "--limit", "3", "--because", "old")
    assert (status, "pass --yes --max 7 --limit 7 to discard 7. Nothing was changed" in printed) == (2, True), printed
    assert len(busy.dead_letters(status="pending", reason="attempts")) == 7


def test_an_idempotency_record_is_released(busy: Ledger) -> None:
    assert call("keys", "release", KEY, "--because", "wrong answer") == (0, f"Released: {KEY} (was completed)\n")
    assert call("keys", "show", KEY)[0] == 1
    assert busy.audit()[-1].action == "key.release"
    assert json.loads(call("keys", "release", "shop:bob:o-2:charge:v1", "--because", "x", "--json")[1])["status"] == "failed"


@pytest.mark.usefixtures("busy")
def test_a_canary_without_a_worker_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Operator, "carry_out", lambda *_: iter(()))  # it would wait for a worker
    monkeypatch.setattr(WorkerOperations, "missing", lambda *_: "No worker is online (none seen so far)")
    asked = ("dead", "replay", "--kind", "crm.sync", "--error", "503", "--because", "fixed", "--yes", "--max", "9")
    printed = call(*asked, "--canary", "1")[1]
    assert "No worker is online (none seen so far); the canary (1) waits for a worker" in " ".join(printed.split())


def test_a_command_reports_that_it_waits_for_the_canary(busy: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    busy.maintenance.heartbeat("w1")
    missing = iter([None, "No worker is online (last seen 2 min ago)"])

    def wait(self: Operator, sweep_id: int, /) -> Iterator[Applied]:
        busy.sweeps.step(sweep_id)
        for _ in range(10):
            sweep = self.sweeps.get(sweep_id)
            assert sweep is not None
            yield Applied({}, {}, sweep.sweep)

    monkeypatch.setattr(Operator, "carry_out", wait)
    monkeypatch.setattr(WorkerOperations, "missing", lambda *_: next(missing))
    asked = ("dead", "replay", "--kind", "crm.sync", "--error", "503", "--because", "fixed", "--yes", "--max", "9")
    printed = " ".join(call(*asked, "--canary", "1")[1].split())
    assert printed.count("Waiting for 1 canary job; last worker heartbeat: ") == 1
    assert "No worker is online (last seen 2 min ago); the canary (1) waits for a worker" in printed


@pytest.mark.req("M-4")
def test_a_replay_counts_jobs_that_a_worker_replayed(busy: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    def beside_a_worker(self: Operator, sweep_id: int, /) -> Iterator[Applied]:
        busy.sweeps.step(sweep_id)
        return self.sweeps.carry_out(sweep_id)

    monkeypatch.setattr(Operator, "carry_out", beside_a_worker)
    asked = ("dead", "replay", "--kind", "crm.sync", "--error", "503", "--because", "fixed", "--yes", "--max", "9")
    status, printed = call(*asked)
    assert (status, printed.count("queued as job")) == (0, 2)


def test_a_list_that_is_cut_starts_with_the_total(busy: Ledger) -> None:
    assert call("dead", "list", "--limit", "2")[1].startswith("9 dead letters match; the newest 2: ")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("dead", "list", "--ledger", ""), 2, "empty value; leave it out"),
        (("dead", "list", "--ledger", "mysql://x"), 2, "a ledger's address is"),
        (("dead", "export", "99999"), 1, "dead letters not found: 99999"),
        (("dead", "export", "99999", "--json"), 1, "dead letters not found: 99999"),
        (("dead", "replay", "--kind", "receipts.send", "--because", "fixed"), 1, "No pending dead letter matches."),
        (("dead", "replay", "--kind", "receipts.send", "--because", "fixed", "--dry-run"), 1, "No pending dead letter matches."),
    ],
)
def test_exit_codes_are_those_of_the_help(busy: Ledger, arguments: tuple[str, ...], status: int, message: str) -> None:
    code, printed = call(*arguments, width=200)
    assert (code, message in " ".join(printed.split())) == (status, True), printed


@pytest.mark.usefixtures("busy")
def test_an_interrupted_prompt_is_exit_code_130(url: str) -> None:
    replay = ("dead", "replay", "--kind", "crm.sync", "--because", "fixed")
    status, printed = on_terminal(*replay, typed="\x04", REDRIVE_LEDGER=url)
    assert (status, "interrupted; nothing was changed" in printed) == (130, True), printed


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("command", [("dead", "list"), ("dead", "export"), ("failures",), ("audit", "list", "--all")])
def test_until_selects_older_entries(command: tuple[str, ...]) -> None:
    assert call(*command, "--since", "1h", "--json")[1].count('"id"' if command[0] == "dead" else "{") > 1
    nothing = call(*command, "--until", "1h", "--json")
    assert nothing[0] == 0
    assert json.loads(nothing[1] or "[]") in ([], {"jobs": [], "partitions": []})
    status, printed = call(*command, "--since", "1h", "--until", "2h")
    assert (status, "--until: 2h is not after --since 1h" in " ".join(printed.split())) == (2, True)
    status, printed = call(*command, "--until", "yesterday")
    assert (status, "Invalid value for --until: invalid time 'yesterday'" in " ".join(printed.split())) == (2, True)


@pytest.mark.usefixtures("busy")
def test_a_replay_until_a_time_skips_newer_dead_letters() -> None:
    printed = call("dead", "replay", "--until", "1h", "--dry-run", "--because", "x")[1]
    assert "No pending dead letter matches." in printed


def test_an_invalid_number_is_rejected_with_an_example() -> None:
    for arguments, said in (
        (("jobs", "show", "abc"), "'ID': must be a whole number, such as 42"),
        (("jobs", "list", "--limit", "0"), "'--limit': must be at least 1"),
        (("workers", "list", "--heartbeat-timeout", "x"), "'--heartbeat-timeout': must be a number, such as 0.5"),
    ):
        status, printed = call(*arguments)
        assert (status, f"Invalid value for {said}" in printed) == (2, True), printed


def test_a_missing_ledger_suggests_a_wrong_address(tmp_path: Path) -> None:
    status, printed = call("jobs", "list", "--ledger", f"sqlite:///{tmp_path}/none.db")
    assert status == 3
    assert f"no ledger at {tmp_path}/none.db; check the address (`redrive config`)" in printed
    assert f"for a new ledger: `redrive ledger migrate --ledger sqlite:///{tmp_path}/none.db`" in printed
    assert "open_ledger" not in printed
