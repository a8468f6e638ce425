"""The table of docs/reference/wire.md, measured: `make wire-table`. Takes about four minutes.

python -m tests.acceptance.wire.table [--write] [sftp graph ...: only these; the others in the page stay as they are]
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.acceptance.wire import ssh
from tests.acceptance.wire.fault import FAULTS, Fault
from tests.acceptance.wire.measured import Measured, measure, open_proxy
from tests.acceptance.wire.subject import POLICY, SUBJECTS, Subject
from tests.servers.starters import STARTERS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "wire.md"
BEGIN, END = "<!-- measured -->", "<!-- end -->"
ALL = (*(subject.name for subject in SUBJECTS), "sftp")
COLUMNS = ("fault", "", "requests", "waits, s", "ends", "requests alone", "waits, s", "ends")


@contextmanager
def shortened_sleeps() -> Iterator[list[float]]:
    """Record and shorten the sleeps of clients alone, which take minutes. Not those of PyArrow."""
    sleeps: list[float] = []
    sleep, asleep = time.sleep, asyncio.sleep

    def short(seconds: float) -> None:
        sleeps.append(seconds)
        sleep(min(seconds, 0.01))

    async def ashort(seconds: float, result: Any = None) -> Any:
        if seconds > 0:
            sleeps.append(seconds)
        return await asleep(min(seconds, 0.01), result)

    with patch("time.sleep", short), patch("asyncio.sleep", ashort):
        yield sleeps


def row(subject: Subject, fault: Fault, address: str, proxy: Any) -> tuple[str, ...]:
    """Return a row: the backend with our policy, and its client alone."""
    ours = measure(subject.ours(address, proxy.port, fault.patience), proxy, fault, subject.asks_first[0])
    with shortened_sleeps() as sleeps:
        alone = measure(subject.alone(address, proxy.port, fault.patience), proxy, fault, subject.asks_first[1])
    waited = sum(sleeps) if sleeps else alone.seconds
    note = " ¹" if ours.requests > POLICY.max_attempts else ""
    return (
        fault.name,
        fault.act,
        f"{ours.requests}{note}",
        " + ".join(f"{wait:.1f}" for wait in ours.waits) or "-",
        ends(ours),
        f"**{alone.requests}**" if alone.requests != ours.requests else str(alone.requests),
        f"{waited:.1f}" if alone.requests > 1 else "-",
        ends(alone),
    )


def sftp_row(fault: ssh.Fault, options: dict[str, Any]) -> tuple[str, ...]:
    """Return a row for a connection of SFTP."""
    seen, alone = ssh.measure(ssh.ours, options, fault), ssh.measure(ssh.asyncssh_alone, options, fault)
    note = " ²" if seen.connections > 1 and fault.midway else ""
    return (
        fault.name,
        fault.act,
        f"{seen.connections}{note}",
        "-" if fault.midway else " + ".join(f"{wait:.1f}" for wait in seen.waits) or "-",
        sftp_result(fault, seen),
        f"**{alone.connections}**" if alone.connections != seen.connections else str(alone.connections),
        "-",
        sftp_result(fault, alone),
    )


def sftp_result(fault: ssh.Fault, seen: ssh.Measured) -> str:
    """Return the result, and the file after a write."""
    if seen.error is None:
        return "data correct"
    name = "waits forever" if isinstance(seen.error, ssh.WaitsForever) else f"`{type(seen.error).__name__}`"
    return f"{name}, {'**half a file**' if seen.left == 'half' else f'the {seen.left} file'}" if fault.act == "write" else name


def ends(seen: Measured) -> str:
    """Return the result in a word or two."""
    if seen.error is None:
        return "data correct" if seen.right else "DATA WRONG"
    return f"`{type(seen.error).__name__}`"


def tables(wanted: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the lines of Markdown of each backend."""
    subjects = [each for each in SUBJECTS if each.name in wanted]
    with ExitStack() as stack:
        servers = sorted({each.server for each in subjects})
        addresses = {name: stack.enter_context(STARTERS[name]()) if name in STARTERS else "" for name in servers}
        proxies = {name: stack.enter_context(open_proxy(name, address)) for name, address in addresses.items()}
        for subject in subjects:
            for line in head(subject.client, COLUMNS):
                yield subject.name, line
            for fault in FAULTS:
                yield subject.name, f"| {' | '.join(row(subject, fault, addresses[subject.server], proxies[subject.server]))} |"
        if "sftp" in wanted:
            options = json.loads(stack.enter_context(STARTERS["SFTP"]()))
            for line in head("asyncssh", tuple(name.replace("requests", "connections") for name in COLUMNS)):
                yield "sftp", line
            for each in ssh.FAULTS:
                yield "sftp", f"| {' | '.join(sftp_row(each, options))} |"


def head(client: str, columns: tuple[str, ...]) -> Iterator[str]:
    """Yield the head of a table."""
    yield from (f"Measured with {client} {version(client)}.", "")
    yield f"| {' | '.join(columns)} |"
    yield f"| {' | '.join('---' for _ in columns)} |"


def read_sections(measured_: str) -> dict[str, str]:
    """Return the sections of the page by backend."""
    parts = measured_.split("### ")[1:]
    return {name: text.strip() for name, _, text in (part.partition("\n") for part in parts)}


def main() -> int:
    logging.disable(logging.WARNING)  # azure warns about every broken response.
    wanted = [each for each in sys.argv[1:] if not each.startswith("-")] or list(ALL)
    sections_now: dict[str, str] = {}
    for name, line in tables(wanted):
        print(line if name in sections_now else f"### {name}\n\n{line}", flush=True)
        sections_now[name] = f"{sections_now[name]}\n{line}" if name in sections_now else line
    if "--write" in sys.argv[1:]:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        measured_, _, after = rest.partition(END)
        texts = read_sections(measured_) | sections_now
        sections = "\n\n".join(f"### {name}\n\n{texts[name]}" for name in ALL if name in texts)
        PAGE.write_text(f"{before}{BEGIN}\n\n{sections}\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
