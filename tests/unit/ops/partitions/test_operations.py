"""Operations on an app's datasets with raw data: rollback, revalidation, and lost files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timezone
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from redrive import App
from redrive.cli.apply.partitions import plan_view
from redrive.cli.commands.health.doctor import health_view
from redrive.cli.commands.partitions import markers
from redrive.cli.commands.partitions.calendar import heat_map
from redrive.cli.commands.partitions.render import explanation_view, history_view
from redrive.cli.options import WriteOptions
from redrive.console.render.heat_map import dataset_rows, select_days
from redrive.errors import NotAllowed
from redrive.ops.operator import Operator
from redrive.ops.partitions.overview import paused_by
from redrive.ops.partitions.raw_data import RawState
from redrive.partitions import Partition, Raw, Sink
from redrive.testing import Sandbox, sandbox

DAY = "2025-12-29"


class Lake:
    """An app with one dataset over a folder. The test sets the number of rows of its source."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.rows = 3
        self.least = 1
        self.app = App(stores={"raw": {"type": "local", "options": {"root": str(root)}}})
        self.ann = Operator(self.app, actor="ann")

        def enough(raw: Raw) -> bool:
            return raw.row_count >= self.least

        @self.app.dataset("crm", "orders", raw="raw", checks=[enough], customers=["acme", "zeta"], max_age=None)
        def orders(partition: Partition, out: Sink) -> None:
            out.rows({"n": n, "customer": partition.customer_id} for n in range(self.rows))

        self.orders = orders


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "raw")


@pytest.fixture
def box(lake: Lake) -> Iterator[Sandbox]:
    with sandbox(lake.app) as made:
        yield made


def run_backfill(lake: Lake, box: Sandbox) -> str:
    """Run a backfill of a day for all customers. Return the current run of acme."""
    plan = lake.ann.backfills.plan(lake.orders, DAY, DAY)
    assert plan.count == 2
    lake.ann.apply(plan, because="new dataset")
    box.drain()
    return in_force(lake)


def in_force(lake: Lake) -> str:
    (found,) = [one for one in lake.ann.partitions.inspect() if one.partition.customer_id == "acme"]
    assert found.current_run_id is not None
    return found.current_run_id


@pytest.mark.req("P-13")
@pytest.mark.req("O-1")
def test_a_rollback_goes_to_an_earlier_run_and_back(lake: Lake, box: Sandbox) -> None:
    first = run_backfill(lake, box)
    lake.rows = 5
    lake.ann.apply(lake.ann.partitions.reprocess(lake.orders, DAY, customers=["acme"]), because="more rows")
    box.drain()
    second = in_force(lake)
    assert second != first
    assert len(list(lake.orders.read("acme", DAY).rows())) == 5
    facts = lake.ann.partitions.rollback(f"crm/acme/orders/{DAY}", because="the new rows are wrong")
    assert facts.current_run_id == first
    assert len(list(lake.orders.read("acme", DAY).rows())) == 3
    assert lake.ann.audit.find()[0].action == "partition.rollback"
    history = lake.ann.partitions.history(f"crm/acme/orders/{DAY}")
    assert history is not None
    assert [(entry.actor, entry.because) for entry in history.rollbacks] == [("ann", "the new rows are wrong")]
    assert f"rolled back  to run {facts.current_run_id} by ann" in plain(history_view(history))
    assert lake.ann.partitions.rollback(f"crm/acme/orders/{DAY}", second, because="they were not").current_run_id == second
    history = lake.ann.partitions.history(f"crm/acme/orders/{DAY}")
    assert history is not None
    assert [run.state for run in history.runs] == ["accepted", "accepted"]


@pytest.mark.req("P-13")
@pytest.mark.req("P-7")
def test_deleted_raw_data_is_reported(lake: Lake, box: Sandbox) -> None:
    first = run_backfill(lake, box)
    lake.ann.apply(lake.ann.partitions.reprocess(lake.orders, DAY, customers=["acme"]), because="again")
    box.drain()
    assert [one for one in lake.ann.health.check().findings if one.name == "raw data"] == []
    (file,) = [one for one in lake.root.rglob("rows.jsonl") if first in str(one)]
    file.write_bytes(b"x" * file.stat().st_size)
    with pytest.raises(NotAllowed, match=f"cannot return to run {first}: .*bytes were changed"):
        lake.ann.partitions.rollback(f"crm/acme/orders/{DAY}", because="x")
    for manifest in lake.root.rglob("manifest.json"):
        if in_force(lake) in str(manifest):
            manifest.unlink()
    (finding,) = [one for one in lake.ann.health.check().findings if one.name == "raw data"]
    assert (finding.severity, finding.count) == ("critical", 1)
    assert finding.mend == f'redrive state reprocess crm/acme/orders/{DAY} --because "..."'


@pytest.mark.req("P-13")
def test_lost_raw_data_is_counted_named_and_listed(lake: Lake, box: Sandbox) -> None:
    lake.ann.apply(lake.ann.backfills.plan(lake.orders, "2025-12-01", "2025-12-10"), because="new dataset")
    box.drain()
    assert lake.ann.partitions.lost() == []
    for manifest in lake.root.rglob("manifest.json"):
        if "acme" in str(manifest) and "logical_date=2025-12-01" not in str(manifest):
            manifest.unlink()
    (finding,) = [one for one in lake.ann.health.check().findings if one.name == "raw data"]
    assert (finding.count, finding.mend) == (9, "redrive state inspect crm/orders --lost")
    assert "crm/orders: raw data missing or changed in 9 of 20 checked runs" in finding.says
    assert finding.says.count("crm/acme/orders/") == 3
    found = lake.ann.partitions.lost(lake.ann.partitions.selection("crm/orders"))
    assert [one.facts.partition.customer_id for one in found] == ["acme"] * 9
    assert "manifest" in found[0].says
    first, second = (lake.ann.partitions.lost(after=after, limit=5) for after in (0, found[4].facts.id))
    assert [one.facts.id for one in (*first, *second)] == [one.facts.id for one in found]
    assert lake.ann.partitions.lost(lake.ann.partitions.selection(status="failed")) == []
    with pytest.raises(NotAllowed, match="the ledger does not know its store"):
        Operator(lake.app.ledger, actor="ann").partitions.lost()


@pytest.mark.req("P-13")
@pytest.mark.req("O-1")
def test_damaged_data_is_not_reported_as_read(lake: Lake, box: Sandbox) -> None:
    run = run_backfill(lake, box)
    key = f"crm/acme/orders/{DAY}"
    (file,) = [one for one in lake.root.rglob("rows.jsonl") if run in str(one)]
    good = file.read_bytes()
    file.write_bytes(b"x" * len(good))
    lake.ann.apply(lake.ann.partitions.revalidate(lake.orders, DAY, customers=["acme"]), because="something is odd")
    box.drain(forever=False)
    found = lake.ann.partitions.explain(key).explanation
    assert found.damaged is not None
    assert found.damaged.raw_run_id == run
    assert "raw data is damaged" in found.why[0]
    shown = plain(explanation_view(lake.ann.partitions.explain(key)))
    assert "not readable" in shown
    assert "consumers read this" not in shown
    file.write_bytes(good)  # from a backup
    lake.ann.apply(lake.ann.partitions.revalidate(lake.orders, DAY, customers=["acme"]), because="it is back")
    box.drain(forever=False)
    assert lake.ann.partitions.explain(key).explanation.damaged is None
    assert "consumers read this" in plain(explanation_view(lake.ann.partitions.explain(key)))


@pytest.mark.req("O-1")
def test_raw_data_that_cannot_be_checked_is_not_reported_as_readable(lake: Lake, box: Sandbox) -> None:
    run_backfill(lake, box)
    key = f"crm/acme/orders/{DAY}"
    bare = Operator(lake.app.ledger, actor="ann").partitions
    shown = plain(explanation_view(bare.explain(key)))
    assert "← raw data not checked: pass --ledger module:app" in shown
    assert "consumers read this" not in shown
    assert bare.raw_states(bare.inspect()) == [RawState(unchecked="pass --ledger module:app")] * 2


@pytest.mark.req("O-1", "P-14")
def test_the_calendar_counts_customers_that_were_never_requested(lake: Lake, box: Sandbox) -> None:
    lake.ann.apply(lake.ann.backfills.plan(lake.orders, "2025-12-01", "2025-12-02"), because="new dataset")
    lake.ann.apply(lake.ann.backfills.plan(lake.orders, "2025-12-03", "2025-12-04", customers=["acme"]), because="one customer")
    box.drain()
    span = ("2025-12-01", "2025-12-07")
    calendar = lake.ann.partitions.calendar(*span)
    (row,) = calendar.rows
    assert (row.customers, row.never_requested) == (2, {date(2025, 12, 3): 1, date(2025, 12, 4): 1})
    shown = plain(heat_map(calendar, 80))
    assert "■■□□···" in shown
    assert "75 %" in shown
    assert "□ some never requested" in shown
    (drawn,) = dataset_rows(calendar)
    assert [cell.css for cell in drawn.cells] == ["s", "s", "m", "m", "", "", ""]
    assert drawn.cells[2].title == "1 accepted, 1 never requested"
    selection = select_days(calendar, "crm", "orders", date(2025, 12, 2), date(2025, 12, 3))
    assert selection.summary == "3 accepted, 1 never requested"
    bare = Operator(lake.app.ledger, actor="ann").partitions.calendar(*span)
    assert (bare.rows[0].customers, bare.rows[0].never_requested) == (None, {})
    assert "100 %" in plain(heat_map(bare, 80))
    assert "%: accepted of requested." in plain(heat_map(bare, 80))


def test_a_calendar_omits_customers_that_cannot_be_read(lake: Lake, box: Sandbox) -> None:
    calls = []

    def customers() -> list[str]:
        calls.append(1)
        if len(calls) > 1:
            raise ConnectionError
        return ["acme"]

    @lake.app.dataset("crm", "visits", raw="raw", checks=[], customers=customers)
    def visits(partition: Partition, out: Sink) -> None:
        out.rows([])

    lake.ann.apply(lake.ann.backfills.plan(visits, DAY, DAY), because="new dataset")
    box.drain()
    for _ in range(2):
        (row,) = lake.ann.partitions.calendar(DAY, DAY).rows
        assert row.customers is None
    assert len(calls) == 2  # called once for the calendar, and not again for a minute


@pytest.mark.req("O-2")
def test_raw_data_is_read_from_the_raw_store(lake: Lake, box: Sandbox) -> None:
    lake.least = 10  # both are rejected, and have raw data
    lake.ann.apply(lake.ann.backfills.plan(lake.orders, DAY, DAY), because="new dataset")
    box.drain(forever=False)
    (manifest,) = [one for one in lake.root.rglob("manifest.json") if "customer_id=acme" in str(one)]
    stored = manifest.read_bytes()
    manifest.unlink()
    for verb in (lake.ann.partitions.retry, lake.ann.partitions.revalidate):
        plan = verb(lake.orders, DAY)
        assert plan.partitions is not None
        ((name, why),) = plan.partitions.missing_raw.items()
        assert (name, "is not in raw" in why) == (f"crm/acme/orders/{DAY}", True)
        shown = plain(plan_view(plan))
        assert f"would {plan.act}  {plan.count - 1} partition" in shown
        assert "1 skipped" in shown
        assert name in shown
    done = lake.ann.apply(lake.ann.partitions.retry(lake.orders, DAY), because="once more")
    assert (done.sweep.made, done.sweep.skipped) == (1, 1)
    with pytest.raises(NotAllowed, match="has no raw data"):
        lake.ann.apply(lake.ann.partitions.retry(lake.orders, DAY, customers=["acme"]), because="once more")
    # A run that ended without a verdict leaves raw data that only the store knows.
    unknown = manifest.parent.with_name("run_id=20200101T000000-0123456789")
    unknown.mkdir()
    (unknown / "manifest.json").write_bytes(stored)
    assert lake.ann.apply(lake.ann.partitions.retry(lake.orders, DAY, customers=["acme"]), because="once more").sweep.made == 1


@pytest.mark.req("O-2")
def test_a_revalidation_without_raw_data_names_the_command_that_extracts_again(lake: Lake, box: Sandbox) -> None:
    run_backfill(lake, box)
    for file in lake.root.rglob("manifest.json"):
        file.unlink()
    with pytest.raises(NotAllowed, match="use `redrive state reprocess` instead"):
        lake.ann.apply(lake.ann.partitions.revalidate(lake.orders, DAY), because="odd")
    lake.least, other = 10, "2025-12-28"
    lake.ann.apply(lake.ann.backfills.plan(lake.orders, other, other), because="new dataset")
    box.drain(forever=False)
    for file in lake.root.rglob("manifest.json"):
        file.unlink()
    with pytest.raises(NotAllowed, match="use `redrive state retry --without-raw` instead"):
        lake.ann.apply(lake.ann.partitions.revalidate(lake.orders, other), because="odd")
    with pytest.raises(NotAllowed, match="state reprocess` for accepted partitions and `redrive state retry --without-raw`"):
        lake.ann.apply(lake.ann.partitions.revalidate(lake.orders, other, DAY), because="odd")


@pytest.mark.req("P-13")
@pytest.mark.req("O-1")
def test_a_removed_raw_file_is_reported_before_it_is_read(lake: Lake, box: Sandbox) -> None:
    run = run_backfill(lake, box)
    key = f"crm/acme/orders/{DAY}"
    assert lake.ann.partitions.explain(key).lost is None
    (file,) = [one for one in lake.root.rglob("rows.jsonl") if run in str(one)]
    file.unlink()
    found = lake.ann.partitions.explain(key)
    assert found.lost is not None
    assert "rows.jsonl" in found.lost
    shown = plain(explanation_view(found))
    assert "consumers read this" not in shown
    assert "← not readable: " in shown
    assert "no extraction is needed" not in shown
    assert f'redrive state reprocess {key} --because "..."' in shown
    some = lake.ann.partitions.inspect(lake.ann.partitions.selection(key, f"crm/zeta/orders/{DAY}"))
    states = {one.partition.customer_id: state for one, state in zip(some, lake.ann.partitions.raw_states(some), strict=True)}
    assert (states["acme"].problem, states["zeta"]) == (found.lost, RawState())
    again = lake.ann.partitions.reprocess(lake.orders, DAY)
    assert again.partitions is not None
    assert (again.partitions.readable, again.partitions.unreadable) == (2, {key: found.lost})
    printed = plain(plan_view(again))
    assert "2 of these have an accepted run, which stays current" in printed
    assert f"{key}: not readable, " in printed
    plan = lake.ann.partitions.revalidate(lake.orders, DAY)
    assert plan.partitions is not None
    assert (list(plan.partitions.missing_raw), plan.partitions.unreadable) == ([key], {})
    done = lake.ann.apply(plan, because="odd")
    assert (done.sweep.made, done.sweep.skipped) == (1, 1)


@pytest.mark.req("P-13")
def test_a_rollback_to_the_same_raw_data_is_reported(
    lake: Lake, box: Sandbox, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def operator(*_: object, **__: object) -> Iterator[Operator]:
        yield lake.ann

    monkeypatch.setattr(markers, "open_operator", operator)
    first, key = run_backfill(lake, box), f"crm/acme/orders/{DAY}"
    for act in (lake.ann.partitions.revalidate, lake.ann.partitions.reprocess):
        lake.ann.apply(act(lake.orders, DAY, customers=["acme"]), because="again")
        box.drain(forever=False)
    markers.rollback(partition=key, because="x", options=WriteOptions())
    assert "same as before" not in capsys.readouterr().out
    markers.rollback(partition=key, because="x", options=WriteOptions())
    printed = " ".join(capsys.readouterr().out.split())
    assert f"the current run is {first}" in printed
    assert "The data is the same as before" in printed


@pytest.mark.req("O-1")
@pytest.mark.usefixtures("box")
def test_a_day_of_a_running_backfill_is_explained_with_its_status(lake: Lake) -> None:
    done = lake.ann.begin(lake.ann.backfills.plan(lake.orders, DAY, DAY), because="new dataset")
    shown = plain(explanation_view(lake.ann.partitions.explain(f"crm/acme/orders/{DAY}")))
    assert f"redrive backfill status {done.id}" in shown
    assert "redrive backfill plan" not in shown


@pytest.mark.usefixtures("box")
def test_the_doctor_reports_that_raw_data_is_a_sample(lake: Lake) -> None:
    shown = plain(health_view(lake.ann.health.check()))
    assert "raw data (up to 100 runs of each dataset)" in shown
    assert "0 submitted" not in shown


def test_a_pause_names_its_end() -> None:
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    assert paused_by(None, "ann") == "by ann, until it is unpaused"
    assert paused_by(at, "ann").startswith("by ann, until 2026-01-01")
    assert "resumes by itself" in paused_by(at, "redrive")


def plain(what: RenderableType) -> str:
    out = Console(width=200, no_color=True)
    with out.capture() as captured:
        out.print(what)
    return captured.get()


def test_raw_data_without_a_run_is_reported(lake: Lake, box: Sandbox) -> None:
    run = run_backfill(lake, box)
    names = {"orphan runs", "half runs"}
    assert [one for one in lake.ann.health.check().findings if one.name in names] == []
    (folder,) = [one.parent for one in lake.root.rglob("manifest.json") if run in str(one)]
    stranger = folder.with_name("run_id=20200101T000000-0123456789")
    stranger.mkdir()
    (stranger / "rows.jsonl").write_text("")
    lake.least = 10
    lake.ann.apply(lake.ann.partitions.reprocess(lake.orders, DAY, customers=["acme"]), because="again")
    box.drain(forever=False)
    (rejected,) = [one for one in folder.parent.iterdir() if one not in (folder, stranger)]
    assert [one.name for one in lake.ann.health.check().findings if one.name in names] == [
        "orphan runs"
    ]  # its clock does not move
    (rejected / "manifest.json").unlink()
    orphan, half = (one for one in lake.ann.health.check().findings if one.name in names)
    assert (orphan.severity, orphan.count, half.severity, half.count) == ("warning", 1, "warning", 1)
    stood = "/".join(folder.parts[-5:-1])
    assert f"1 of 4 runs in raw of source crm is unknown to this ledger, such as {stood}/{stranger.name}; " in orphan.says
    assert f"has no manifest, such as {stood}/{rejected.name}; " in half.says


@pytest.mark.req("P-6")
@pytest.mark.req("O-1")
def test_a_revalidation_uses_the_current_checks(lake: Lake, box: Sandbox) -> None:
    lake.least = 10
    plan = lake.ann.backfills.plan(lake.orders, DAY, DAY, customers=["acme"])
    lake.ann.apply(plan, because="new dataset")
    box.drain(forever=False)
    key = f"crm/acme/orders/{DAY}"
    (before,) = lake.ann.partitions.inspect()
    assert (before.status, before.attempt_count) == ("failed", 1)
    said = lake.ann.partitions.explain(key)
    assert (said.assumed, said.explanation.position) == (False, 1)
    lake.least = 1
    lake.ann.apply(lake.ann.partitions.revalidate(lake.orders, DAY), because="the check was too strict")
    box.drain(forever=False)
    (after,) = lake.ann.partitions.inspect()
    assert (after.status, after.attempt_count, after.dispatch_count) == ("success", 2, 2)
    history = lake.ann.partitions.history(key)
    assert history is not None
    assert history.runs[0].raw_run_id == history.runs[1].run_id  # nothing was extracted
