"""The check of a soak: what the programs noted, beside what the ledger says. It uses no code of the worker."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from redrive.ledger import open_ledger
from redrive.ledger.model import CANCELLED, DEAD, DONE, DROPPED
from redrive.ops.audit import verify_chain
from tests.acceptance.crash.diary import read
from tests.acceptance.crash.oracle import rows

from .program import EFFECTS_TABLE, END, KINDS, STEPS

TERMINAL = (DONE, DEAD, DROPPED, CANCELLED)
MAY_DIE = {"bad", "flaky"}
"""Kinds of jobs that fail by themselves. Others become dead letters only by crashes of their workers."""
CRASH = "crashed_worker"


class Job(NamedTuple):
    """A job as it is stored."""

    state: int
    leases: int
    is_current: bool
    """Whether no later job has its key."""
    reason: str | None


class Outcome(NamedTuple):
    """The outcome of a soak."""

    acknowledged: int
    ended: int
    lost: int
    repeated: int
    """Jobs whose effect happened more than once, which is allowed after a fault."""
    dead: int
    problems: list[str]


def count_unfinished(url: str) -> int:
    """Return the number of jobs that have not ended, without those of the schedule."""
    marks = ", ".join(map(str, TERMINAL))
    return int(rows(url, f"SELECT count(*) FROM redrive_job WHERE state NOT IN ({marks}) AND kind <> 'every-minute'")[0][0])


def check(url: str, folder: Path, *, anchors: list[str]) -> Outcome:
    """Compare the files of the programs with the ledger.

    Args:
        url: Address of the ledger.
        folder: Folder of the files.
        anchors: Heads of the audit chain that were noted during the soak.
    """
    jobs: dict[tuple[str, str], list[Job]] = defaultdict(list)
    for kind, key, *values in rows(url, "SELECT kind, key, state, fence, current, reason FROM redrive_job"):
        jobs[kind, _number(key)].append(Job(*values))
    lines, problems = _lines(folder)
    effects = Counter((kind, number) for kind, number, _ in lines["effects"])
    effects.update(("paid", number) for (number,) in rows(url, f"SELECT number FROM {EFFECTS_TABLE}"))
    acknowledged = {(kind, number) for kind, number in lines["acknowledged"]}
    known = acknowledged | {name for name in jobs.keys() | effects.keys() if name[0] in (*KINDS, "handler")}
    for name in sorted(known):
        kind, number = name
        faults = _faults(kind, number, jobs.get(name, []), effects, is_acknowledged=name in acknowledged)
        problems += [f"{kind} {number}: {fault}" for fault in faults]
    submitted = [number for kind, number in lines["acknowledged"] if kind == "ordered"]
    done = {number for (kind, number), found in jobs.items() if kind == "ordered" and found[0].state == DONE}
    problems += _order(lines["order"], submitted, done)
    with open_ledger(url) as ledger:
        problems += [f"counter: {line}" for line in ledger.imbalance()]
        chain = verify_chain(ledger, anchors)
        if not chain.holds:
            problems.append(f"audit log: {chain.problem}")
    ended = [name for name in acknowledged if jobs[name] and all(job.state in TERMINAL for job in jobs[name])]
    return Outcome(
        acknowledged=len(acknowledged),
        ended=len(ended),
        lost=len(acknowledged) - len(ended),
        repeated=sum(effects[name] > 1 for name in acknowledged),
        dead=sum(any(job.state == DEAD for job in jobs[name]) for name in acknowledged),
        problems=problems,
    )


def _number(key: str) -> str:
    parts = key.split(":")
    return parts[2] if len(parts) > 2 else key


def _lines(folder: Path) -> tuple[dict[str, list[list[str]]], list[str]]:
    """Return the lines of each file without their end, and the lines that were cut."""
    whole: dict[str, list[list[str]]] = {}
    problems = []
    for name in ("effects", "acknowledged", "order"):
        found = read(folder / name)
        whole[name] = [line[:-1] for line in found if line[-1:] == [END] and line.count(END) == 1]
        problems += [f"{name}: a line was cut: {line}" for line in found if line[-1:] != [END] or line.count(END) > 1]
    return whole, problems


def _faults(
    kind: str, number: str, found: list[Job], effects: Counter[tuple[str, str]], *, is_acknowledged: bool
) -> Iterator[str]:
    if not found:
        yield "acknowledged, and not in the ledger" if is_acknowledged else "an effect without a job"
        return
    if sum(job.is_current for job in found) > 1:
        yield f"{len(found)} jobs with one key: {found}"
    done = [job for job in found if job.state == DONE]
    if len(done) > 1:
        yield f"done {len(done)} times"
    for job in found:
        if job.state not in TERMINAL:
            yield f"not ended: {job}"
        if job.state == DEAD and kind not in MAY_DIE and job.reason != CRASH:
            yield f"a dead letter: {job}"
    happened, leases = effects[kind, number], sum(job.leases for job in found)
    if kind == "paid" and happened != len(done):
        yield f"its transaction committed {happened} times, and its job is {'done' if done else 'not done'}"
    if kind == "bad" and done:
        yield "done, but it always fails"
    if done and not happened:
        yield "done without its effect"
    if happened > leases:
        yield f"its effect happened {happened} times with {leases} leases"
    if kind == "steps" and done:
        for name in STEPS:
            times = effects[f"step-{name}", number]
            if not 1 <= times <= leases:
                yield f"step {name} ran {times} times with {leases} leases"


def _order(lines: list[list[str]], submitted: list[str], done: Collection[str]) -> Iterator[str]:
    """Check that the jobs of an account started in the order of their submission, each after the end of the one before."""
    places = {number: place for place, number in enumerate(submitted)}
    last: dict[str, str] = {}
    ended: set[str] = set()
    seen: set[str] = set()
    for account, number, what in lines:
        if what == "end":
            ended.add(number)
        if number in seen or number not in places:
            continue  # a repeated attempt, or a submission whose acknowledgement was lost
        seen.add(number)
        before = last.get(account)
        if before is not None and places[number] < places[before]:
            yield f"account {account}: {number} started after {before}"
        elif before is not None and before in done and before not in ended:
            yield f"account {account}: {number} started before the end of {before}"
        last[account] = number
