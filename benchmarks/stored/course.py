"""Course: every act on a backend by everybody, round by round."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.stored.filled import filled
from benchmarks.stored.hand import Hand
from benchmarks.stored.report import MIB, Case, Seen
from benchmarks.stored.subjects import HOME
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
    count: int
    """Objects that are listed."""
    rounds: int
    patience: float
    """Seconds for the rounds of a backend; the first one is always finished."""


FULL = Effort(1024 * MIB, 10_000, 4, 75.0)
QUICK = Effort(32 * MIB, 300, 1, 0.0)


def run(backend: str, effort: Effort, who: tuple[str, ...], say: Callable[[str], object]) -> dict[Case, Seen]:
    """The best of the rounds. Everybody in turn, so that a busy moment hits all of them; each round begins with another one."""
    best: dict[Case, Seen] = {}
    with served(backend) as address, ExitStack() as stack:
        hands = {each: stack.enter_context(Hand(each, backend, address)) for each in who}
        filled(backend, address, effort.count)
        began = time.monotonic()
        for number in range(effort.rounds):
            if number and time.monotonic() - began > effort.patience:
                break
            for act in ACTS:
                turn = number % len(who)
                cases = [Case(backend, act, each) for each in (*who[turn:], *who[:turn])]
                for case in cases:
                    if not lags(case, best):
                        cleared(case, address)
                        best[case] = better(best.get(case), once(hands[case.who], case, effort))
                times = ", ".join(f"{case.name} {best[case].seconds:.2f} s" for case in cases)
                say(f"{backend}, round {number + 1}, {act}: {times}")
    return {Case(backend, act, each): best[Case(backend, act, each)] for act in ACTS for each in who}


def once(hand: Hand, case: Case, effort: Effort) -> Seen:
    path, expected = ("list", effort.count) if case.act == "list" else (f"{case.who}-big", effort.size)
    found = hand.do(case.act, path, effort.size)
    if found.pop("done") != expected:
        raise RuntimeError(f"{case}: not {expected:,}")
    return Seen(**found)


def cleared(case: Case, address: str) -> None:
    """A file is written where there is none: to write over one in place is quicker, and leaves half of it after a crash."""
    if case.act == "write" and case.backend in ("local", "sftp"):
        root = Path(address if case.backend == "local" else json.loads(address)["root"])
        (root / f"{case.who}-big").unlink(missing_ok=True)


def lags(case: Case, best: dict[Case, Seen]) -> bool:
    """Ours is asked in every round."""
    others = [seen.seconds for other, seen in best.items() if other.act == case.act]
    return case.who != "ours" and case in best and best[case].seconds > LAGS * min(others)


def better(known: Seen | None, new: Seen) -> Seen:
    """The quicker one; with the most memory, since that is what one must have."""
    if known is None:
        return new
    return replace(min(known, new, key=lambda seen: seen.seconds), grew=max(known.grew, new.grew))


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
