"""The sink: immutable runs, no partial files, a manifest at the end, and clear errors."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from redrive.errors import AlreadyExists, LeaseLost
from redrive.partitions import Partition
from redrive.partitions.raw.manifest import run_folder
from redrive.partitions.raw.writer import RunWriter
from redrive.storage import Store
from redrive.storage.local import Local

KEY = Partition("crm", "Acme/é", "orders", date(2026, 1, 31))
NOW = datetime(2026, 2, 1, 3, tzinfo=timezone.utc)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(Local(root=str(tmp_path)), name="raw")


@pytest.fixture
def run(store: Store) -> RunWriter:
    return RunWriter(store, KEY, "r-1")


def files(store: Store) -> list[str]:
    return sorted(path.removeprefix(run_folder(KEY, "r-1") + "/") for path in store.files())


def lines(store: Store, name: str = "rows.jsonl") -> list[Any]:
    return [json.loads(line) for line in store.read_bytes(f"{run_folder(KEY, 'r-1')}/{name}").splitlines()]


@pytest.mark.req("P-6")
def test_rows_are_written_with_their_manifest(store: Store, run: RunWriter) -> None:
    assert run.sink.rows({"n": n} for n in range(3)) == 3
    assert files(store) == ["rows.jsonl"], "no manifest: it does not count yet"
    manifest = run.finish(NOW)
    stored = store.read_bytes(f"{run_folder(KEY, 'r-1')}/rows.jsonl")
    assert stored == b'{"n":0}\n{"n":1}\n{"n":2}\n'
    (written,) = manifest.files
    assert (written.name, written.size, written.rows) == ("rows.jsonl", 24, 3)
    assert written.sha256 == sha256(stored).hexdigest()
    assert files(store) == ["manifest.json", "rows.jsonl"]
    said = json.loads(store.read_bytes(f"{run_folder(KEY, 'r-1')}/manifest.json"))
    assert (said["customer_id"], said["logical_date"], said["run_id"], said["row_count"]) == ("Acme/é", "2026-01-31", "r-1", 3)


def test_values_that_json_lacks_are_converted(store: Store, run: RunWriter) -> None:
    run.sink.rows([{"day": date(2026, 1, 31), "at": NOW, "sum": Decimal("1.10"), "id": UUID(int=1), "ä": "€"}])
    assert lines(store) == [
        {
            "day": "2026-01-31",
            "at": "2026-02-01T03:00:00+00:00",
            "sum": "1.10",
            "id": "00000000-0000-0000-0000-000000000001",
            "ä": "€",
        }
    ]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ([1], "row 2 is not a mapping of columns to values, but list"),
        ({"x": object()}, "row 2 cannot be written as JSON: a value of type object has no place in JSON"),
        ({"x": float("nan")}, "row 2 cannot be written as JSON: Out of range float"),
        ({"x": "\ud800"}, "row 2 cannot be written as JSON: .*surrogates not allowed"),
    ],
)
def test_a_bad_row_is_named_and_leaves_nothing(store: Store, run: RunWriter, row: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        run.sink.rows([{"x": 1}, row])
    assert files(store) == []


@pytest.mark.req("P-6")
def test_rows_that_raise_leave_no_file_and_can_be_written_again(store: Store, run: RunWriter) -> None:
    def broken() -> Iterator[dict[str, Any]]:
        for n in range(50_000):
            yield {"n": n}
        raise ConnectionError("page 501")

    with pytest.raises(ConnectionError, match="page 501"):
        run.sink.rows(broken())
    assert files(store) == []
    assert run.sink.rows([{"n": 1}]) == 1
    assert run.finish(NOW).row_count == 1


@pytest.mark.req("P-6")
def test_one_name_is_written_once(store: Store, run: RunWriter) -> None:
    run.sink.rows([{"n": 1}])
    with pytest.raises(ValueError, match="'rows.jsonl' was written by this run already: give each file a name of its own"):
        run.sink.rows([{"n": 2}])
    with pytest.raises(ValueError, match=r"\(as 'rows.jsonl', which some disks take for the same\)"):
        run.sink.rows([{"n": 2}], name="Rows.jsonl")
    assert lines(store) == [{"n": 1}]
    run.sink.rows([{"n": 2}], name="more/rows.jsonl")
    assert run.finish(NOW).row_count == 2


@pytest.mark.req("P-6")
def test_a_run_is_never_overwritten(store: Store, run: RunWriter) -> None:
    run.sink.rows([{"n": 1}])
    run.finish(NOW)
    again = RunWriter(store, KEY, "r-1")
    with pytest.raises(AlreadyExists) as refused:
        again.sink.rows([{"n": 2}])
    assert "what a run wrote is never overwritten" in refused.value.__notes__[0]
    again.sink.rows([{"n": 2}], name="other.jsonl")
    with pytest.raises(AlreadyExists) as refused:
        again.finish(NOW)
    assert "has ended already" in refused.value.__notes__[0]
    assert lines(store) == [{"n": 1}]


def test_an_extraction_without_files_is_an_error(run: RunWriter) -> None:
    with pytest.raises(ValueError, match=r"wrote no file; .* or out.rows\(\[\]\) for an empty result"):
        run.finish(NOW)


def test_an_empty_result_is_data(store: Store, run: RunWriter) -> None:
    assert run.sink.rows([]) == 0
    assert run.finish(NOW).row_count == 0
    assert lines(store) == []


def test_any_file_can_be_written(store: Store, run: RunWriter) -> None:
    with run.sink.open("orders.csv", rows=2) as file, io.TextIOWrapper(file, "utf-8") as text:  # closes its argument
        text.write("id\n1\n2\n")
    with run.sink.open("log.jsonl") as file:
        file.write(b'{"a":1}\n{"a":2}')
    with run.sink.open("blob") as file:
        file.write(b"x" * 10)
    assert files(store) == ["blob", "log.jsonl", "orders.csv"]
    assert {one.name: one.rows for one in run.finish(NOW).files} == {"blob": None, "log.jsonl": 2, "orders.csv": 2}


def test_a_file_whose_block_raises_is_not_created(store: Store, run: RunWriter) -> None:
    with pytest.raises(KeyError), run.sink.open("a.csv") as file:
        file.write(b"x")
        raise KeyError("no such column")
    assert files(store) == []


def test_a_wrong_row_count_is_rejected(store: Store, run: RunWriter) -> None:
    with pytest.raises(ValueError, match=r"'a.jsonl' has 1 row, but rows=2 was passed"), run.sink.open("a.jsonl", rows=2) as file:
        file.write(b"{}\n")
    assert files(store) == []


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "it is empty"),
        ("/a", "it begins with /"),
        ("../a", "a path cannot leave its root"),
        ("manifest.json", "is the run's own"),
        ("Manifest.JSON", "is the run's own"),
        ("a\\b", "backslash"),
    ],
)
def test_invalid_file_names_are_rejected(run: RunWriter, name: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        run.sink.rows([], name=name)
    with pytest.raises(ValueError, match=says), run.sink.open(name):
        pass


async def pages() -> AsyncIterator[dict[str, Any]]:
    for n in range(3):
        await asyncio.sleep(0)
        yield {"n": n}


def test_invalid_rows_are_rejected(run: RunWriter) -> None:
    with pytest.raises(TypeError, match="rows.. takes many rows, and this is one"):
        run.sink.rows({"n": 1})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="takes an iterable of rows, which are mappings, not str"):
        run.sink.rows("n")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"an async one is written by `await out.arows"):
        run.sink.rows(pages())  # type: ignore[arg-type]


def test_rows_are_written_from_async_code(store: Store, run: RunWriter) -> None:
    async def extract() -> list[int]:
        return [await run.sink.arows(pages()), await run.sink.arows([{"n": 7}], name="b.jsonl")]

    assert asyncio.run(extract()) == [3, 1]
    assert lines(store) == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_a_lost_run_writes_nothing_more(store: Store) -> None:
    lost: list[bool] = []

    def alive() -> None:
        if lost:
            raise LeaseLost("somebody else has it")

    run = RunWriter(store, KEY, "r-1", check_alive=alive)
    run.sink.rows([{"n": 1}])
    lost.append(True)
    with pytest.raises(LeaseLost):
        run.sink.rows([{"n": 1}], name="b.jsonl")
    with pytest.raises(LeaseLost):
        run.finish(NOW)
    assert files(store) == ["rows.jsonl"]


def test_a_file_after_the_end_is_rejected(run: RunWriter) -> None:
    run.sink.rows([])
    run.finish(NOW)
    with pytest.raises(ValueError, match="'late.jsonl' comes too late"):
        run.sink.rows([], name="late.jsonl")


def test_an_extraction_that_returns_while_writing_is_an_error(run: RunWriter) -> None:
    with run.sink.open("a"), pytest.raises(ValueError, match="returned while 'a' was still being written"):
        run.finish(NOW)
