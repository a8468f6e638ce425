"""Files of a run are compared with its manifest: missing and changed ones are reported."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from pathlib import Path

import pytest

from redrive.errors import Damaged
from redrive.partitions import Partition
from redrive.partitions.raw.files import load_raw
from redrive.partitions.raw.manifest import manifest_path, run_folder
from redrive.partitions.raw.writer import RunWriter
from redrive.storage import Store
from redrive.storage.local import Local

KEY = Partition("crm", "acme", "orders", date(2026, 1, 31))
NOW = datetime(2026, 2, 1, 3, tzinfo=timezone.utc)
MANIFEST = manifest_path(KEY, "r-1")
ROWS = f"{run_folder(KEY, 'r-1')}/rows.jsonl"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(Local(root=str(tmp_path)), name="raw")
    run = RunWriter(made, KEY, "r-1")
    run.sink.rows({"n": n} for n in range(3))
    run.finish(NOW)
    return made


def test_files_are_read_as_written(store: Store) -> None:
    found = load_raw(store, KEY, "r-1")
    assert (found.row_count, [file.name for file in found.files], found.written_at) == (3, ["rows.jsonl"], NOW)
    assert list(found.rows()) == [{"n": 0}, {"n": 1}, {"n": 2}]
    with found.files[0].open() as file:
        assert file.read() == b'{"n":0}\n{"n":1}\n{"n":2}\n'
    found.check_digests()
    assert found.previous is None


def test_a_missing_manifest_is_damage(store: Store) -> None:
    store.delete(MANIFEST)
    with pytest.raises(
        Damaged, match="run r-1 of crm/acme/orders/2026-01-31 has no manifest: it was never ended, or has been deleted"
    ):
        load_raw(store, KEY, "r-1")


@pytest.mark.parametrize(
    ("stored", "says"),
    [
        (b"", "cannot be read"),
        (b"{", "cannot be read"),
        (b"\xff", "cannot be read"),
        (b"[]", "not a manifest of Redrive"),
        (b'{"redrive_manifest": 9}', "version 9 of the manifest; this code reads 1"),
        (b'{"redrive_manifest": 1, "files": []}', "it lacks 'logical_date'"),
        (b'{"redrive_manifest": 1, "files": [3]}', "cannot be read"),
    ],
)
def test_a_corrupt_manifest_is_damage(store: Store, stored: bytes, says: str) -> None:
    store.write(MANIFEST, stored)
    with pytest.raises(Damaged, match=says) as damage:
        load_raw(store, KEY, "r-1")
    assert damage.value.path == MANIFEST


def test_a_manifest_of_another_run_is_damage(store: Store) -> None:
    said = json.loads(store.read_bytes(MANIFEST))
    store.write(MANIFEST, json.dumps(said | {"run_id": "r-2"}).encode())
    with pytest.raises(Damaged, match="the manifest is of run r-2"):
        load_raw(store, KEY, "r-1")


def test_a_manifest_with_another_digest_is_damage(store: Store) -> None:
    digest = load_raw(store, KEY, "r-1").manifest.digest
    assert load_raw(store, KEY, "r-1", digest=digest).row_count == 3
    said = json.loads(store.read_bytes(MANIFEST))
    store.write(MANIFEST, json.dumps(said | {"row_count": 4}).encode())
    with pytest.raises(Damaged, match="it was changed"):
        load_raw(store, KEY, "r-1", digest=digest)


def test_a_deleted_file_is_damage(store: Store) -> None:
    found = load_raw(store, KEY, "r-1")
    store.delete(ROWS)
    with pytest.raises(Damaged, match="is missing in the store; it was deleted"):
        load_raw(store, KEY, "r-1")
    with pytest.raises(Damaged, match="is missing"):
        list(found.rows())


def test_a_file_of_another_size_is_damage(store: Store) -> None:
    found = load_raw(store, KEY, "r-1")
    store.write(ROWS, b'{"n":0}\n')
    with pytest.raises(Damaged, match="has 8 bytes, but 24 were written"):
        load_raw(store, KEY, "r-1")
    with pytest.raises(Damaged, match="has 8 bytes, but 24 were written"):
        list(found.rows())
    store.write(ROWS, b'{"n":0}\n' * 4)
    with pytest.raises(Damaged, match="has at least 32 bytes, but 24 were written"):
        found.check_digests()


def test_a_file_of_other_bytes_is_damage(store: Store) -> None:
    store.write(ROWS, b'{"n":0}\n{"n":1}\n{"n":3}\n')
    found = load_raw(store, KEY, "r-1")
    with pytest.raises(Damaged, match="its bytes were changed"):
        list(found.rows())
    with pytest.raises(Damaged, match="its bytes were changed"), found.files[0].open() as file:
        file.read()


def test_the_digest_is_not_compared_after_a_seek(store: Store) -> None:
    with load_raw(store, KEY, "r-1").files[0].open() as file:
        assert file.seek(8) == 8
        assert file.read(8) == b'{"n":1}\n'
        assert file.tell() == 16
        assert file.seek(0) == 0
        assert len(file.read()) == 24


def test_files_of_other_formats_have_no_rows(tmp_path: Path) -> None:
    store = Store(Local(root=str(tmp_path)))
    run = RunWriter(store, KEY, "r-1")
    with run.sink.open("a.csv", rows=1) as file:
        file.write(b"x\n")
    run.finish(NOW)
    with pytest.raises(TypeError, match=r"rows\(\) reads JSON Lines and Parquet; 'a.csv' is neither"):
        list(load_raw(store, KEY, "r-1").rows())


@pytest.mark.parametrize(
    ("stored", "says"),
    [(b'{"a":1}\n{"a"\n', "a.jsonl, line 2 is not valid JSON"), (b"[1]\n", "line 1 is not a row; expected a JSON object")],
)
def test_invalid_lines_are_named(tmp_path: Path, stored: bytes, says: str) -> None:
    store = Store(Local(root=str(tmp_path)))
    run = RunWriter(store, KEY, "r-1")
    with run.sink.open("a.jsonl") as file:
        file.write(stored)
    run.finish(NOW)
    with pytest.raises(ValueError, match=says):
        list(load_raw(store, KEY, "r-1").rows())


def test_parquet_files_have_rows(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    store = Store(Local(root=str(tmp_path)))
    run = RunWriter(store, KEY, "r-1")
    with run.sink.open("orders.parquet") as file:
        parquet.write_table(pyarrow.table({"id": list(range(10_000)), "name": ["x"] * 10_000}), file)
    with pytest.raises(ValueError, match="'b.parquet' is named as Parquet, and is none"), run.sink.open("b.parquet") as file:
        file.write(b"no")
    assert run.finish(NOW).row_count == 10_000
    rows = load_raw(store, KEY, "r-1").rows()
    assert next(rows) == {"id": 0, "name": "x"}
    assert sum(1 for _ in rows) == 9_999
