"""One cell of the matrix: die at a point, come back until all is quiet, and ask the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from tests.zygote import Zygote

from .oracle import Verdict, an_hour_passes, judge, prepare

Way = Literal["exit", "kill"]
Pass = Literal["first", "second", "twice"]
"""The first time that the point is reached, the second time, or the first time in two processes one after the other."""
WAYS: tuple[Way, ...] = ("exit", "kill")
PASSES: tuple[Pass, ...] = ("first", "second", "twice")
STATUS = {"exit": 137, "kill": -9}
NOWHERE = dict.fromkeys(("fold.before_commit", "fold.after_commit", "sequence.before_commit", "sequence.after_commit"), "sqlite")
"""Points that a database does not have: counts on SQLite are changed in place, and its sequences need no second look."""
ONCE = ("migrate.before_commit", "migrate.after_commit")
"""Points that are passed once: tables that are up to date are not migrated again."""
STORY = "tests.acceptance.crash.story"
MOST_STARTS = 5


def deaths(point: str, database: str, which: Pass) -> int:
    """How often the story dies there."""
    if NOWHERE.get(point) == database or (point in ONCE and which == "second"):
        return 0
    return 2 if which == "twice" and point != "migrate.after_commit" else 1


class Outcome(NamedTuple):
    """What became of a cell."""

    crashes: int
    verdict: Verdict


def play(zygote: Zygote, url: str, folder: Path, point: str, way: Way, which: Pass) -> Outcome:
    """Run the story, with its deaths, to the end. AssertionError where it fails instead of dying, or does not come to its end."""
    prepare(url)
    diary, output = folder / "diary", folder / "output"
    crashes = 0
    for _ in range(2 if which == "twice" else 1):
        crash_at = f"{point}:{2 if which == 'second' else 1}:{way}"
        status = zygote.wait(zygote.fork(STORY, [url, str(diary)], output=output, crash_at=crash_at))
        if status == 0:
            break  # it never came to that point
        if status != STATUS[way]:
            raise AssertionError(f"the story ended with {status} instead of dying: {output.read_text()}")
        crashes += 1
        an_hour_passes(url)
    for _ in range(MOST_STARTS):
        status = zygote.wait(zygote.fork(STORY, [url, str(diary)], output=output))
        if status == 0:
            return Outcome(crashes, judge(url, diary, crashes))
        an_hour_passes(url)
    raise AssertionError(f"the story does not come to its end: {output.read_text()}")
