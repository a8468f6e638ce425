"""A process that reads, writes and lists on request, and reports the cost of each operation.

Run it with `python -m benchmarks.storage_suite.process ours s3`. The first line of its input is the address. Each other line is
an operation, for example `write PATH SIZE`.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[2]
WARM = 1024


class SubjectProcess:
    """Controls the process. It runs for all rounds, so imports and connections are not measured."""

    def __init__(self, role: str, backend: str, address: str) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # a pipe could fill up and block
        command = [sys.executable, "-m", "benchmarks.storage_suite.process", role, backend]
        self._name = f"{role} {backend}"
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self._send(address)
        self._receive()  # wait until it is ready

    def run(self, operation: str, path: str, size: int) -> dict[str, Any]:
        """Run an operation and return the fields of a `Sample`."""
        self._send(f"{operation} {path} {size}")
        return self._receive()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise RuntimeError(f"{self._name} exited:\n{self._errors.read()[-2000:]}")
        fields: dict[str, Any] = json.loads(line)
        return fields


# ---- the process ----


def peak_memory() -> int:
    """Return the peak memory in bytes since the last reset."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) * 1024


def reset_peak_memory() -> None:
    """Reset the peak memory. If the system does not support it, the peak includes earlier operations."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        pass


def main() -> None:
    from benchmarks.storage_suite.subjects import create_subject

    role, backend = sys.argv[1:3]
    subject = create_subject(role, backend, sys.stdin.readline().strip())
    subject.write(f"{role}-warm", WARM)
    subject.read(f"{role}-warm")
    subject.list("nothing")
    reset_peak_memory()
    before = peak_memory()
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        operation, path, size = line.split()
        reset_peak_memory()
        cpu_began, began = time.process_time(), time.perf_counter()
        match operation:
            case "write":
                subject.write(path, int(size))
                done = int(size)
            case "read":
                done = subject.read(path)
            case _:
                done = subject.list(path)
        seconds = time.perf_counter() - began
        sample = {
            "seconds": seconds,
            "cpu": time.process_time() - cpu_began,
            "growth": max(0, peak_memory() - before),
            "done": done,
        }
        print(json.dumps(sample), flush=True)


if __name__ == "__main__":
    main()
