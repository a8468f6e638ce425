"""Readings as Arrow, Polars, pandas and DuckDB, and raw files that DuckDB reads by the documented layout."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyarrow import parquet

from redrive import App
from redrive.errors import Damaged
from redrive.partitions import Partition, Raw, Reading, Sink
from redrive.partitions.raw import arrow
from redrive.partitions.raw.files import load_raw
from redrive.partitions.raw.writer import RunWriter
from redrive.storage import Store
from redrive.storage.local import Local
from redrive.storage.memory import Memory
from redrive.storage.obstore import S3Obstore
from redrive.storage.s3 import S3
from redrive.testing import sandbox
from tests.servers.buckets import options

pytestmark = pytest.mark.req("X-6")
NOW = datetime(2026, 2, 1, 3, tzinfo=timezone.utc)


def run_of(write: Callable[[Sink], object], store: Store | None = None, day: int = 31) -> Raw:
    key = Partition("crm", "acme", "orders", date(2026, 1, day))
    store = store or Store(Memory("m"))
    run = RunWriter(store, key, f"r-{day}")
    write(run.sink)
    run.finish(NOW)
    return load_raw(store, key, f"r-{day}")


def reading_of(*rows: list[dict[str, Any]]) -> Reading:
    files = [file for batch in rows for file in run_of(lambda out, batch=batch: out.rows(batch)).files]  # type: ignore[misc]
    return Reading(files, [])


def write_parquet(out: Sink, table: Any, name: str = "rows.parquet") -> None:
    with out.open(name) as file:
        parquet.write_table(table, file)


def test_all_four_forms_have_the_values_of_rows() -> None:
    reading = reading_of(
        [{"id": 1, "on": "2026-01-30", "price": Decimal("1.50")}, {"id": 2, "on": "2026-01-30", "note": "late"}],
        [{"id": 3.5, "on": "2026-01-31"}],
    )
    expected = [
        {"id": 1, "on": "2026-01-30", "price": "1.50", "note": None},
        {"id": 2, "on": "2026-01-30", "price": None, "note": "late"},
        {"id": 3.5, "on": "2026-01-31", "price": None, "note": None},
    ]
    assert reading.to_arrow().to_pylist() == expected
    assert reading.to_polars().to_dicts() == expected
    assert reading.to_pandas().astype(object).where(lambda frame: frame.notna(), None).to_dict("records") == expected
    with duckdb.connect() as connection:
        relation = reading.to_duckdb(connection)
        assert relation.columns == ["id", "on", "price", "note"]
        assert relation.filter("id > 1").aggregate("count(*), max(id)").fetchall() == [(2, 3.5)]
    assert reading.to_duckdb().fetchall() == [tuple(row.values()) for row in expected]


def test_parquet_and_json_lines_are_joined() -> None:
    table = pa.table({"id": pa.array([1, 2], pa.int32()), "tags": [["a"], []]})
    store = Store(Memory("m"))
    files = [
        *run_of(lambda out: write_parquet(out, table), store, 30).files,
        *run_of(lambda out: out.rows([{"id": 3, "tags": ["b"]}]), store, 31).files,
    ]
    joined = Reading(files, []).to_arrow()
    assert joined.to_pylist() == [{"id": 1, "tags": ["a"]}, {"id": 2, "tags": []}, {"id": 3, "tags": ["b"]}]
    assert joined.schema.field("id").type == pa.int64()


def test_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "BATCH_ROWS", 4)
    reading = reading_of([{"n": number} for number in range(10)])
    batches = reading.batches()
    assert [batch.num_rows for batch in batches] == [4, 4, 2]
    table = pa.table({"n": list(range(9))})
    columns = run_of(lambda out: write_parquet(out, table))
    assert [batch.num_rows for batch in Reading(columns.files, []).batches()] == [4, 4, 1]


def test_a_reading_without_rows() -> None:
    empty = reading_of([])
    assert empty.to_arrow().num_rows == Reading([], []).to_arrow().num_rows == 0
    assert empty.to_polars().is_empty()
    assert empty.to_pandas().empty
    with pytest.raises(ValueError, match=r"the reading has no rows; check reading\.missing"):
        empty.to_duckdb()
    columns = run_of(lambda out: write_parquet(out, pa.table({"id": pa.array([], pa.int64())})))
    assert Reading(columns.files, []).to_arrow().column_names == ["id"]
    assert Reading(columns.files, []).to_duckdb().fetchall() == []


def test_values_of_several_types_are_named() -> None:
    with pytest.raises(TypeError, match=r"rows\.jsonl: column 'id' does not fit one Arrow type: .*; read it with rows\(\)"):
        reading_of([{"id": 1}, {"id": "one"}]).to_arrow()
    with pytest.raises(TypeError, match=r"rows\.jsonl: column 'id' does not fit one Arrow type"):
        reading_of([{"id": 2**70}]).to_polars()
    mixed = reading_of([{"id": 1}], [{"id": "one"}])
    with pytest.raises(TypeError, match=r"to_arrow\(\): a column has different types in several files"):
        mixed.to_arrow()
    assert [batch.to_pylist() for batch in mixed.batches()] == [[{"id": 1}], [{"id": "one"}]]


def test_other_formats_are_rejected() -> None:
    def write(out: Sink) -> None:
        with out.open("a.csv", rows=1) as file:
            file.write(b"a\n1\n")

    with pytest.raises(TypeError, match="'a.csv' is neither"):
        Reading(run_of(write).files, []).to_arrow()


@pytest.mark.parametrize("form", ["rows", "parquet"])
def test_changed_bytes_are_reported(tmp_path: Path, form: str) -> None:
    store = Store(Local("disk", root=str(tmp_path)))
    table = pa.table({"id": list(range(1000))})
    raw = run_of(lambda out: out.rows([{"id": 1}]) if form == "rows" else write_parquet(out, table), store)
    (file,) = raw.files
    path = tmp_path / file.path
    changed = bytearray(path.read_bytes())
    changed[changed.index(b"1") if form == "rows" else len(changed) // 2] ^= 3  # Valid JSON: 1 becomes 2.
    path.write_bytes(bytes(changed))
    with pytest.raises(Damaged, match="its bytes were changed"):
        Reading(raw.files, []).to_arrow()


@pytest.mark.parametrize(
    ("method", "library", "extra"),
    [
        ("to_arrow", "pyarrow", "arrow"),
        ("batches", "pyarrow", "arrow"),
        ("to_polars", "polars", "polars"),
        ("to_pandas", "pandas", "pandas"),
        ("to_duckdb", "duckdb", "duckdb"),
    ],
)
def test_a_missing_library_is_named(method: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = reading_of([{"id": 1}])
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError) as caught:
        list(getattr(reading, method)())
    assert str(caught.value) == f'{method}() needs {library}: pip install "redrive[{extra}]"'


# ---- the layout, as docs/reference/layout.md has it ----


@pytest.mark.req("P-11")
def test_duckdb_reads_raw_files_by_the_documented_layout(tmp_path: Path) -> None:
    """A run is rejected and an accepted one is replaced. Only the files of a reading are the current data."""
    root = tmp_path / "raw"
    app = App(f"sqlite:///{tmp_path}/lake.db", stores={"raw": {"type": "local", "options": {"root": str(root)}}})
    amounts = [[], [{"order_id": 1, "amount": 5}], [{"order_id": 1, "amount": 7}]]

    @app.dataset("crm", "orders", raw="raw", customers=["Acme/1"], cron="0 2 * * *", checks=[lambda raw: raw.row_count > 0])
    def orders(_partition: Partition, out: Sink) -> None:
        out.rows(amounts.pop(0) if amounts else [{"order_id": 9, "amount": 9}])

    with sandbox(app, at=datetime(2026, 3, 1, 12, tzinfo=timezone.utc)) as box:
        box.drain()
        box.clock.advance(24 * 3600)
        box.drain()
        day = date(2026, 3, 1)
        reading = orders.read("Acme/1", day)
        files = [str(root / file.path) for file in reading.files]
        assert len(files) == 1
    assert reading.files[0].path.startswith(f"crm/customer_id=%41cme%2f1/query_name=orders/logical_date={day}/run_id=")
    manifest = json.loads((root / reading.files[0].path).with_name("manifest.json").read_text(encoding="utf-8"))
    assert (manifest["redrive_manifest"], manifest["customer_id"], manifest["row_count"]) == (1, "Acme/1", 1)
    everything = str(root / "crm/*/*/*/*/*.jsonl")
    with duckdb.connect() as connection:
        options = "hive_partitioning=true"
        current = connection.execute(f"SELECT amount, customer_id, logical_date FROM read_json(?, {options})", [files]).fetchall()
        stored = connection.execute(f"SELECT count(DISTINCT run_id) FROM read_json(?, {options})", [everything]).fetchone()
        manifests = connection.execute(
            "SELECT run_id, row_count FROM read_json(?, columns={run_id: 'VARCHAR', row_count: 'BIGINT'})",
            [str(root / "crm/*/*/*/*/manifest.json")],
        ).fetchall()
    assert [(amount, customer, str(on)) for amount, customer, on in current] == [(5, "Acme/1", str(day))]
    assert stored is not None
    assert sorted(count for _, count in manifests) == [0, 1]  # The rejected run has a manifest too.
    assert reading.files[0].run_id in {run_id for run_id, _ in manifests}


@pytest.mark.req("P-11")
@pytest.mark.parametrize("kind", [S3, S3Obstore])
def test_duckdb_reads_raw_files_of_s3_through_a_view(kind: type[Any], s3_url: str, s3_bucket: str) -> None:
    backend = kind("lake", bucket=s3_bucket, **options(s3_url))
    store = Store(backend, root_path="raw/v1")
    table = pa.table({"amount": list(range(200_000))})
    raw = run_of(lambda out: write_parquet(out, table), store)
    with duckdb.connect() as connection:
        connection.register_filesystem(store.fsspec(read_only=True))
        query = "SELECT sum(amount), any_value(customer_id) FROM read_parquet(?, hive_partitioning=true) WHERE amount < 10"
        assert connection.execute(query, [[f"redrive://{raw.files[0].path}"]]).fetchall() == [(45, "acme")]
    assert Reading(raw.files, []).to_arrow().num_rows == 200_000
    backend.close()
