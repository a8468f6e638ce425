"""`redrive state`: output at every width, errors and exit codes."""

from __future__ import annotations

import json
import re
from datetime import date

import pytest
from rich.cells import cell_len

from redrive.partitions.store.rows import POLICY
from tests.conformance.partitions.world import DAY, World
from tests.unit.cli.command import call, on_terminal
from tests.unit.cli.lake import BAD

SHOWN = [
    ("state", "inspect"),
    ("state", "inspect", "crm/orders"),
    ("state", "inspect", "--calendar", "--since", "2026-02-01", "--until", "2026-04-01"),
    ("state", "customers", "crm/orders", "--since", "2026-02-01", "--until", "2026-04-01"),
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
    ("overview",),
]


@pytest.mark.usefixtures("lake")
def test_output_fits_the_terminal_and_json_is_one_document() -> None:
    for arguments in SHOWN:
        for width in (60, 80):
            _, printed = call(*arguments, width=width)
            lines = [line for line in printed.splitlines() if not line.startswith("redrive: ")]  # other output is one line
            assert max(map(cell_len, lines)) <= width, arguments
        json.loads(call(*arguments, "--json")[1])


@pytest.mark.usefixtures("lake")
def test_a_partition_that_was_never_queued_is_reported() -> None:
    status, printed = call("state", "revalidate", "crm/c0/orders/2020-01-01", "--because", "x")
    assert (status, "No partition matches." in printed) == (1, True)


@pytest.mark.usefixtures("lake")
def test_a_sweep_counts_its_own_failures() -> None:
    assert json.loads(call("backfill", "status", "2", "--json")[1])["reasons"] == {"row_count": 1}
    assert json.loads(call("backfill", "status", "1", "--json")[1])["reasons"]["TimeoutError"] == 1


@pytest.mark.req("O-4")
def test_the_overview_counts_partitions_by_dataset(lake: World) -> None:
    printed = call("overview")[1]
    assert "Nothing was submitted" not in printed
    rows = [line.split() for line in printed.splitlines()]
    dataset = next(row for row in rows if row[:1] == ["crm/orders"])
    assert dataset[-5:] == ["3", "1", "1", "3", "1"], "accepted, pending, newer run rejected, failed, gave up"
    overview = json.loads(call("overview", "--json")[1])
    counted = next(line for line in overview["datasets"] if line["query"] == "orders")
    assert (counted["queued"], counted["running"]) == tuple(int(cell.replace("–", "0")) for cell in dataset[1:3])
    assert json.loads(call("overview", "--json")[1])["extracting"] == 1
    lake.control.pause_source("crm", actor="jane", because="moves house")
    status, printed = call("overview")
    assert (status, "Source crm: paused by jane" in printed) == (1, True)
    printed = call("backfill", "status", "3", width=120)[1]
    assert "source crm, by jane, until it is unpaused (moves house)" in printed
    lake.pass_time(7200)
    explained = call("state", "explain", BAD, width=140)[1]
    assert re.search(r"not running   Source crm is paused by jane until it is unpaused", explained)
    assert re.search(r"next attempt  due since .* ago, 20\d\d-.* UTC", explained)
    assert 'redrive resume source crm --because "..."' in explained
    assert "redrive state retry" not in explained


@pytest.mark.req("O-1")
def test_in_an_outage_no_retry_is_suggested(lake: World) -> None:
    lake.control.pause_source("crm", actor=POLICY, because="attempts of 5 partitions failed for one reason: URLError")
    lake.pass_time(7200)
    explained = call("state", "explain", BAD, width=160)[1]
    assert "Source crm is paused after an outage, resumes by itself after a successful probe" in explained
    assert f"redrive state history {BAD}" in explained
    assert ("state retry" in explained, "unpause" in explained) == (False, False)


@pytest.mark.req("O-4")
def test_errors_of_partitions_that_wait_for_a_retry_are_not_failures(lake: World) -> None:
    printed = call("backfill", "status", "1", width=160)[1]
    failed = json.loads(call("backfill", "status", "1", "--json")[1])["progress"]["failed"]
    assert f"not accepted {failed}" in printed
    (errors,) = [line for line in printed.splitlines() if line.strip().startswith("last errors")]
    assert f"{5 - failed} of these wait for a retry" in errors, errors


@pytest.mark.req("O-1")
@pytest.mark.usefixtures("lake")
def test_partitions_are_listed_and_filtered() -> None:
    printed = call("state", "inspect")[1]
    assert printed.splitlines()[1].split() == ["crm/orders", "3", "1", "1", "3", "1"]
    status, printed = call("state", "inspect", "crm/orders", "--status", "failed", width=160)
    assert status == 0
    assert printed.splitlines()[0].startswith("4 partitions: row_count ×2")
    assert [line.split()[:2] for line in printed.splitlines()[3:7]] == [
        ["✗", BAD], ["✗", f"crm/c4/orders/{DAY}"], ["✗", f"crm/c5/orders/{DAY}"], ["!", f"crm/c6/orders/{DAY}"],
    ]  # fmt: skip
    assert "1 partition: row_count" in call("state", "failures", "--terminal")[1]
    assert " rows " not in call("state", "failures", "--terminal", width=160)[1]
    assert " rows " in call("state", "inspect", "crm/orders", "--status", "accepted", width=160)[1]
    assert "5 partitions" in call("state", "failures", "--source", "crm", "--query-name", "orders", "--date", str(DAY))[1]
    assert "1 partition\n" in call("state", "inspect", "--lane", "backfill", "--customer-id", "c7")[1]
    assert call("state", "inspect", "--min-attempts", "9")[1].startswith("No partition matches.")
    assert call("state", "failures", "--customer-id", "c0")[1] == "No failed partition matches.\n"
    assert "use --limit for more, or --after" in call("state", "inspect", "crm", "--limit", "2")[1]


@pytest.mark.req("O-1")
def test_a_partition_is_explained(lake: World) -> None:
    printed = call("state", "explain", BAD, width=140)[1]
    assert re.search(r"not running  Scheduled for 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC: ", printed)
    assert "rejected" in printed
    assert "row_count: too few" in printed
    lake.pass_time(7200)
    assert "not running  Due; starts when a worker is free" in call("state", "explain", BAD, width=140)[1]
    assert "1 validated, 1 started; pass --ledger module:app for the policy's limit" in printed
    assert f'redrive state retry {BAD} --because "..."' in printed
    odd = call("state", "explain", f"crm/Zoë, Söhne%2FCo/orders/{DAY}", width=200)[1]
    assert "48,201 rows  ← raw data not checked: pass --ledger module:app" in odd
    assert "newer run" in odd
    assert "'crm/Zoë, Söhne%2FCo/orders/2026-03-01'" in odd
    assert "running   Running now: run " in call("state", "explain", f"crm/c7/orders/{DAY}", width=140)[1]
    assert "clear-terminal" in call("state", "explain", f"crm/c6/orders/{DAY}", width=140)[1]
    asked = call("state", "explain", f"crm/nobody/orders/{DAY}", width=140)[1]
    assert f"redrive backfill plan crm/orders --since {DAY} --until {DAY} --customer-id nobody" in asked
    ahead = call("state", "explain", "crm/c0/orders/2999-01-01")[1]
    assert "The day is in the future" in ahead
    assert "backfill plan" not in ahead  # it would be rejected
    history = call("state", "history", BAD, width=140)[1]
    assert "because  row_count: too few" in history
    assert call("state", "history", f"crm/nobody/orders/{DAY}")[0] == 1


@pytest.mark.req("O-1")
@pytest.mark.usefixtures("lake")
def test_status_accepts_the_printed_words() -> None:
    for word, name in (("accepted", "success"), ("newer run rejected", "refresh_failed"), ("Gave-up", "terminal")):
        by_word = call("state", "inspect", "crm/orders", "--status", word, "--json")
        assert by_word == call("state", "inspect", "crm/orders", "--status", name, "--json")
        assert json.loads(by_word[1]) != []


NONSENSE: list[tuple[tuple[str, ...], str]] = [
    (("state", "retry", "--because", "x"), "no partitions selected"),
    (("state", "retry", "crm/orders"), "--because: pass a reason"),
    (("state", "retry", "crm/orders", "--because", " "), "--because: pass a reason"),
    (("state", "retry", "cmr/orders", "--because", "x"), "unknown source 'cmr' (did you mean 'crm'?); known: crm"),
    (("state", "inspect", "crm/ordes"), "unknown query 'ordes' of source 'crm' (did you mean 'orders'?); known: orders"),
    (("state", "retry", "crm/*/orders/2026-03-09..2026-03-01", "--because", "x"), "the range is reversed"),
    (("state", "retry", "crm/*/orders/2999-01-01", "--because", "x"), "2999-01-01 is in the future"),
    (("state", "inspect", "--date", "2026-13-01"), "--date '2026-13-01' is not a valid date"),
    (("state", "inspect", "--since", "2026-02-30"), "--since '2026-02-30' is not a valid date"),
    (("state", "inspect", "--until", "2026-2-3"), "--until"),
    (("state", "explain", "crm/c0/orders/2026-06-31"), "the date '2026-06-31' is not a valid date"),
    (("state", "inspect", "--date", "2026-02-03", "--since", "2026-02-03"), "--date: pass either it, or --since and --until"),
    (("state", "inspect", "--calendar", "--status", "failed"), "takes only source, query and dates"),
    (("state", "explain", "crm/orders"), "written source/customer/query/date"),
    (("state", "pause", "--because", "x"), "no partitions selected"),
    (("state", "pause", "crm/orders", "--whole-source", "--because", "x"), "--whole-source: pass one source"),
    (("backfill", "plan", "crm/orders", "--since", "2025-01-01", "--until", "2025-01-02"), "are unknown to the ledger"),
    (
        ("backfill", "plan", "crm/orders", "--since", "2025-02-29", "--until", "2025-03-02"),
        "'2025-02-29' is not a valid date",
    ),
    (("backfill", "apply", "p-nothing", "--because", "x"), "plan p-nothing not found"),
    (("backfill", "apply", "crm/orders", "--since", "2025-01-01", "--because", "x"), "both --since and --until"),
]


@pytest.mark.req("O-2")
@pytest.mark.usefixtures("lake")
def test_an_invalid_selection_is_exit_code_2() -> None:
    for arguments, says in NONSENSE:
        status, printed = call(*arguments)
        assert (status, says in printed, len(printed.splitlines())) == (2, True, 1), (arguments, printed)


@pytest.mark.req("O-2")
@pytest.mark.req("P-3")
def test_failed_partitions_are_retried(lake: World) -> None:
    status, printed = call("state", "retry", "crm/orders", "--because", "the CRM is back", "--actor", "ann", width=160)
    assert status == 0
    assert "would retry  4 partitions of crm/orders" in printed  # also the one whose refresh failed
    assert "3 accepted already (use reprocess), 1 gave up (add --clear-terminal), 1 running now" in printed
    assert f"running now  crm/c7/orders/{DAY}, by w1" in printed
    assert "no raw data" not in printed  # an extraction that failed has ended
    assert "4 partitions queued (sweep 4). Progress: `redrive backfill status 4`" in printed
    assert len([lease for lease in lake.claim(worker="w2") if lease.sweep_id == 4]) == 4


@pytest.mark.req("O-2")
def test_partitions_of_which_no_extraction_ended_need_an_option(lake: World) -> None:
    lease = next(lease for lease in lake.claim() if lease.sweep_id == 3)
    lake.give_back(lease, "stopped")
    key = str(lease.partition)
    assert call("state", "mark-terminal", key, "--because", "x")[0] == 0
    assert f"redrive state clear-terminal --without-raw {key}" in call("state", "explain", key, width=160)[1]
    clear = ("state", "clear-terminal", key, "--because", "x")
    assert call(*clear, "--dry-run") == (0, "Left out: 1 no raw data (add --without-raw)\n")
    status, printed = call("state", "retry", key, BAD, "--clear-terminal", "--because", "x", width=160)
    assert (status, f"{key}: no extraction has ended" in printed) == (1, True)
    assert "1 partition queued (sweep 4)" in printed
    assert "1 skipped: 1 no raw data" in printed
    assert call(*clear, "--without-raw")[0] == 0


@pytest.mark.req("O-1")
@pytest.mark.usefixtures("lake")
def test_a_reprocess_names_the_command_for_partitions_that_gave_up() -> None:
    status, printed = call("state", "reprocess", f"crm/c6/orders/{DAY}", "--because", "x", width=160)
    assert (status, "No partition to reprocess." in printed) == (1, True)
    assert "skipped          1 gave up (use clear-terminal for it)" in printed
    assert "1 never accepted (use retry)" in call("state", "reprocess", BAD, "--because", "x", width=160)[1]


@pytest.mark.req("O-2")
def test_a_plan_for_many_partitions_is_confirmed(lake: World) -> None:
    lake.control.move(3, "cancel", actor="ann", because="in the way")
    for many, name in ((15, "some"), (90, "many")):
        lake.backfill([f"{name}-{n}" for n in range(many)])
        lake.reject(*lake.claim(many))
    few = ("state", "retry", "--status", "failed", "--error", "row_count", "--min-attempts", "1", "--because", "x")
    status, printed = call(*few, "--customer-id", "some-1")
    assert (status, "1 partition queued" in printed) == (0, True)  # 20 or fewer need no confirmation
    status, printed = call(*few)
    assert (status, "pass --yes --max 105" in printed) == (2, True)
    status, printed = call(*few, "--yes")
    assert (status, "--yes: needs --max N" in printed) == (2, True)
    status, printed = call(*few, "--yes", "--max", "50")
    assert (status, "--max 50: 105 match; nothing was changed" in printed) == (1, True)
    status, printed = on_terminal(*few, typed="104", REDRIVE_LEDGER=lake.ledger.url)
    assert (status, "Type 105 to retry them" in printed, "nothing was changed" in printed) == (1, True, True)
    status, printed = on_terminal(*few, typed="105", REDRIVE_LEDGER=lake.ledger.url)
    assert (status, "105 partitions queued" in printed) == (0, True)


@pytest.mark.req("O-1")
def test_partitions_are_marked_cleared_paused_and_rolled_back(lake: World) -> None:
    status, printed = call("state", "mark-terminal", BAD, f"crm/c0/orders/{DAY}", "--because", "gone for good")
    assert (status, printed) == (1, f"1 partition marked as given up\nSkipped crm/c0/orders/{DAY}: accepted already\n")
    assert call("state", "clear-terminal", BAD, "--grant", "2", "--because", "back")[1] == "1 partition allowed to retry\n"
    assert "2 new attempts, after 1 earlier attempt, by" in call("state", "history", BAD, width=140)[1]
    assert call("state", "pause", BAD, "--because", "looked at")[1] == "1 partition paused\n"
    assert "Not running  Paused" in call("state", "explain", BAD)[1].replace("not running", "Not running")
    assert call("state", "unpause", BAD, "--because", "looked at")[1] == "1 partition unpaused\n"
    printed = call("state", "pause", "crm", "--whole-source", "--because", "moves")[1]
    assert printed.startswith("Source crm is paused until it is unpaused\n")
    assert 'redrive resume source crm --because "..."' in printed
    assert "Source crm: paused by" in call("state", "inspect")[1]
    assert call("doctor")[0] == 1
    whole = ("state", "unpause", "--source", "crm", "--whole-source", "--because", "moved")
    assert call(*whole, "--dry-run")[1] == "Would be unpaused: source crm\n"
    assert call(*whole)[1] == "Source crm unpaused\n"
    assert call(*whole, "--dry-run")[1] == "Source crm was not paused\n"
    assert (
        call("state", "pause", "crm", "--whole-source", "--because", "moves", "--dry-run")[1] == "Would be paused: source crm\n"
    )
    assert call(*whole, "--dry-run")[1] == "Source crm was not paused\n"
    assert call("state", "unpause", BAD, "--because", "x", "--dry-run")[1] == "Would be unpaused: 0 of 1 partition\n"
    status, printed = call("state", "rollback", f"crm/c0/orders/{DAY}", "--because", "x")
    assert (status, "no accepted run before the current run" in printed) == (1, True)
    actions = [entry.action for entry in lake.ledger.audit(limit=1000)]
    assert actions[-6:] == [
        "partition.mark_terminal", "partition.clear_terminal", "partition.pause", "partition.unpause", "source.pause",
        "source.unpause",
    ]  # fmt: skip


@pytest.mark.req("Q-4")
def test_both_commands_resume_a_source_that_either_has_paused(lake: World) -> None:
    assert call("pause", "source", "crm", "--because", "moves")[0] == 0
    whole = ("state", "unpause", "crm", "--whole-source", "--because", "moved")
    assert call(*whole, "--dry-run")[1] == "Would be unpaused: source crm\n"
    assert call(*whole)[1] == "Source crm unpaused\n"
    assert call("pause", "list")[1] == "Nothing is paused by hand.\n"
    assert call("state", "pause", "crm", "--whole-source", "--because", "moves")[0] == 0
    assert call("resume", "source", "crm", "--because", "moved")[:2] == (0, "Resumed: source crm\n")
    assert call(*whole, "--dry-run")[1] == "Source crm was not paused\n"


@pytest.mark.req("O-1")
@pytest.mark.req("P-14")
def test_the_heat_map_is_readable_without_colours(lake: World) -> None:
    printed = call("state", "inspect", "--calendar", "--since", "2026-02-25", "--until", "2026-03-08", width=80)[1]
    assert printed == (
        "            Feb Mar 2026\n"
        "            25    2\n"
        "crm/orders  ····! ·······   44 %\n"
        "\n"
        "■ accepted  ○ pending  ▲ newer run rejected  ✗ failed  ! gave up  · none\n"
        "A cell shows the worst requested partition. %: accepted of requested.\n"
    )
    lake.control.move(3, "cancel", actor="ann", because="in the way")
    lake.backfill(["other"], days=20)
    lake.accept(*(lease for lease in lake.claim(19) if lease.partition.logical_date > date(2026, 3, 10)))
    printed = call("state", "inspect", "--calendar", "--since", "2026-02-25", "--until", "2026-03-20", "--by", "week", width=80)[
        1
    ]
    assert printed.splitlines()[:3] == ["            2026", "            Mar", "crm/orders  !○○■   50 %"]
    assert "No partitions from " in call("state", "inspect", "--calendar")[1]


@pytest.mark.req("Q-12")
@pytest.mark.usefixtures("lake")
def test_customers_are_shown_by_day_and_by_pages() -> None:
    days = ("--since", "2026-02-25", "--until", "2026-03-08")
    grid = json.loads(call("state", "customers", "crm/orders", *days, "--json")[1])
    statuses = {row["customer"]: row["days"] for row in grid["rows"]}
    assert statuses["c0"] == {str(DAY): "success"}
    printed = call("state", "customers", "crm/orders", *days, width=80)[1]
    lines = {line.split("  ")[0].strip(): line for line in printed.splitlines()}
    assert lines["c0"].endswith("····■ ·······      –")
    assert any(line.rstrip().endswith("1") and "✗" in line for line in lines.values())
    assert "✗ failed" in printed
    assert "· not requested" in printed
    first = call("state", "customers", "crm/orders", *days, "--limit", "1")[1]
    name = grid["rows"][0]["customer"]
    assert "redrive state customers crm/orders --since 2026-02-25 --until 2026-03-08 --after" in " ".join(first.split())
    following = json.loads(call("state", "customers", "crm/orders", *days, "--after", name, "--json")[1])
    assert [row["customer"] for row in following["rows"]] == sorted(statuses)[1:]
    assert (
        "No customers with partitions from"
        in call("state", "customers", "crm/orders", "--since", "2020-01-01", "--until", "2020-01-05")[1]
    )
    for wrong in ("crm", "crm/c0/orders/2026-03-01", "*/orders"):
        status, printed = call("state", "customers", wrong)
        assert (status, "not a dataset; pass source/query, such as crm/orders" in printed) == (2, True), printed
    assert "more than 100 days" in call("state", "customers", "crm/orders", "--since", "2025-01-01")[1]


@pytest.mark.req("O-2")
@pytest.mark.usefixtures("lake")
def test_plans_name_skipped_marked_partitions() -> None:
    why = ("--because", "customer left", "--actor", "jane")
    assert call("state", "mark-terminal", "crm", "--customer-id", "c6", *why)[0] == 0
    line = "1 marked as given up by jane: customer left (add --include-marked)"
    status, printed = call("state", "retry", "crm", "--clear-terminal", "--dry-run", width=160)
    assert (status, "2 accepted already" not in printed, line in printed) == (0, True, True)
    planned = json.loads(call("state", "retry", "crm", "--clear-terminal", "--dry-run", "--json")[1])["plan"]
    assert not [name for name in ("datasets", "reasons", "missing_raw") if "c6" in str(planned[name])]
    command = ("state", "clear-terminal", "crm", "--because", "x")
    assert call(*command, "--dry-run", width=160) == (0, f"Left out: {line}\n")
    assert call(*command, width=160)[0] == 1
    assert call(*command, "--dry-run", "--include-marked")[1] == "Would be allowed to retry: 1 partition\n"
    assert call("state", "clear-terminal", f"crm/c6/orders/{DAY}", "--because", "x")[0] == 0


@pytest.mark.req("O-1")
@pytest.mark.usefixtures("lake")
def test_an_unknown_customer_is_named_with_a_similar_one() -> None:
    text = "No partition matches: unknown customer 'c33' (did you mean 'c3'?)."
    assert call("state", "reprocess", f"crm/c33/orders/{DAY}", "--because", "x") == (1, f"{text}\n")
    assert call("state", "pause", "crm", "--customer-id", "c33", "--because", "x") == (1, f"{text}\n")
    assert call("state", "inspect", "crm", "--customer-id", "c33")[1].startswith(text)
    assert call("state", "reprocess", "crm/c3/orders/2020-01-01", "--because", "x") == (1, "No partition matches.\n")


@pytest.mark.req("O-2")
def test_a_plan_counts_only_partitions_that_are_not_skipped(lake: World) -> None:
    lease = next(lease for lease in lake.claim() if lease.sweep_id == 3)
    lake.give_back(lease, "stopped")
    command = ("state", "retry", str(lease.partition), BAD, "--dry-run")
    printed = call(*command, width=160)[1]
    assert "would retry  1 partition of crm/orders" in printed
    assert "by reason    row_count ×1, no verdict ×1" in printed
    assert "no raw data  1 skipped unless you add --without-raw" in printed
    assert "would retry  2 partitions of crm/orders" in call(*command, "--without-raw", width=160)[1]


@pytest.mark.req("O-1")
def test_the_status_names_the_command_that_lists_waiting_partitions(lake: World) -> None:
    sweep_id = lake.backfill(["z1"])
    lake.reject(*(lease for lease in lake.claim() if lease.sweep_id == sweep_id))
    printed = call("backfill", "status", str(sweep_id), width=160)[1]
    assert "1 partition waits for a retry; see `redrive state inspect --lane backfill`" in printed
    assert "crm/z1/orders" in call("state", "inspect", "--lane", "backfill", "--limit", "500")[1]


@pytest.mark.req("O-5")
@pytest.mark.usefixtures("lake")
def test_the_audit_log_names_one_of_several_marked_partitions() -> None:
    assert call("state", "pause", "crm/orders", "--status", "failed", "--because", "x")[0] == 0
    printed = call("audit", "list", width=200)[1]
    assert re.search(r"partition.pause crm/c3/orders/\S+ and [23] more", printed), printed
