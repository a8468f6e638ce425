"""Course: every act on a backend by everybody, round by round."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.storage_suite.filled import filled
from benchmarks.storage_suite.hand import Hand
from benchmarks.storage_suite.report import MIB, Case, Seen
from benchmarks.storage_suite.subjects import HOME
from tests.servers.azurite import azure_server
from tests.servers.buckets import client
from tests.servers.process import short_folder
from tests.servers.seaweed import s3_server
from tests.servers.sftp import openssh_server

ALL = ("local", "sftp", "s3", "s3-pyarrow", "azure")
ACTS = ("write", "read", "list")
LAGS = 2.0
"""Whoever took so many times as long as the quickest is not asked again: the answer is known, and would take minutes."""


@dataclass(frozen=True)
class Effort:
    size: int
    """Bytes of the large object."""
    small: int
    """Bytes of the one with which everybody begins; all but ours stay with it if the large one would take too long."""
    count: int
    """Objects that are listed."""
    rounds: int
    patience: float
    """Seconds for the rounds of a backend; the first one is always finished."""


FULL = Effort(1024 * MIB, 16 * MIB, 10_000, 9, 90.0)
QUICK = Effort(32 * MIB, MIB, 300, 1, 0.0)
TOO_LONG = 120.0
"""Seconds: paramiko without pipelining, say, stands still for 40 ms after each 32 KiB, and needs 24 minutes for a gigabyte."""


def run(backend: str, effort: Effort, who: tuple[str, ...], say: Callable[[str], object]) -> dict[Case, list[Seen]]:
    """Round by round. Everybody in turn, so that a busy moment hits all of them; each round begins with another one."""
    seen: dict[Case, list[Seen]] = {Case(backend, act, each): [] for act in ACTS for each in who}
    with served(backend) as address, ExitStack() as stack:
        hands = {each: stack.enter_context(Hand(each, backend, address)) for each in who}
        filled(backend, address, effort.count)
        hands["ours"].do("write", "small", effort.small)
        began = time.monotonic()
        for number in range(effort.rounds):
            if number and time.monotonic() - began > effort.patience:
                break
            for act in ACTS:
                turn = number % len(who)
                cases = [Case(backend, act, each) for each in (*who[turn:], *who[:turn])]
                for case in cases:
                    if not lags(case, seen):
                        seen[case].append(tried(hands[case.who], case, effort, address, seen[case]))
                rates = ", ".join(f"{case.name} {seen[case][-1].said(act)}" for case in cases)
                say(f"{backend}, round {number + 1}, {act}: {rates}")
    return seen


def tried(hand: Hand, case: Case, effort: Effort, address: str, known: list[Seen]) -> Seen:
    """One more turn; known: those before it."""
    if case.act == "list":
        return once(hand, case, "list", effort.count)
    size = known[0].done if known else effort.size
    if not known:
        small = once(hand, case, placed(case, address, small=True), effort.small)
        if case.who != "ours" and small.seconds / small.done * effort.size > TOO_LONG:
            return small
    return once(hand, case, placed(case, address, small=size == effort.small), size)


def once(hand: Hand, case: Case, path: str, size: int) -> Seen:
    seen = Seen(**hand.do(case.act, path, size))
    if seen.done != size:
        raise RuntimeError(f"{case}: {seen.done:,}, not {size:,}")
    return seen


def placed(case: Case, address: str, *, small: bool) -> str:
    """Where it is. What is read was written by ours, the same for all; what is written was not there before: to write over a file
    in place is quicker, and leaves half of it after a crash."""
    if case.act == "read":
        return "small" if small else "ours-big"
    path = f"{case.who}-big"
    if case.backend in ("local", "sftp"):
        root = Path(address if case.backend == "local" else json.loads(address)["root"])
        (root / path).unlink(missing_ok=True)
    return path


def lags(case: Case, seen: dict[Case, list[Seen]]) -> bool:
    """Ours is asked in every round."""
    if case.who == "ours" or not seen[case]:
        return False
    quickest = max(turn.rate for other, turns in seen.items() if other.act == case.act for turn in turns)
    return max(turn.rate for turn in seen[case]) * LAGS < quickest


@contextmanager
def served(backend: str) -> Iterator[str]:
    """The address of a server of its own: what another backend has left would be cleared up in the middle."""
    match backend:
        case "local":
            with short_folder() as folder:
                yield str(folder)
        case "sftp":
            with openssh_server() as address:
                yield address
        case "azure":
            with azure_server() as address:
                from azure.storage.blob import ContainerClient

                ContainerClient.from_connection_string(address, HOME).create_container()
                yield address
        case _:
            with s3_server() as address:
                client(address).create_bucket(Bucket=HOME)
                yield address
