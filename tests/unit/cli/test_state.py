"""`redrive state | backfill | plan`: what they print, at every width; what they refuse; their exit status."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from rich.cells import cell_len

from redrive.cli.confirm import agreed
from redrive.ledger import Ledger, open_ledger
from redrive.ledger.record import Entry
from redrive.ops import stored_plan
from redrive.partitions.grid import Grid
from redrive.partitions.partition import Partition
from tests.conformance.partitions.world import DAY, World
from tests.unit.cli.command import call, on_terminal

ODD = "Zoë, Söhne/Co"
BAD = f"crm/c3/orders/{DAY}"


@pytest.fixture
def lake(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Eight customers of one day: c0 to c2 accepted, c3 and c4 failed, c5 without raw data, c6 terminal, c7 running; and one
    with an odd name, whose newer run was rejected. Sweep 2 is a backfill under way."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    world = World(ledger)
    world.backfill([*(f"c{n}" for n in range(8)), ODD])
    leases = {lease.partition.customer_id: lease for lease in world.claim()}
    world.accept(*(leases[name] for name in ("c0", "c1", "c2", ODD)), rows=48_201)
    world.reject(leases["c3"])
    world.reject(leases["c4"], reason="TimeoutError")
    world.reject(leases["c5"], reason="ConnectError", manifest=False)
    world.reject(leases["c6"], final=True)
    world.retry(Partition("crm", ODD, "orders", DAY), act="reprocess")
    (lease,) = world.claim()
    world.reject(lease)
    days = Grid.of("crm", "orders", ["c0", "c1"], DAY + timedelta(days=1), DAY + timedelta(days=200))
    world.control.backfill(days, actor="jane@example.com", because="three years of history", share=0.2, canary=50, halt_on=0.05)
    yield world
    assert world.register.imbalance() == []


def audited(lake: World, action: str) -> list[Entry]:
    return [entry for entry in lake.ledger.audit(limit=1000) if entry.action == action]


SHOWN = [
    ("state", "inspect"),
    ("state", "inspect", "crm/orders"),
    ("state", "inspect", "--calendar", "--since", "2026-02-01", "--until", "2026-04-01"),
    ("state", "failures"),
    ("state", "failures", "--terminal"),
    ("state", "history", BAD),
    ("state", "history", f"crm/Zoë, Söhne%2FCo/orders/{DAY}"),
    ("state", "explain", BAD),
    ("state", "explain", f"crm/c7/orders/{DAY}"),
    ("state", "explain", f"crm/Zoë, Söhne%2FCo/orders/{DAY}"),
    ("state", "explain", f"crm/nobody/orders/{DAY}"),
    ("state", "retry", "crm/orders", "--dry-run", "--clear-terminal"),
    ("state", "mark-terminal", "crm/orders", "--dry-run", "--because", "x"),
    ("backfill", "list", "--all"),
    ("backfill", "status", "3"),
    ("backfill", "plan", "crm/orders", "--since", "2025-01-01", "--until", "2025-12-31", "--customer-id", "c0"),
    ("doctor",),
]


@pytest.mark.usefixtures("lake")
def test_it_fits_the_terminal_and_json_is_one_document() -> None:
    for arguments in SHOWN:
        for width in (60, 80):
            _, printed = call(*arguments, width=width)
            assert max(cell_len(line) for line in printed.splitlines()) <= width, arguments
        json.loads(call(*arguments, "--json")[1])


@pytest.mark.req("O-1")
@pytest.mark.usefixtures("lake")
def test_listed_and_narrowed_down() -> None:
    printed = call("state", "inspect")[1]
    assert printed.splitlines()[1].split() == ["crm/orders", "3", "1", "1", "3", "1"]
    status, printed = call("state", "inspect", "crm/orders", "--status", "failed", width=160)
    assert status == 0
    assert printed.splitlines()[0].startswith("4 partitions: row_count ×2")
    assert [line.split()[:2] for line in printed.splitlines()[3:7]] == [
        ["✗", BAD], ["✗", f"crm/c4/orders/{DAY}"], ["✗", f"crm/c5/orders/{DAY}"], ["!", f"crm/c6/orders/{DAY}"],
    ]  # fmt: skip
    assert "1 partition: row_count" in call("state", "failures", "--terminal")[1]
    assert "5 partitions" in call("state", "failures", "--source", "crm", "--query-name", "orders", "--date", str(DAY))[1]
    assert "1 partition\n" in call("state", "inspect", "--lane", "backfill", "--customer-id", "c7")[1]
    assert call("state", "inspect", "--min-attempts", "9")[1].startswith("no partition matches")
    assert "More may match: --after" in call("state", "inspect", "crm", "--limit", "2")[1]


@pytest.mark.req("O-1")
def test_one_is_explained(lake: World) -> None:
    printed = call("state", "explain", BAD, width=140)[1]
    assert re.search(r"not running  It waits until 20\d\d-\d\d-\d\d \d\d:\d\d:\d\dZ: ", printed)
    assert "rejected" in printed
    assert "row_count: too few" in printed
    lake.pass_time(7200)
    assert "not running  It is due: a worker takes it when its turn comes" in call("state", "explain", BAD, width=140)[1]
    assert "1 judged, 1 begun; how many more its policy allows only the app knows" in printed
    assert f'redrive state retry {BAD} --because "..."' in printed
    odd = call("state", "explain", f"crm/Zoë, Söhne%2FCo/orders/{DAY}", width=140)[1]
    assert "48,201 rows  ← consumers read this" in odd
    assert "refresh" in odd
    assert "'crm/Zoë, Söhne%2FCo/orders/2026-03-01'" in odd
    assert "running   It is running: run " in call("state", "explain", f"crm/c7/orders/{DAY}", width=140)[1]
    assert "clear-terminal" in call("state", "explain", f"crm/c6/orders/{DAY}", width=140)[1]
    assert "--since 2026-03-01" in call("state", "explain", f"crm/nobody/orders/{DAY}", width=140)[1]
    history = call("state", "history", BAD, width=140)[1]
    assert "because  row_count: too few" in history
    assert call("state", "history", f"crm/nobody/orders/{DAY}")[0] == 1


NONSENSE: list[tuple[tuple[str, ...], str]] = [
    (("state", "retry", "--because", "x"), "say which"),
    (("state", "retry", "crm/orders"), "--because must say why"),
    (("state", "retry", "crm/orders", "--because", " "), "--because must say why"),
    (("state", "retry", "cmr/orders", "--because", "x"), "there is no source 'cmr' (did you mean 'crm'?); there is crm"),
    (("state", "inspect", "crm/ordes"), "no query 'ordes' of source 'crm' (did you mean 'orders'?); there is orders"),
    (("state", "retry", "crm/*/orders/2026-03-09..2026-03-01", "--because", "x"), "the range is reversed"),
    (("state", "retry", "crm/*/orders/2999-01-01", "--because", "x"), "2999-01-01 has not come yet"),
    (("state", "inspect", "--date", "2026-02-30"), "no date that exists"),
    (("state", "inspect", "--date", "2026-02-03", "--since", "2026-02-03"), "--date is one day"),
    (("state", "inspect", "--calendar", "--status", "failed"), "folds all customers"),
    (("state", "explain", "crm/orders"), "written source/customer/query/date"),
    (("state", "pause", "--because", "x"), "say which"),
    (("state", "pause", "crm/orders", "--whole-source", "--because", "x"), "--whole-source is of one source"),
    (("backfill", "plan", "crm/orders", "--since", "2025-01-01", "--until", "2025-01-02"), "does not know the customers"),
    (("backfill", "apply", "p-nothing", "--because", "x"), "there is no plan p-nothing"),
    (("backfill", "apply", "crm/orders", "--since", "2025-01-01", "--because", "x"), "both --since and --until"),
]


@pytest.mark.req("O-2")
@pytest.mark.usefixtures("lake")
def test_nonsense_is_one_line_and_status_2() -> None:
    for arguments, says in NONSENSE:
        status, printed = call(*arguments)
        assert (status, says in printed, len(printed.splitlines())) == (2, True, 1), (arguments, printed)


@pytest.mark.req("O-2")
@pytest.mark.req("P-3")
def test_retried(lake: World) -> None:
    status, printed = call("state", "retry", "crm/orders", "--because", "the CRM is back", "--actor", "ann", width=160)
    assert status == 1
    assert "would retry  4 partitions of crm/orders" in printed  # the one whose refresh failed too
    assert "left alone   3 accepted already (that is reprocess), 1 terminal (add --clear-terminal), 1 running now" in printed
    assert f"running now  crm/c7/orders/{DAY}, by w1" in printed
    assert "1 of 4 have no raw data" in printed
    assert audited(lake, "partition.retry") == []
    status, printed = call("state", "retry", "crm/orders", "--because", "the CRM is back", "--actor", "ann", "--without-raw")
    assert status == 0
    assert "4 partitions queued: workers take them; sweep 4" in printed
    assert len([lease for lease in lake.claim(worker="w2") if lease.sweep_id == 4]) == 4
    (entry,) = audited(lake, "partition.retry")
    assert (entry.actor, entry.because) == ("ann", "the CRM is back (without raw data too)")


@pytest.mark.req("O-2")
def test_many_are_confirmed(lake: World) -> None:
    lake.control.move(3, "cancel", actor="ann", because="in the way")
    for many, name in ((15, "some"), (90, "many")):
        lake.backfill([f"{name}-{n}" for n in range(many)])
        lake.reject(*lake.claim(many))
    few = ("state", "retry", "--status", "failed", "--error", "row_count", "--min-attempts", "1", "--because", "x")
    status, printed = call(*few, "--customer-id", "some-1")
    assert (status, "1 partition queued" in printed) == (0, True)  # 20 or fewer: nobody is asked
    status, printed = call(*few)
    assert (status, "say --yes --max 105" in printed) == (2, True)
    status, printed = call(*few, "--yes")
    assert (status, "--yes needs --max" in printed) == (2, True)
    status, printed = call(*few, "--yes", "--max", "50")
    assert (status, "105 match, and --max says 50: nothing was done" in printed) == (1, True)
    status, printed = on_terminal(*few, typed="104", REDRIVE_LEDGER=lake.ledger.url)
    assert (status, "Type 105 to retry them" in printed, "nothing was done" in printed) == (1, True, True)
    status, printed = on_terminal(*few, typed="105", REDRIVE_LEDGER=lake.ledger.url)
    assert (status, "105 partitions queued" in printed) == (0, True)


@pytest.mark.req("O-2")
@pytest.mark.req("O-5")
def test_a_plan_is_kept_and_applied_by_another(lake: World, tmp_path: Path) -> None:
    before = len(lake.ledger.audit())
    file = tmp_path / "plan.json"
    planning = ("state", "retry", "crm/orders", "--error", "row_count", "--out", str(file), "--actor", "ann")
    status, printed = call(*planning, width=1000)
    assert (status, "expires in 30 min" in printed, f"redrive plan apply {file}" in printed) == (0, True, True)
    status, printed = call("state", "retry", BAD, "--plan", "--json")
    kept = json.loads(printed)
    assert (status, kept["plan"]["count"], re.fullmatch("p-[0-9a-f]{8}", kept["id"]) is not None) == (0, 1, True)
    assert len(lake.ledger.audit()) == before  # plans leave no trace
    status, printed = call("plan", "show", str(file))
    assert (status, "made     by ann, " in printed, "would retry  2 partitions" in printed) == (0, True, True)
    status, printed = call("plan", "apply", kept["id"], "--because", "first", "--actor", "ben")
    assert (status, "1 partition queued" in printed) == (0, True)
    status, printed = call("plan", "apply", str(file), "--because", "second", "--actor", "ben")
    assert (status, "the world has moved on since this was planned: 1 pending meanwhile" in printed) == (4, True)
    assert [entry.because for entry in audited(lake, "partition.retry")] == ["first"]
    status, printed = call("plan", "apply", str(file), "--because", "second", "--accept-drift", "skip", "--json")
    assert (status, json.loads(printed)["sweep"]["total"]) == (0, 2)
    said = json.loads(file.read_text())
    for change, says in (
        ({"count": 3}, "it was changed after it was made"),
        ({"redrive_plan": 99}, "it is no plan of redrive's"),
    ):
        file.write_text(json.dumps(said | change))
        status, printed = call("plan", "apply", str(file), "--because", "x")
        assert (status, says in printed) == (2, True)
    file.write_text("{")
    assert call("plan", "show", str(file))[0] == 2


@pytest.mark.req("O-2")
@pytest.mark.usefixtures("lake")
def test_a_plan_expires_and_is_for_one_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "plan.json"
    call("state", "reprocess", "crm/orders", "--out", str(file))
    other = f"sqlite:///{tmp_path / 'other.db'}"
    open_ledger(other, migrate=True).close()
    status, printed = call("plan", "apply", str(file), "--because", "x", "--ledger", other)
    assert (status, "plan p-" in printed, "and this is" in printed) == (4, True, True)
    monkeypatch.setattr(stored_plan, "LIFE", timedelta(seconds=-1))
    call("state", "reprocess", "crm/orders", "--out", str(file))
    status, printed = call("plan", "apply", str(file), "--because", "x")
    assert (status, "has expired" in printed) == (4, True)
    assert call("plan", "show", str(file))[0] == 4


@pytest.mark.req("O-3")
@pytest.mark.req("P-10")
def test_a_backfill_on_the_command_line(lake: World) -> None:
    days = ("--since", "2025-01-01", "--until", "2025-01-31")
    status, printed = call("backfill", "plan", "crm/orders", *days, "--customer-id", "c0", "--share", "0.3")
    assert status == 0
    assert "crm/orders × 1 customer × 31 days = 31, the last day first" in printed
    name = re.search(r"Plan (p-\w+)", printed)[1]  # type: ignore[index]
    status, printed = call("backfill", "apply", name, "--because", "history", "--yes", "--max", "10")
    assert (status, "31 match, and --max says 10" in printed) == (1, True)
    status, printed = call("backfill", "apply", name, "--because", "history", "--yes", "--max", "31")
    assert (status, "Backfill 4 is written down" in printed) == (0, True)
    status, printed = call("backfill", "apply", name, "--because", "twice", "--yes", "--max", "31")
    assert (status, "sweep 4 (running) has 31 of them" in printed) == (1, True)
    status, printed = call("backfill", "plan", "crm/orders", *days, "--customer-id", "c0")
    assert (status, "backfill 4 has some of these partitions" in printed) == (1, True)
    status, printed = call(
        "backfill", "apply", "crm/orders", *days, "--customer-id", "c1", "--because", "x", "--yes", "--max", "31"
    )
    assert (status, "Backfill 5 is written down" in printed) == (0, True)
    printed = call("backfill", "status", "4")[1]
    assert "crm/orders × 1 customer × 2025-01-01 to 2025-01-31 = 31" in printed
    assert "share  30% while others wait too" in printed
    assert (
        call("backfill", "share", "4", "0.5", "--because", "hurry")[1] == "Backfill 4 has 50% of all work while others wait too\n"
    )
    assert call("backfill", "share", "4", "5", "--because", "hurry")[0] == 2
    assert call("backfill", "pause", "4", "--because", "slow")[1] == "Backfill 4 is paused: 31 of 31 still to come\n"
    assert call("backfill", "resume", "4", "--because", "fast")[0] == 0
    assert call("backfill", "cancel", "4", "--because", "enough")[0] == 0
    status, printed = call("backfill", "cancel", "4", "--because", "enough")
    assert (status, "is cancelled: there is nothing to cancel" in printed) == (1, True)
    assert call("backfill", "status", "99")[0] == 1
    status, printed = call("backfill", "status", "4", "--watch")
    assert (status, "state  cancelled" in printed) == (1, True)
    assert [one["id"] for one in json.loads(call("backfill", "list", "--json")[1])] == [5, 4, 3, 1]
    assert len(lake.claim(worker="w9")) > 0


@pytest.mark.req("O-1")
def test_steered(lake: World) -> None:
    status, printed = call("state", "mark-terminal", BAD, f"crm/c0/orders/{DAY}", "--because", "gone for good")
    assert (status, printed) == (1, f"1 partition marked terminal\nNot crm/c0/orders/{DAY}: accepted already\n")
    assert call("state", "clear-terminal", BAD, "--grant", "2", "--because", "back")[1] == "1 partition cleared\n"
    assert "2 attempts from 1 on, by" in call("state", "history", BAD, width=140)[1]
    assert call("state", "pause", BAD, "--because", "looked at")[1] == "1 partition paused\n"
    assert "Not running  It is paused" in call("state", "explain", BAD)[1].replace("not running", "Not running")
    assert call("state", "unpause", BAD, "--because", "looked at")[1] == "1 partition unpaused\n"
    assert (
        call("state", "pause", "crm", "--whole-source", "--because", "moves")[1]
        == "Source crm is paused until somebody says so\n"
    )
    assert "Source crm is paused by" in call("state", "inspect")[1]
    assert call("doctor")[0] == 1
    assert call("state", "unpause", "--source", "crm", "--whole-source", "--because", "moved")[1] == "Source crm is not paused\n"
    status, printed = call("state", "rollback", f"crm/c0/orders/{DAY}", "--because", "x")
    assert (status, "no accepted run before the one in force" in printed) == (1, True)
    actions = [entry.action for entry in lake.ledger.audit(limit=1000)]
    assert actions[-6:] == [
        "partition.mark_terminal", "partition.clear_terminal", "partition.pause", "partition.unpause", "source.pause",
        "source.unpause",
    ]  # fmt: skip


@pytest.mark.req("O-1")
@pytest.mark.req("P-14")
def test_the_heat_map_reads_without_colours(lake: World) -> None:
    printed = call("state", "inspect", "--calendar", "--since", "2026-02-25", "--until", "2026-03-08", width=80)[1]
    assert printed == (
        "            Feb Mar 2026\n"
        "            25    2\n"
        "crm/orders  ····! ·······   44 %\n"
        "\n"
        "■ accepted  ○ pending  ▲ newer run rejected  ✗ failed  ! terminal  · nothing\n"
        "A cell is the worst that any customer's partition is; in %: accepted.\n"
    )
    lake.control.move(3, "cancel", actor="ann", because="in the way")
    lake.backfill(["other"], days=20)
    lake.accept(*(lease for lease in lake.claim(19) if lease.partition.logical_date > date(2026, 3, 10)))
    printed = call("state", "inspect", "--calendar", "--since", "2026-02-25", "--until", "2026-03-20", "--by", "week", width=80)[
        1
    ]
    assert printed.splitlines()[:3] == ["            2026", "            Mar", "crm/orders  !○○■   50 %"]
    assert "no partition was asked for" in call("state", "inspect", "--calendar")[1]


@dataclass
class Counted:
    """A plan of so many."""

    count: int
    act: str = "retry"


@pytest.mark.req("O-2")
def test_some_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def confirm(question: str, *, err: bool) -> bool:
        asked.append(question)
        return err and len(asked) > 1

    monkeypatch.setattr(typer, "confirm", confirm)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    agreed(Counted(20), yes=False, most=None)
    assert asked == []
    with pytest.raises(typer.Exit) as left:
        agreed(Counted(21), yes=False, most=None)
    assert left.value.exit_code == 1
    agreed(Counted(100), yes=False, most=None)
    assert asked == ["Retry 21 partitions?", "Retry 100 partitions?"]


APP = """
from redrive import App
from redrive.partitions import row_count

app = App("sqlite:///{folder}/lake.db", stores={{"raw": {{"type": "local", "options": {{"root": "{folder}/raw"}}}}}})

@app.dataset("crm", "orders", raw="raw", customers=["acme", "globex"], checks=[row_count(min=1)])
def orders(partition, out):
    out.rows([{{"n": 1}}])
"""


@pytest.mark.req("P-10")
@pytest.mark.req("O-1")
def test_an_app_knows_its_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lake_of_state.py").write_text(APP.format(folder=tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    here = ("--ledger", "lake_of_state:app")
    days = ("--since", "2025-01-01", "--until", "2025-01-31")
    assert call("state", "inspect", *here)[1].startswith("no partitions yet")
    status, printed = call("backfill", "plan", "crm/order", *days, *here)
    assert (status, "no query 'order' of source 'crm' (did you mean 'orders'?); there is orders" in printed) == (2, True)
    status, printed = call("backfill", "plan", "crm/orders", *days, *here)
    assert (status, "crm/orders × 2 customers × 31 days = 62, the last day first" in printed) == (0, True)
    status, printed = call(
        "backfill", "apply", "crm/orders", *days, *here, "--because", "x", "--yes", "--max", "62", "--share", "0.3"
    )
    assert (status, "Backfill 1 is written down" in printed) == (0, True)
    printed = call("state", "explain", "crm/acme/orders/2025-01-07", *here, width=120)[1]
    assert "its turn in sweep 1 (backfill, running) has not come: 0 of 62 had theirs" in printed.lower()
    health = json.loads(call("doctor", *here, "--json")[1])
    assert (health["findings"], health["checked"][-1]) == ([], "raw data")
