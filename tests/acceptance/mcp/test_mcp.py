"""`redrive mcp` as an agent sees it: the official client, a real process, SQLite and Postgres."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import Implementation

from redrive.ledger import Ledger, NewJob
from redrive.ops import Operator
from tests.conformance.ledger.conftest import postgres_ledger, postgres_made
from tests.conformance.ops.conftest import ledger, url
from tests.conformance.ops.world import SECRET, die

__all__ = ["ledger", "postgres_ledger", "postgres_made", "url"]
pytestmark = pytest.mark.req("X-9")
AGENT = Implementation(name="test-agent", version="1.2")


class Agent:
    """An agent that calls tools."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that must succeed. The text is the same as the structured result."""
        result = await self.client.call_tool(tool, arguments)
        (content,) = result.content
        text: str = getattr(content, "text", "")
        assert not result.is_error, text
        structured: dict[str, Any] = json.loads(text)
        assert structured == result.structured_content
        assert SECRET not in text
        return structured

    async def fail(self, tool: str, **arguments: Any) -> str:
        """Call a tool that must fail, and return what it says."""
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error
        text: str = getattr(result.content[0], "text", "")
        return text

    async def names(self) -> list[str]:
        """Return the names of the tools."""
        return [tool.name for tool in (await self.client.list_tools()).tools]


def run(url: str, errors: Path, act: Callable[[Agent], Awaitable[None]], *options: str) -> str:
    """Let an agent work with a server of its own. Return what the server wrote to standard error."""
    command = ["-m", "redrive", "mcp", "--ledger", url, "--actor", "ann", *options]
    server = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))

    async def session() -> None:
        with errors.open("w") as log:
            async with Client(stdio_client(server, errlog=log), client_info=AGENT) as client:
                await act(Agent(client))

    asyncio.run(session())
    return errors.read_text()


def test_an_agent_reads_without_secrets_and_has_no_tool_that_changes_something(ledger: Ledger, url: str, tmp_path: Path) -> None:
    ids = die(ledger, *(f"shop:ann:o-{number}:sync:v1" for number in range(5)))

    async def read(agent: Agent) -> None:
        names = await agent.names()
        assert not [name for name in names if name.startswith(("plan_", "apply"))]
        assert agent.client.instructions is not None
        assert "read-only" in agent.client.instructions
        overview = await agent.call("overview")
        assert overview["overview"]["kinds"][0]["dead"] == 5
        pages: list[list[int]] = []
        cursor = None
        while cursor is not None or not pages:
            page = await agent.call("list_dead_letters", kind="crm.sync", limit=2, cursor=cursor)
            assert page["matching"] == 5
            pages.append([letter["id"] for letter in page["dead_letters"]])
            cursor = page["next_cursor"]
        newest = ids[::-1]
        assert pages == [newest[:2], newest[2:4], newest[4:]]
        shown = await agent.call("show_dead_letter", id=ids[0])
        assert shown["dead_letter"]["payload"] == {"user": "ann", "password": "[redacted]"}
        (group,) = (await agent.call("group_dead_letters"))["groups"]
        assert (group["kind"], group["count"]) == ("crm.sync", 5)
        assert len((await agent.call("find_jobs", search="type:crm.sync", limit=3))["jobs"]) == 3
        refusal = "apply_plan: this server is read-only; start it with `redrive mcp --allow-acts`; nothing was changed"
        assert await agent.fail("apply_plan", digest="x", because="please") == refusal
        assert await agent.fail("show_job", id=99) == "job 99 does not exist; find_jobs shows their ids"
        assert await agent.fail("show_job", number=1) == "show_job: id: Field required; number: unknown argument; known: id"
        wrong = "invalid time 'yesterday': use 90s, 30min, 12h, 7d or 2026-01-31T12:30"
        assert await agent.fail("list_failures", since="yesterday") == wrong
        assert (await agent.fail("drop_table")).startswith("unknown tool 'drop_table'; known: overview, doctor, ")

    assert run(url, tmp_path / "errors", read) == ""
    assert ledger.audit(limit=10) == []


def test_an_agent_applies_only_a_shown_plan_with_a_reason(ledger: Ledger, url: str, tmp_path: Path) -> None:
    ids = die(ledger, *(f"shop:ann:o-{number}:sync:v1" for number in range(4)))
    ann = Operator(ledger, actor="ann")

    async def act(agent: Agent) -> None:
        assert {"plan_replay", "plan_discard", "plan_job_change", "apply_plan"} <= set(await agent.names())
        assert (await agent.fail("plan_replay")).startswith("no dead letters selected; pass ids, kind")
        plan = await agent.call("plan_replay", kind="crm.sync", canary=0)
        assert (plan["count"], plan["by_type"], len(plan["sample"])) == (4, {"crm.sync": 4}, 4)
        assert ledger.counts()["crm.sync"].dead == 4, "a plan changes nothing"
        missing = await agent.fail("apply_plan", digest=plan["digest"])
        assert missing == "apply_plan: because: Field required"
        assert "no such plan" in await agent.fail("apply_plan", digest="0" * 32, because="the CRM is back")

        ledger.discard([ids[0]], actor="bob", because="of no use")
        changed = await agent.fail("apply_plan", digest=plan["digest"], because="the CRM is back")
        assert changed.startswith("something that the plan would change has changed since it was shown; make a new plan")
        die(ledger, "shop:ann:o-9:sync:v1")
        plan = await agent.call("plan_replay", kind="crm.sync", until="2100-01-01", limit=3, canary=0)
        die(ledger, "shop:ann:o-10:sync:v1")
        done = await agent.call("apply_plan", digest=plan["digest"], because="the CRM is back")
        assert (done["result"]["state"], done["result"]["made"]) == ("done", 3)
        assert "no such plan" in await agent.fail("apply_plan", digest=plan["digest"], because="once more")
        assert ledger.counts()["crm.sync"].dead == 2, "neither the newer one nor the one beyond the limit was shown"

        ledger.submit(NewJob("crm.push", "shop:ann:o-1:push:v1"))
        search = "type:crm.push"
        plan = await agent.call("plan_job_change", act="reschedule", search=search, due="2h")
        later = await agent.call("plan_job_change", act="reschedule", search=search, due="3h")
        assert plan["digest"] != later["digest"], "a digest covers the arguments"
        await agent.call("apply_plan", digest=plan["digest"], because="not now, please")
        plan = await agent.call("plan_job_change", act="cancel", ids=[99])
        assert (plan["digest"], plan["note"], plan["skipped"]) == (None, "nothing to do", {"99": "not found"})

        plan = await agent.call("plan_pause", act="pause", scope="job type", name="crm.sync", until="1h")
        await agent.call("apply_plan", digest=plan["digest"], because="the CRM is migrated")
        assert [pause.name for pause in ann.pauses.find()] == ["crm.sync"]
        plan = await agent.call("plan_limit", kind="crm.sync", concurrency=2)
        ann.limits.set("crm.sync", concurrency=5, because="more")
        assert "make a new plan" in await agent.fail("apply_plan", digest=plan["digest"], because="less load")

    assert run(url, tmp_path / "errors", act, "--allow-acts") == ""
    entries = [(entry.actor, entry.action, entry.because) for entry in ledger.audit(limit=100)]
    agents = [entry for entry in entries if entry[0] == "ann via MCP (test-agent 1.2)"]
    assert [(action, because) for _, action, because in agents] == [
        ("dead.replay", "the CRM is back"),
        ("job.reschedule", "not now, please"),
        ("pause", "the CRM is migrated"),
    ]
