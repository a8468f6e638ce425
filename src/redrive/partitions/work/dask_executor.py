"""DaskExecutor: runs extractions on a Dask cluster. The worker keeps leases, retries and verdicts.

A task has the name of the dataset's function and the lease. The Dask worker imports the function,
extracts, writes the raw data and validates it. It returns the decision, never the data. Dask does
not retry: a second run of a task, after its machine was lost, reports the loss.
"""

from __future__ import annotations

import asyncio
import pickle
import re
import sys
import threading
from asyncio import CancelledError
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from importlib import import_module
from time import monotonic
from typing import Any, NamedTuple

from ...core.context import clock_around
from ...core.outage import Parking
from ...core.text import safe_str
from ...errors import Damaged, StorageError
from ...worker.job_type import ProcessCrashed
from ..datasets.dataset import Dataset, Extraction, extraction_of
from ..model import PartitionLease, Release, Verdict
from ..raw.files import load_raw
from .attempt import (
    ExtractionAttempt,
    ExtractionResult,
    RemoteExtractionFailure,
    extract_in_thread,
    extract_on_loop,
    verdict_or_release,
)

ADDRESS = re.compile(r"dask://(?P<host>[\w.-]+|\[[0-9a-fA-F:.]+\]):(?P<port>\d{1,5})")
CONNECT_SECONDS = 5.0
"""Time for a connection to the scheduler."""
WATCH_SECONDS = 1.0
"""Time between two looks at the cluster, and between two looks at a running attempt."""
GRACE_SECONDS = 5.0
"""Time after an attempt's timeout in which the Dask worker reports it."""
PAUSE_SECONDS = 10.0
"""Pause of claims after a fault in the setup of the cluster."""
PROTOCOL = 1
"""Form of the task. It changes if a Dask worker with other code could not run it."""


class DaskUnavailable(Exception):
    """The cluster cannot run extractions now. It does not count as an attempt."""


class Task(NamedTuple):
    """An attempt, as it is sent to a Dask worker."""

    reference: str
    """The dataset's function, as `module:name`."""
    lease: PartitionLease
    parking: Parking
    now: datetime
    """By the ledger's clock, when the task was submitted."""


class RemoteResult(NamedTuple):
    """What a Dask worker returns: a decision, or why it could not begin."""

    decision: Verdict | Release | None = None
    error_class: str = ""
    error: str = ""
    problem: str = ""
    """A fault in the setup of this Dask worker. Nothing was extracted."""
    is_rerun: bool = False
    """Dask ran the task before, on a machine that was lost. Nothing was extracted."""


# ---- in the worker ----


class DaskExecutor:
    """A connection to a Dask cluster. Threads may share it.

    A thread of its own connects, and connects again after an outage of the scheduler.
    """

    def __init__(
        self, address: str, extractions: Iterable[Extraction], parking: Parking, /
    ) -> None:
        """Check the address and the datasets. `open` connects.

        Raises:
            ImportError: `distributed` is not installed.
            ValueError: The address is invalid, or Dask workers cannot import a dataset.
        """
        self.address = check_address(address)
        self._away = f"{address}: no scheduler responds; start it, or correct the address"
        self._references = {each.limits.dataset: reference_to(each) for each in extractions}
        self._parking = parking
        try:
            self._distributed: Any = import_module("distributed")
        except ModuleNotFoundError as missing:
            raise ImportError('executor= needs Dask: pip install "redrive[dask]"') from missing
        self._client: Any = None
        self._is_closed = threading.Event()
        self._has_looked = False
        self._problem: str | None = None
        """Why the cluster cannot be used, at the last look."""
        self._setup_problem: tuple[str, float] | None = None
        """Fault in the setup of the cluster, and until when claims are paused for it."""

    def open(self) -> None:
        """Connect in the background."""
        self._is_closed = is_closed = threading.Event()
        watch = threading.Thread(
            target=self._watch, args=(is_closed,), name="redrive-dask", daemon=True
        )
        watch.start()

    def is_ready(self) -> bool:
        """Return whether extractions can be submitted. False before the first connection.

        Raises:
            DaskUnavailable: The scheduler is away, has no workers, or they cannot run the app.
        """
        if self._setup_problem is not None and monotonic() < self._setup_problem[1]:
            raise DaskUnavailable(self._setup_problem[0])
        if self._problem is not None:
            raise DaskUnavailable(self._problem)
        # The connection may have ended since the last look. Claims would be released at once.
        if self._has_looked and self._client.status != "running":
            raise DaskUnavailable(self._away)
        return self._has_looked

    def extract(self, attempt: ExtractionAttempt, /) -> ExtractionResult:
        """Run an attempt on the cluster. This thread waits for it."""
        try:
            return self._extract(attempt)
        except DaskUnavailable as problem:
            release = Release(attempt.lease, "stopped", error=safe_str(problem))
            return attempt.result(
                None, RemoteExtractionFailure.of("DaskUnavailable", safe_str(problem), release)
            )
        except BaseException as error:
            return attempt.result(None, error)

    def close(self) -> None:
        """Cancel the tasks of this executor, and disconnect. It does not wait for the scheduler."""
        self._is_closed.set()

    # ---- the connection ----

    def _watch(self, is_closed: threading.Event) -> None:
        while not is_closed.is_set():
            try:
                self._problem = self._look()
            except Exception as error:  # of any kind: the scheduler may be something else
                self._problem = f"{self.address}: {type(error).__name__}: {safe_str(error)}"
            self._has_looked = True
            is_closed.wait(WATCH_SECONDS)
        if self._client is not None:
            with suppress(Exception):
                self._client.close(timeout=CONNECT_SECONDS)

    def _look(self) -> str | None:
        """Connect if necessary. Return why the cluster cannot be used, or None."""
        client = self._client
        if client is None or client.status in ("closing", "closed"):
            scheduler = self.address.replace("dask://", "tcp://", 1)
            try:
                client = self._distributed.Client(
                    scheduler, timeout=CONNECT_SECONDS, set_as_default=False
                )
            except OSError:
                return self._away
            self._client = client
        if client.status != "running":
            return self._away
        # A scheduler that is suspended keeps its connections, and would never respond.
        try:
            threads = client.nthreads(callback_timeout=CONNECT_SECONDS)
        except TimeoutError:
            return self._away
        if not threads:
            return f"{self.address}: the scheduler has no workers; start `dask worker`"
        return None

    # ---- an attempt ----

    def _extract(self, attempt: ExtractionAttempt) -> ExtractionResult:
        client, lease = self._client, attempt.lease
        if client is None or client.status != "running":
            raise DaskUnavailable(f"{self.address}: the scheduler went away")
        partition = lease.partition
        reference = self._references[partition.source, partition.query_name]
        task = Task(reference, lease, self._parking, clock_around().now())
        name = f"redrive-{lease.run_id}"
        future = client.submit(
            run_task, PROTOCOL, pickle.dumps(task), key=name, pure=False, retries=0
        )
        try:
            remote = self._wait(attempt, client, future)
        finally:
            if client.status == "running":
                with suppress(Exception):
                    self._distributed.Event(name, client=client).clear()
        return self._to_result(attempt, remote)

    def _wait(self, attempt: ExtractionAttempt, client: Any, future: Any) -> RemoteResult:
        is_done = threading.Event()
        future.add_done_callback(lambda _future: is_done.set())
        while not is_done.wait(WATCH_SECONDS) and not future.done():
            if client.status != "running":
                raise DaskUnavailable(f"{self.address}: the scheduler went away")
            is_late = monotonic() >= attempt.end + GRACE_SECONDS
            if attempt.is_lost or is_late or self._is_closed.is_set():
                future.cancel()
                raise attempt.timeout() if is_late else CancelledError
        try:
            remote: RemoteResult = future.result()
        except self._distributed.scheduler.KilledWorker as error:
            raise _machine_lost(attempt) from error
        except (CancelledError, self._distributed.client.FutureCancelledError):
            raise DaskUnavailable(f"{self.address}: the scheduler went away") from None
        except Exception as error:  # raised by Dask: `run_task` itself returns every error
            raise self._setup_fault(
                f"{type(error).__name__}: {safe_str(error)}; install the same version of Redrive "
                "and of the app on all Dask workers"
            ) from error
        return remote

    def _to_result(self, attempt: ExtractionAttempt, remote: RemoteResult) -> ExtractionResult:
        if remote.is_rerun:
            raise _machine_lost(attempt)
        if remote.problem:
            raise self._setup_fault(remote.problem)
        decision = remote.decision
        if not isinstance(decision, Verdict) or remote.error_class:
            assert decision is not None
            failure = RemoteExtractionFailure.of(remote.error_class, remote.error, decision)
            return attempt.result(None, failure)
        if decision.decision == "accepted":
            self._check_store(attempt, decision)
        return attempt.result(decision)

    def _check_store(self, attempt: ExtractionAttempt, verdict: Verdict) -> None:
        """Refuse data that only the Dask worker can read, such as in a folder of its machine."""
        lease = attempt.lease
        run_id = lease.raw_run_id or lease.run_id
        try:
            load_raw(attempt.extraction.store(), lease.partition, run_id, digest=verdict.manifest)
        except (Damaged, StorageError) as error:
            raise self._setup_fault(
                f"the data of run {run_id} is not in the store of this worker; use a store that "
                "all machines share, such as a bucket"
            ) from error

    def _setup_fault(self, problem: str) -> DaskUnavailable:
        problem = f"{self.address}: {problem}"
        self._setup_problem = problem, monotonic() + PAUSE_SECONDS
        return DaskUnavailable(problem)


def check_address(address: str, /) -> str:
    """Return the address of a scheduler.

    Raises:
        ValueError: It is not `dask://host:port`.
    """
    matched = ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if matched is None or not 0 < int(matched["port"]) < 65536:
        raise ValueError(
            f"invalid executor {address!r}: use the scheduler's address, as dask://host:8786"
        )
    return address


def reference_to(extraction: Extraction, /) -> str:
    """Return where a Dask worker finds a dataset, as `module:name`.

    Raises:
        ValueError: It would not find the dataset.
    """
    fn = extraction.fn
    module, name = getattr(fn, "__module__", ""), getattr(fn, "__qualname__", "")
    dataset = None if module == "__main__" else _find(sys.modules.get(module), name)
    if dataset is None or extraction_of(dataset) is not extraction:
        raise ValueError(
            f"{extraction.name}: Dask workers cannot import {extraction.place}; decorate a "
            "function at the top level of a module that is not a script"
        )
    return f"{module}:{name}"


def _find(module: object, name: str) -> Dataset | None:
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part, None)
    return value if isinstance(value, Dataset) else None


def _machine_lost(attempt: ExtractionAttempt) -> ProcessCrashed:
    lease = attempt.lease
    return ProcessCrashed(f"{lease.partition}: the Dask worker of run {lease.run_id} was lost")


# ---- in the Dask worker ----


def run_task(protocol: int, payload: bytes, /) -> RemoteResult:
    """Run an attempt. Called by a Dask worker."""
    started_at = monotonic()
    here = "this Dask worker"
    with suppress(Exception):
        here = f"Dask worker {import_module('distributed').get_worker().address}"
    if protocol != PROTOCOL:
        return RemoteResult(problem=f"{here} has another version of Redrive; install the same one")
    try:
        task: Task = pickle.loads(payload)  # noqa: S301  # from our own worker
        extraction = _load(task.reference)
    except Exception as error:
        name = f"{type(error).__name__}: {safe_str(error)}"
        return RemoteResult(
            problem=f"{here} cannot import the app ({name}); install it on all Dask workers"
        )
    started = import_module("distributed").Event(f"redrive-{task.lease.run_id}")
    if started.is_set():
        return RemoteResult(is_rerun=True)
    started.set()
    attempt = ExtractionAttempt(extraction, task.lease)
    if extraction.execution == "async":
        result = asyncio.run(extract_on_loop(attempt))
    else:
        result = extract_in_thread(attempt)
    now = task.now + timedelta(seconds=monotonic() - started_at)
    decision = verdict_or_release(result, now, task.parking, is_stopping=False)
    if result.error is None:
        return RemoteResult(decision)
    return RemoteResult(decision, type(result.error).__name__, safe_str(result.error))


def _load(reference: str) -> Extraction:
    module, _, name = reference.partition(":")
    dataset = _find(import_module(module), name)
    if dataset is None:
        raise LookupError(f"{reference} is not a dataset")
    return extraction_of(dataset)
