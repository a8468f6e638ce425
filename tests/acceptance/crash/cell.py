"""One cell of the crash matrix: crash at a point, restart until no work is left, and check the invariants."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from tests.zygote import Zygote

from .oracle import Verdict, an_hour_passes, judge, prepare

Way = Literal["exit", "kill"]
Pass = Literal["first", "second", "twice"]
"""The crash comes at the first pass of the point, at the second, or at the first pass in two processes in a row."""
WAYS: tuple[Way, ...] = ("exit", "kill")
PASSES: tuple[Pass, ...] = ("first", "second", "twice")
STATUS = {"exit": 137, "kill": -9}
NOWHERE = dict.fromkeys(("fold.before_commit", "fold.after_commit", "sequence.before_commit", "sequence.after_commit"), "sqlite")
"""Points that a database does not have. SQLite updates counts in place, and its sequences need no repair."""
ONCE = ("migrate.before_commit", "migrate.after_commit")
"""Points that are passed once, because current tables are not migrated again."""
STORY = "tests.acceptance.crash.story"
MOST_STARTS = 5


def deaths(point: str, database: str, which: Pass) -> int:
    """Return how often the story crashes at the point."""
    if NOWHERE.get(point) == database or (point in ONCE and which == "second"):
        return 0
    return 2 if which == "twice" and point != "migrate.after_commit" else 1


class Outcome(NamedTuple):
    """The result of a cell."""

    crashes: int
    verdict: Verdict


def play(zygote: Zygote, url: str, folder: Path, point: str, way: Way, which: Pass) -> Outcome:
    """Run the story with its crashes to the end. Raise AssertionError if it fails otherwise or does not end."""
    prepare(url)
    diary, output = folder / "diary", folder / "output"
    crashes = 0
    for _ in range(2 if which == "twice" else 1):
        crash_at = f"{point}:{2 if which == 'second' else 1}:{way}"
        status = zygote.wait(zygote.fork(STORY, [url, str(diary)], output=output, crash_at=crash_at))
        if status == 0:
            break  # the point was never reached
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
