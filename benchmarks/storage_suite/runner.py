"""Measure each operation on a backend with all libraries, in interleaved rounds."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.storage_suite.fill import fill
from benchmarks.storage_suite.process import SubjectProcess
from benchmarks.storage_suite.report import MIB, Case, Sample
from benchmarks.storage_suite.subjects import HOME
from tests.servers.azurite import azure_server
from tests.servers.buckets import client
from tests.servers.process import short_folder
from tests.servers.seaweed import s3_server
from tests.servers.sftp import openssh_server

ALL = ("local", "sftp", "s3", "s3-pyarrow", "s3-obstore", "azure", "azure-obstore")
OPERATIONS = ("write", "read", "list")
SLOW_FACTOR = 4.0
SLOW_ROUNDS = 2
"""A library that takes `SLOW_FACTOR` times as long as the fastest one in each of these rounds is not measured again."""


@dataclass(frozen=True)
class Effort:
    """Size of a run."""

    size: int
    """Bytes of the large object."""
    small: int
    """Bytes of the first object. Other libraries keep it if the large object would take too long."""
    count: int
    """Number of listed objects."""
    rounds: int
    time_limit: float
    """Seconds for the rounds of a backend. The first round is always completed."""


FULL = Effort(1024 * MIB, 16 * MIB, 10_000, 9, 90.0)
QUICK = Effort(32 * MIB, MIB, 300, 1, 0.0)
AZURITE_BYTES = 10 * 1024 * MIB
"""Written to one Azurite. It keeps replaced blobs in memory for ten minutes, and takes at most half of the machine's memory."""
TOO_LONG = 120.0
"""Seconds. For example, paramiko without pipelining needs 24 minutes for 1 GiB."""


def run(backend: str, effort: Effort, roles: tuple[str, ...], progress: Callable[[str], object]) -> dict[Case, list[Sample]]:
    """Measure a backend. The libraries take turns, so that noise affects all of them, and their order rotates."""
    samples: dict[Case, list[Sample]] = {Case(backend, operation, role): [] for operation in OPERATIONS for role in roles}
    failed: set[Case] = set()
    with start_server(backend) as address, ExitStack() as stack:
        processes = {role: stack.enter_context(SubjectProcess(role, backend, address)) for role in roles}
        fill(backend, address, effort.count)
        processes["ours"].run("write", "small", effort.small)
        began = time.monotonic()
        for number in range(effort.rounds):
            is_full = backend.startswith("azure") and (number + 1) * len(roles) * effort.size > AZURITE_BYTES
            if number and (is_full or time.monotonic() - began > effort.time_limit):
                break
            for operation in OPERATIONS:
                first = number % len(roles)
                cases = [Case(backend, operation, role) for role in (*roles[first:], *roles[:first])]
                rates = []
                for case in cases:
                    if case in failed or is_slow(case, samples):
                        continue
                    try:
                        samples[case].append(measure_case(processes[case.role], case, effort, address, samples[case]))
                    except RuntimeError as error:
                        if case.role == "ours":
                            raise
                        # Another library may fail, as remote-store sometimes does on Azurite. Its earlier rounds count.
                        failed.add(case)
                        progress(f"{backend}, round {number + 1}, {operation}: {case.name} failed: {last_line(error)}")
                        processes[case.role] = stack.enter_context(SubjectProcess(case.role, backend, address))
                    else:
                        rates.append(f"{case.name} {samples[case][-1].format_rate(operation)}")
                progress(f"{backend}, round {number + 1}, {operation}: {', '.join(rates)}")
    return {case: measured for case, measured in samples.items() if measured}


def last_line(error: RuntimeError) -> str:
    return next((line for line in reversed(str(error).splitlines()) if line.strip()), "no message")


def measure_case(process: SubjectProcess, case: Case, effort: Effort, address: str, known: list[Sample]) -> Sample:
    """Measure a case. `known` has its earlier samples."""
    if case.operation == "list":
        return measure_once(process, case, "list", effort.count)
    size = known[0].done if known else effort.size
    if not known:
        small = measure_once(process, case, prepare_path(case, address, small=True), effort.small)
        if case.role != "ours" and small.seconds / small.done * effort.size > TOO_LONG:
            return small
    return measure_once(process, case, prepare_path(case, address, small=size == effort.small), size)


def measure_once(process: SubjectProcess, case: Case, path: str, size: int) -> Sample:
    sample = Sample(**process.run(case.operation, path, size))
    if sample.done != size:
        raise RuntimeError(f"{case}: {sample.done:,} instead of {size:,}")
    return sample


def prepare_path(case: Case, address: str, *, small: bool) -> str:
    """Return the path for an operation.

    All libraries read the same object. A write creates a new file, because overwriting in place is faster but not safe.
    """
    if case.operation == "read":
        return "small" if small else "ours-big"
    path = f"{case.role}-big"
    if case.backend in ("local", "sftp"):
        root = Path(address if case.backend == "local" else json.loads(address)["root"])
        (root / path).unlink(missing_ok=True)
    return path


def is_slow(case: Case, all_samples: dict[Case, list[Sample]]) -> bool:
    """Return whether to skip a slow library. Redrive is never skipped."""
    if case.role == "ours" or len(all_samples[case]) < SLOW_ROUNDS:
        return False
    fastest = max(
        sample.rate for other, samples in all_samples.items() if other.operation == case.operation for sample in samples
    )
    return max(sample.rate for sample in all_samples[case]) * SLOW_FACTOR < fastest


@contextmanager
def start_server(backend: str) -> Iterator[str]:
    """Start a new server and yield its address. A shared server would clean up the data of other backends."""
    match backend:
        case "local":
            with short_folder() as folder:
                yield str(folder)
        case "sftp":
            with openssh_server() as address:
                yield address
        case "azure" | "azure-obstore":
            with azure_server() as address:
                from azure.storage.blob import ContainerClient

                ContainerClient.from_connection_string(address, HOME).create_container()
                yield address
        case _:
            with s3_server() as address:
                client(address).create_bucket(Bucket=HOME)
                yield address
