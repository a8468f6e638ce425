"""`redrive mcp`: what operators do, as tools for an agent."""

from __future__ import annotations

import sys
from contextlib import ExitStack, redirect_stdout
from typing import Annotated

from ...ops.context import check_actor, user
from ...ops.project.settings import known
from ...ops.project.target import open_target
from ...ops.sign_in.read_audit import ReadAudit
from ..errors import BAD_INPUT, exit_on_error, fail
from ..options import Actor, AppArgument, AsJson, LedgerAddress, choose_target, flag
from ..render import print_json, show

MCP_PACKAGES = frozenset(("mcp", "mcp_types", "anyio", "pydantic"))


def mcp(
    *,
    app: AppArgument = None,
    allow_acts: Annotated[
        bool, flag("--allow-acts", "Offer changes, as plans that the agent shows first")
    ] = False,
    is_list: Annotated[bool, flag("--list", "List of the tools, instead of serving")] = False,
    actor: Actor = None,
    target: LedgerAddress = None,
    as_json: AsJson = False,
) -> None:
    """Serve operator tools to an agent (MCP).

    The Model Context Protocol connects agents, such as coding assistants, with tools. The server
    speaks it on standard input and output, so the agent starts it.

    Without --allow-acts, it only reads, and no tool that changes something exists. With it, the
    agent makes a plan, shows it, and applies it by its digest, with a reason. The audit log has the
    reason, your name and the name of the agent's program. Payloads are shown without secrets.

    Examples:
        redrive mcp shop:app
        redrive mcp --ledger postgresql://localhost/shop --allow-acts
        redrive mcp --list --allow-acts

    Exit codes:
        0: the client disconnected, or listed
        2: invalid option, unknown app, or missing extra
        3: ledger not reachable, or its schema is from another version
    """
    try:
        # The extra may be missing.
        from ...mcp import server  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in MCP_PACKAGES:
            raise
        fail(BAD_INPUT, 'mcp: not installed; pip install "redrive[mcp]"')
    if is_list or as_json:
        tools = server.offered_tools(allow_acts=allow_acts)
        if as_json:
            described = [server.describe_tool(tool) for tool in tools]
            print_json([tool.model_dump(mode="json", by_alias=True) for tool in described])
            return
        show("\n".join(f"{tool.name}: {tool.summary}" for tool in tools))
        return
    with exit_on_error(), ExitStack() as stack:
        # The protocol is on standard output, and a module may print when it is imported.
        with redirect_stdout(sys.stderr):
            opened = stack.enter_context(open_target(choose_target(app, target), app_first=True))
        account = user()
        serving = server.ToolServer(
            opened,
            actor=check_actor(account if actor is None else actor),
            allow_acts=allow_acts,
            via=f"account {account}",
            reads=ReadAudit() if known().console.audit_reads else None,
        )
        server.serve(serving)
