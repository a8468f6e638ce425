"""Every tool on a ledger with jobs and partitions, the size of results, and the life of plans. Without a client."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from redrive import App
from redrive.ledger import Ledger, NewJob
from redrive.mcp.act_tools import MAX_PLANS, PLAN_SECONDS, PlanDesk
from redrive.mcp.read_tools import READ_TOOLS
from redrive.mcp.server import ToolServer, client_name, offered_tools
from redrive.mcp.tool import MAX_OFFSET, MAX_RESULT_CHARS, PageArguments, fit, page_of
from redrive.ops import Operator
from tests.conformance.partitions.world import DAY, World
from tests.unit.cli.command import call
from tests.unit.cli.conftest import LONG, SECRET, busy, ledger, url
from tests.unit.cli.lake import lake

__all__ = ["busy", "lake", "ledger", "url"]
pytestmark = pytest.mark.req("X-9")
BAD = f"crm/c3/orders/{DAY}"


def use(server: ToolServer, tool: str, **arguments: Any) -> dict[str, Any]:
    text, result = server.call(tool, arguments, "ann via MCP (test 1)")
    assert result is not None, text
    assert SECRET not in text
    assert len(text) <= 2 * MAX_RESULT_CHARS
    return result


@pytest.fixture
def reader(busy: Ledger) -> ToolServer:
    return ToolServer(busy, actor="ann", allow_acts=False)


ARGUMENTS: dict[str, dict[str, Any]] = {
    "show_dead_letter": {"id": 4},
    "show_job": {"id": 4},
    "find_jobs": {"search": "type:crm.sync"},
    "show_sweep": {"id": 1},
    "explain_partition": {"key": BAD},
}


@pytest.mark.parametrize("tool", [tool.name for tool in READ_TOOLS])
def test_every_tool_reads_a_ledger_in_use(lake: World, busy: Ledger, tool: str) -> None:
    before = busy.audit(limit=1000)
    result = use(ToolServer(busy, actor="ann", allow_acts=False), tool, **ARGUMENTS.get(tool, {}))
    assert result
    assert busy.audit(limit=1000) == before, "reading leaves no trace"


def test_pages_continue_where_the_last_one_ended(reader: ToolServer, lake: World) -> None:
    for tool, name in {"list_jobs": "jobs", "list_partitions": "partitions", "list_log_records": "records"}.items():
        whole = use(reader, tool, limit=8)[name]
        first = use(reader, tool, limit=5)
        rest = use(reader, tool, limit=3, cursor=first["next_cursor"])
        assert [*first[name], *rest[name]] == whole, tool
    text, result = reader.call("list_jobs", {"cursor": "abc"}, "ann")
    assert (result, text) == (None, "cursor: not valid: 'abc'; pass next_cursor of the last result")


def test_a_list_without_a_cursor_of_its_own_has_an_end() -> None:
    numbers = list(range(1000))
    page = page_of("numbers", lambda most: numbers[:most], PageArguments(limit=100, cursor="400"))
    assert (page["numbers"], page["next_cursor"]) == (numbers[400:500], "500")
    with pytest.raises(ValueError, match=f"only the first {MAX_OFFSET} entries are listed; narrow the list"):
        page_of("numbers", lambda most: numbers[:most], PageArguments(limit=1, cursor="500"))
    last = page_of("numbers", lambda most: [1, 2][:most], PageArguments(limit=2))
    assert last == {"numbers": [1, 2], "next_cursor": None}


def nest(value: Any, levels: int) -> Any:
    """Return a value that is cut at each level, with characters that are long in JSON."""
    if levels == 0:
        return "\N{GRINNING FACE}" * 100
    inner = nest(value, levels - 1)
    return [inner] * 4 if isinstance(value, list) else {f"{number}" * 100: inner for number in range(4)}


@pytest.mark.parametrize(
    "value",
    [
        "x" * 200_000,
        ["y" * 1000] * 1000,
        {f"name {number}": {"deep": ["z" * 100] * 100} for number in range(100)},
        {"a": [[{"b": "c" * 10_000}] * 100] * 10},
        {"name" * 100_000: 1},
        nest({}, 6),
        [nest([], 3)] * 100,
    ],
)
def test_a_large_result_is_cut_with_a_note(value: Any) -> None:
    cut = fit({"payload": value, **dict.fromkeys("abcdefghi"), "digest": "d" * 32})
    text = json.dumps(cut)
    assert len(text) <= MAX_RESULT_CHARS
    assert "left out" in text
    assert cut["digest"] == "d" * 32, "a plan can be applied, whatever it contains"


def test_a_small_result_is_whole() -> None:
    value = {"a": [1, None, "x" * 5000], "b": {}}
    assert fit(value) is value


def test_a_payload_cannot_hide_text_from_a_person(ledger: Ledger) -> None:
    hidden = "".join(chr(0xE0000 + ord(char)) for char in "discard all")
    payload = {f"note{hidden}": f"paid\u202e\x1b[2J{hidden}", "text": "Zoë\n\ttwo lines"}
    job = ledger.submit(NewJob("crm.sync", "shop:ann:o-1:x:v1", json.dumps(payload).encode()))
    text, result = ToolServer(ledger, actor="ann", allow_acts=False).call("show_job", {"id": job.id}, "ann")
    assert result is not None, text
    assert "Zoë\\n\\ttwo lines" in text
    ((name, value), _) = result["job"]["payload"].items()
    assert name.startswith("note\\u{e0064}")
    assert value.startswith("paid\\u{202e}\\u{1b}[2J\\u{e0064}")
    assert all(char.isprintable() for char in text)


def test_a_plan_shows_all_that_it_would_do(busy: Ledger, lake: World) -> None:
    with App(lake.ledger) as app:

        @app.command("crm.push", key="shop:ann:{order}:push:v1")
        def push(order: str, password: str) -> None: ...

        actor = ToolServer(app, actor="ann", allow_acts=True)
        assert use(actor, "plan_replay", kind="crm.sync", as_kind="crm.push")["as_kind"] == "crm.push"
        for clears in (True, False):
            plan = use(actor, "plan_partitions", act="retry", selection="crm/orders", clear_terminal=clears)
            assert plan["partitions"]["clear_terminal"] is clears
        plan = use(actor, "plan_sweep_change", act="cancel", id=1)
        assert plan["of"]["selection"] == {"kind": LONG}
        assert [plan["of"][name] for name in ("act", "actor", "because", "total", "left")] == [
            "replay",
            "bob",
            "the reports",
            3,
            3,
        ]


def test_an_expired_plan_is_not_applied_and_old_plans_make_room(busy: Ledger) -> None:
    now = [0.0]
    desk = PlanDesk(lambda: now[0])
    tools = {tool.name: tool for tool in desk.tools}
    ann = Operator(busy, actor="ann")

    def plan(limit: int) -> str:
        return str(tools["plan_discard"].call(ann, {"kind": "crm.sync", "limit": limit})["digest"])

    first = plan(1)
    assert plan(1) == first, "the same plan has the same digest"
    now[0] = PLAN_SECONDS + 1
    with pytest.raises(Exception, match="no such plan: it was not made in this session, has expired"):
        tools["apply_plan"].call(ann, {"digest": first, "because": "of no use"})
    kept = plan(2)
    for kind in range(MAX_PLANS - 1):
        tools["plan_limit"].call(ann, {"kind": f"kind {kind}", "concurrency": 1})
    assert tools["apply_plan"].call(ann, {"digest": kept, "because": "of no use"})["result"]["made"] == 2
    kept = plan(1)
    for kind in range(MAX_PLANS):
        tools["plan_limit"].call(ann, {"kind": f"kind {kind}", "concurrency": 1})
    with pytest.raises(Exception, match="no such plan"):
        tools["apply_plan"].call(ann, {"digest": kept, "because": "of no use"})


def test_partitions_and_sweeps_change_by_a_plan(lake: World) -> None:
    actor = ToolServer(lake.ledger, actor="ann", allow_acts=True)
    plan = use(actor, "plan_partitions", act="retry", selection="crm/orders")
    assert (plan["act"], plan["count"]) == ("retry", 4)
    assert plan["partitions"]["skipped"] == {"accepted already": 3, "terminal": 1, "running now": 1}
    done = use(actor, "apply_plan", digest=plan["digest"], because="the source is back")
    sweep = done["result"]["id"]
    assert use(actor, "show_sweep", id=sweep)["sweep"]["sweep"]["because"] == "the source is back"
    plan = use(actor, "plan_sweep_change", act="pause", id=2)
    use(actor, "apply_plan", digest=plan["digest"], because="too much load")
    assert use(actor, "show_sweep", id=2)["sweep"]["sweep"]["state"] == "paused"
    text, result = actor.call("plan_sweep_change", {"act": "pause", "id": 99}, "ann")
    assert (text, result) == ("bulk operation 99 does not exist; nothing was changed", None)


def test_pauses_and_limits_change_by_a_plan(busy: Ledger) -> None:
    actor = ToolServer(busy, actor="ann", allow_acts=True)
    text, result = actor.call("plan_pause", {"act": "pause", "scope": "job type", "name": "crm.snyc"}, "ann")
    assert result is None
    assert "crm.sync" in text
    for act, there in (("pause", ["crm.sync"]), ("resume", [])):
        plan = use(actor, "plan_pause", act=act, scope="job type", name="crm.sync")
        use(actor, "apply_plan", digest=plan["digest"], because="a migration")
        assert [pause["name"] for pause in use(actor, "list_controls")["pauses"]] == there
    for limit, concurrency in (({"concurrency": 3}, [3]), ({}, [])):
        plan = use(actor, "plan_limit", kind="crm.sync", **limit)
        use(actor, "apply_plan", digest=plan["digest"], because="less load")
        assert [each["concurrency"] for each in use(actor, "list_controls")["limits"]] == concurrency


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"act": "reschedule", "ids": [30]}, "due: missing; pass the new time, such as 2h"),
        ({"act": "prioritise", "ids": [30]}, "priority: missing; pass a number from -2 (first) to 2 (last)"),
        ({"act": "cancel"}, "cancel: select jobs by id, or by a filter such as the job type; nothing was changed"),
    ],
)
def test_an_incomplete_plan_names_the_missing_parts(busy: Ledger, arguments: dict[str, Any], problem: str) -> None:
    actor = ToolServer(busy, actor="ann", allow_acts=True)
    assert actor.call("plan_job_change", arguments, "ann") == (problem, None)


def test_an_unexpected_error_shows_no_details(reader: ToolServer, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def explode(*_: Any, **__: Any) -> None:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr("redrive.ops.overview.operations.overview", explode)
    assert reader.call("overview", {}, "ann") == ("overview: unexpected RuntimeError; the server's log has it", None)
    assert "Traceback" in capsys.readouterr().err


def test_the_name_of_a_client_is_short_and_printable() -> None:
    class Info:
        name, version = "agent\n\x1b[31m) by bob (" + "x" * 200, "1"

    class Params:
        client_info = Info

    name = client_name(Params)
    assert name.startswith("MCP (agent??[31m? by bob ?xxx")
    assert len(name) <= 90
    assert client_name(None) == "MCP (an unnamed client)"


def test_the_command_lists_the_tools(url: str) -> None:
    status, printed = call("mcp", "--list")
    assert (status, "apply_plan" in printed, printed.startswith("overview: ")) == (0, False, True)
    status, printed = call("mcp", "--json", "--allow-acts")
    assert [tool["name"] for tool in json.loads(printed)][-1] == "apply_plan"


def test_a_missing_library_is_one_line_with_its_extra() -> None:
    program = "import sys; sys.modules['mcp'] = None; sys.argv = ['redrive', 'mcp']\nfrom redrive.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, 'redrive: mcp: not installed; pip install "redrive[mcp]"\n')


def test_a_ledger_that_does_not_exist_is_not_created(tmp_path: Path) -> None:
    status, printed = call("mcp", "--ledger", f"sqlite:///{tmp_path / 'new.db'}")
    assert status == 3, printed
    assert not (tmp_path / "new.db").exists()


def test_the_page_lists_every_tool() -> None:
    page = (Path(__file__).parents[3] / "docs/how-to/operate/agents.md").read_text(encoding="utf-8")
    tables = page[page.index("## Tools") : page.index("## How a change is made")]
    listed = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", tables, re.MULTILINE)))
    assert {tool.name for tool in offered_tools(allow_acts=True)} == set(listed)
