"""Extractions on a Dask cluster: a scheduler and two workers as processes, and a worker of Redrive in this one."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from redrive import App, journal
from redrive.journal import Record
from redrive.ops.project.user_code import Unreadable
from redrive.ops.worker_process import WorkOptions, start_worker
from tests.acceptance.partitions.world import SINCE, backfill, counts, until
from tests.servers.dask import DaskCluster
from tests.servers.process import free_port

PROGRAM = """
import os, time
from pathlib import Path
from redrive import App, RetryPolicy
from redrive.errors import Stop
from redrive.partitions import Partition, Sink, row_count

HERE = Path({folder!r})
app = App(f"sqlite:///{{HERE}}/{name}.db", stores={{"raw": {store!r}}})
AT_ONCE = RetryPolicy(max_attempts=3, backoff_base=0.0, backoff_max=0.0, jitter=0.0)
OPTIONS = dict(raw="raw", customers=["acme"], checks=[row_count(min=1)], retry=AT_ONCE, max_age=None)

class OwnError(Exception):
    def __init__(self, a, b):
        super().__init__(f"{{a}} {{b}}")

@app.dataset("crm", "orders", **OPTIONS)
def orders(partition: Partition, out: Sink) -> None:
    if partition.customer_id == "stopped":
        raise Stop("closed account")
    if partition.customer_id == "failing":
        raise OwnError("no", "luck")
    if partition.customer_id.startswith("held"):
        held = HERE / partition.customer_id
        if not held.exists():
            held.write_text(str(os.getpid()))
            while not (HERE / "gate").exists():
                time.sleep(0.01)
    out.rows([{{"pid": os.getpid()}}])

@app.dataset("crm", "visits", **OPTIONS)
async def visits(partition: Partition, out: Sink) -> None:
    out.rows([{{"pid": os.getpid()}}])
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    folder = tmp_path_factory.mktemp("dask")
    started = DaskCluster(folder)
    started.start_scheduler()
    started.start_worker()
    started.start_worker()
    yield started
    started.close()


@contextmanager
def lake(folder: Path, name: str, *, where: Path | None = None, store: dict[str, Any] | None = None) -> Iterator[Any]:
    """Yield a module with an app, which the Dask workers find if it is in their folder."""
    place = where or folder
    store = store or {"type": "local", "options": {"root": str(folder / "raw")}}
    (place / f"{name}.py").write_text(PROGRAM.format(folder=str(folder), name=name, store=store))
    sys.path.insert(0, str(place))
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(name)
        yield module
        module.app.close()
    finally:
        sys.path.remove(str(place))


@contextmanager
def record_log() -> Iterator[list[Record]]:
    records: list[Record] = []
    unsubscribe = journal.subscribe(records.append, every=True, inline=True)
    try:
        yield records
    finally:
        unsubscribe()


def ends(records: list[Record], customer: str) -> list[tuple[str, Any]]:
    """Return the kind and attempt of each record of a customer."""
    return [(each.kind, each.fields.get("attempt")) for each in records if each.fields.get("customer_id") == customer]


def problem_of(worker: Any) -> str:
    return str(worker.status.failing.get("extractions", ""))


@pytest.mark.req("E-10")
def test_extractions_run_on_the_cluster_and_errors_keep_their_meaning(cluster: DaskCluster) -> None:
    with lake(cluster.folder, "lake_run") as module, record_log() as records:
        app: App = module.app
        backfill(app, "orders", customers=("acme", "globex", "stopped", "failing"), until=SINCE)
        backfill(app, "visits", customers=("acme",), until=SINCE)
        with app.worker(threads=4, executor=cluster.address):
            until(lambda: counts(app) == {"success": 2, "terminal": 2} and counts(app, "visits") == {"success": 1})
        rows = [*module.orders.read("acme", SINCE).complete().rows(), *module.visits.read("acme", SINCE).complete().rows()]
    assert {row["pid"] for row in rows} <= {worker.pid for worker in cluster.workers}
    assert os.getpid() not in {row["pid"] for row in rows}
    assert ends(records, "stopped") == [("giveup", 1)], "a Stop on the cluster is final"
    assert ends(records, "failing") == [("retry", 1), ("retry", 2), ("giveup", 3)], "Dask adds no attempts"
    assert {each.fields["error_class"] for each in records if each.fields.get("customer_id") == "failing"} == {"OwnError"}


@pytest.mark.req("E-10")
def test_a_lost_dask_worker_costs_one_attempt(cluster: DaskCluster) -> None:
    with lake(cluster.folder, "lake_lost") as module, record_log() as records:
        app: App = module.app
        backfill(app, "orders", customers=("held-lost", "acme"), until=SINCE)
        with app.worker(threads=2, executor=cluster.address):
            held = cluster.folder / "held-lost"
            until(lambda: held.exists() and held.read_text() != "")
            cluster.kill(*[worker for worker in cluster.workers if str(worker.pid) == held.read_text()])
            until(lambda: counts(app) == {"success": 2})
    assert ends(records, "held-lost") == [("retry", 1), ("recovered", 2)]
    assert ends(records, "acme") == [("success", 1)]
    lost = next(each for each in records if each.kind == "retry")
    assert lost.fields["error_class"] == "ProcessCrashed"
    assert "Dask worker" in lost.fields["error"]
    cluster.start_worker()


@pytest.mark.req("E-10")
def test_data_that_this_machine_cannot_read_is_not_accepted(cluster: DaskCluster) -> None:
    with lake(cluster.folder, "lake_memory", store={"type": "memory"}) as module, record_log() as records:
        app: App = module.app
        backfill(app, "orders", customers=("acme",), until=SINCE)
        with app.worker(threads=1, executor=cluster.address) as worker:
            until(lambda: "use a store that all machines share" in problem_of(worker))
        assert "success" not in counts(app)
    assert ends(records, "acme") == [("again", 1)], "it does not count as an attempt"


@pytest.mark.req("E-10")
def test_an_app_that_dask_workers_cannot_import_is_named(cluster: DaskCluster, tmp_path: Path) -> None:
    with lake(cluster.folder, "lake_elsewhere", where=tmp_path) as module, record_log() as records:
        backfill(module.app, "orders", customers=("acme",), until=SINCE)
        with module.app.worker(threads=1, executor=cluster.address) as worker:
            until(lambda: "No module named 'lake_elsewhere'" in problem_of(worker))
            assert "install it on all Dask workers" in problem_of(worker)
    assert ends(records, "acme") == [("again", 1)], "it does not count as an attempt"


@pytest.mark.req("E-10")
def test_a_restarted_scheduler_costs_no_attempt(cluster: DaskCluster) -> None:
    with lake(cluster.folder, "lake_away") as module, record_log() as records:
        app: App = module.app
        backfill(app, "orders", customers=("held-away",), until=SINCE)
        with app.worker(threads=1, executor=cluster.address) as worker:
            until((cluster.folder / "held-away").exists)
            cluster.kill(cluster.scheduler, *cluster.workers)
            until(lambda: "no scheduler responds" in problem_of(worker))
            cluster.start_scheduler()
            cluster.start_worker()
            until(lambda: counts(app) == {"success": 1})
            until(lambda: problem_of(worker) == "")
    assert ends(records, "held-away") == [("again", 1), ("success", 1)]
    again = next(each for each in records if each.kind == "again")
    assert "the scheduler went away" in again.fields["error"]


@pytest.mark.req("E-10")
def test_a_suspended_scheduler_is_one_line_of_the_status(cluster: DaskCluster) -> None:
    with lake(cluster.folder, "lake_suspended") as module, module.app.worker(threads=1, executor=cluster.address) as worker:
        backfill(module.app, "orders", customers=("acme",), until=SINCE)
        until(lambda: counts(module.app) == {"success": 1})
        assert cluster.scheduler is not None
        cluster.scheduler.send_signal(signal.SIGSTOP)
        try:
            until(lambda: "no scheduler responds" in problem_of(worker))
        finally:
            cluster.scheduler.send_signal(signal.SIGCONT)
        until(lambda: problem_of(worker) == "")


@pytest.mark.req("E-10")
def test_an_unreachable_scheduler_is_one_line_of_the_status(tmp_path: Path) -> None:
    with lake(tmp_path, "lake_alone") as module:
        address = f"dask://127.0.0.1:{free_port()}"
        with module.app.worker(threads=1, executor=address) as worker:
            until(lambda: problem_of(worker) != "")
            problem = problem_of(worker)
    assert problem == f"DaskUnavailable: {address}: no scheduler responds; start it, or correct the address"


@pytest.mark.parametrize("address", ["dask://nowhere", "tcp://host:8786", "dask://host:99999", "dask://a b:1"])
def test_an_invalid_address_is_rejected_in_one_line(tmp_path: Path, address: str) -> None:
    with lake(tmp_path, "lake_invalid"), pytest.raises(Unreadable) as refused:
        start_worker("lake_invalid:app", WorkOptions(executor=address))
    sys.modules.pop("lake_invalid")
    expected = f"lake_invalid:app: invalid executor {address!r}: use the scheduler's address, as dask://host:8786"
    assert str(refused.value) == expected


def test_a_dataset_that_dask_workers_cannot_import_is_rejected(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/lake.db", stores={"raw": {"type": "memory"}})

    @app.dataset("crm", "orders", raw="raw", customers=["acme"], checks=[])
    def orders(partition: object, out: object) -> None:
        """Extract nothing."""

    with pytest.raises(ValueError, match="crm/orders: Dask workers cannot import .*top level of a module"):
        app.worker(executor="dask://127.0.0.1:8786")
    app.close()
