"""The ring sink: the last records in memory, and in a file after a crash."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from redrive.journal import Record, Ring, ring

AT = datetime(2026, 1, 2, tzinfo=timezone.utc)


def record(number: int) -> Record:
    return Record("retry", AT, {"number": number})


@pytest.mark.req("J-3")
def test_a_ring_keeps_the_last_records_oldest_first() -> None:
    kept = ring(3)
    for number in range(5):
        kept(record(number))
    assert [each.fields["number"] for each in kept.records] == [2, 3, 4]


def test_records_returns_a_copy() -> None:
    kept = ring()
    kept(record(1))
    kept.records.clear()
    assert len(kept.records) == 1


def test_the_default_size_is_ten_thousand() -> None:
    kept = ring()
    for number in range(10_001):
        kept(record(number))
    assert len(kept.records) == 10_000


@pytest.mark.parametrize("size", [True, "5", 2.0, None])
def test_the_size_must_be_a_whole_number(size: Any) -> None:
    with pytest.raises(TypeError, match=f"^size must be a whole number, not {type(size).__name__}: "):
        ring(size)


def test_the_size_must_be_at_least_one() -> None:
    with pytest.raises(ValueError, match="^size must be at least 1: 0$"):
        ring(0)
    assert len(ring(1).records) == 0


def test_dump_to_must_be_a_path() -> None:
    with pytest.raises(TypeError, match="str, bytes or os.PathLike"):
        ring(dump_to=5)  # type: ignore[arg-type]


@pytest.mark.req("J-3")
def test_a_dump_is_json_lines(tmp_path: Path) -> None:
    kept = Ring(10)
    kept(record(1))
    kept(Record("giveup", AT, {"error": "größer\nals", "retry_at": AT, "nested": {"a": [1, None]}}))
    path = tmp_path / "dump.jsonl"
    path.write_text("what was there before, " * 100)
    assert kept.dump(path) == 2
    assert [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] == [
        {"kind": "retry", "at": "2026-01-02T00:00:00+00:00", "number": 1},
        {
            "kind": "giveup",
            "at": "2026-01-02T00:00:00+00:00",
            "error": "größer\nals",
            "retry_at": "2026-01-02 00:00:00+00:00",
            "nested": {"a": [1, None]},
        },
    ]
    assert "größer" in path.read_text(encoding="utf-8")


@pytest.mark.req("J-3")
def test_fields_do_not_replace_kind_and_time(tmp_path: Path) -> None:
    kept = Ring(1)
    kept(Record("retry", AT, {"kind": "invoice", "at": "noon", "x": 1}))
    kept.dump(tmp_path / "dump")
    row = json.loads((tmp_path / "dump").read_text())
    assert list(row.items()) == [("kind", "retry"), ("at", AT.isoformat()), ("x", 1)]


@pytest.mark.req("J-3")
def test_a_lone_surrogate_can_be_dumped(tmp_path: Path) -> None:
    kept = Ring(2)
    kept(Record("retry", AT, {"path": "a\udcffb"}))
    kept(record(2))
    assert kept.dump(tmp_path / "dump") == 2
    rows = [json.loads(line) for line in (tmp_path / "dump").read_text(encoding="utf-8").splitlines()]
    assert (rows[0]["path"], rows[1]["number"]) == ("a\udcffb", 2)


@pytest.mark.req("J-3")
def test_threads_may_read_and_write() -> None:
    kept, stop, problems = ring(50), threading.Event(), []

    def write() -> None:
        while not stop.is_set():
            kept(record(1))

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(2000):
            assert len(kept.records) <= 50
    except RuntimeError as error:
        problems.append(error)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert problems == []


def run(tmp_path: Path, ending: str, *, inline: bool = True) -> tuple[str, list[dict[str, Any]] | None]:
    """Return the error output of a program with a ring, and its dump (None: no dump)."""
    path = tmp_path / "last words.jsonl"
    program = f"""
import sys, threading
from redrive import journal, retry
journal.subscribe(journal.ring(100, dump_to={str(path)!r}), inline={inline})

@retry(max_attempts=2, backoff_base=0, jitter=0, operation="crm.fetch")
def fetch():
    raise ConnectionError("reset, token=hunter2")
{ending}
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "hunter2" not in (path.read_text() if path.exists() else "")
    return ran.stderr, [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else None


@pytest.mark.req("J-3")
@pytest.mark.parametrize("inline", [True, False])
def test_an_uncaught_exception_dumps_the_records(tmp_path: Path, inline: bool) -> None:
    said, rows = run(tmp_path, "fetch()", inline=inline)
    assert "ConnectionError: reset" in said  # the traceback is still printed
    assert rows is not None
    assert [(row["kind"], row["attempt"]) for row in rows] == [("retry", 1), ("giveup", 2)]
    assert rows[1]["reason"] == "attempts"


@pytest.mark.req("J-3")
@pytest.mark.parametrize("ending", ["try:\n    fetch()\nexcept ConnectionError:\n    pass", "sys.exit(3)"])
def test_a_normal_exit_dumps_nothing(tmp_path: Path, ending: str) -> None:
    assert run(tmp_path, ending) == ("", None)


@pytest.mark.req("J-3")
def test_the_previous_excepthook_is_called(tmp_path: Path) -> None:
    ending = "\n".join(
        [
            "sys.excepthook = lambda kind, error, trace: print('hooked', kind.__name__, file=sys.stderr)",
            f"journal.subscribe(journal.ring(5, dump_to={str(tmp_path / 'second')!r}), inline=True)",
            "fetch()",
        ]
    )
    said, _ = run(tmp_path, ending)
    assert said == "hooked ConnectionError\n"
    assert len((tmp_path / "second").read_text().splitlines()) == 2
