"""The oracle and the table report every planted problem."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.zygote import Zygote

from .cell import STORY
from .diary import Diary
from .matrix import Row, lines
from .oracle import connection, judge, prepare


@pytest.fixture
def finished_story(zygote: Zygote, tmp_path: Path) -> str:
    """A ledger after the story ran to its end without a crash."""
    prepare(url := f"sqlite:///{tmp_path}/ledger.db")
    output = tmp_path / "output"
    assert zygote.wait(zygote.fork(STORY, [url, str(tmp_path / "diary")], output=output)) == 0, output.read_text()
    return url


def test_a_run_without_a_crash_has_no_problems(finished_story: str, tmp_path: Path) -> None:
    assert judge(finished_story, tmp_path / "diary", 0) == ([], [], [])


def test_a_missing_job_counts_as_lost(finished_story: str, tmp_path: Path) -> None:
    with connection(finished_story) as opened:
        opened.execute("DELETE FROM redrive_job WHERE kind = 'own' AND key = 'first'")
    verdict = judge(finished_story, tmp_path / "diary", 0)
    assert verdict.lost == ["own/first is in []"]
    assert not verdict.ok


def test_a_repeated_effect_counts_as_duplicated(finished_story: str, tmp_path: Path) -> None:
    with connection(finished_story) as opened:
        opened.execute("INSERT INTO effect VALUES ('paid', 'second')")
    diary = Diary(tmp_path / "diary")
    diary.note("effect", "plain", "first")
    diary.close()
    assert judge(finished_story, tmp_path / "diary", 0).doubled == ["plain/first ran 2 times", "paid/second was paid 2 times"]
    assert judge(finished_story, tmp_path / "diary", 1).doubled == ["paid/second was paid 2 times"]  # a crash explains the first


def test_unbalanced_counts_are_reported(finished_story: str, tmp_path: Path) -> None:
    with connection(finished_story) as opened:
        opened.execute("UPDATE redrive_tally SET done = done + 1 WHERE kind = 'plain'")
    assert len(judge(finished_story, tmp_path / "diary", 0).wrong) == 2


def test_the_table_lists_the_problems() -> None:
    good = Row("turn.after_commit", "sqlite", ["ok"] * 6, 0, 0, [])
    bad = Row("turn.after_commit", "postgresql", ["ok"] * 5 + ["WRONG"], 1, 0, ["it is lost"])
    _, first, second = lines(iter([good, bad]))
    assert first.split()[-3:] == ["0", "0", "ok"]
    assert second.split()[-4:] == ["WRONG", "1", "0", "WRONG"]
