"""Hand: a process of its own that reads, writes and lists when it is told to, and says what each took.

python -m benchmarks.storage_suite.hand ours s3; its first line is the address, every further one an act: write PATH SIZE
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


class Hand:
    """The process, seen from outside. It lives through all rounds: what importing and connecting cost is not measured."""

    def __init__(self, who: str, backend: str, address: str) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # not a pipe, which nobody would empty
        command = [sys.executable, "-m", "benchmarks.storage_suite.hand", who, backend]
        self._name = f"{who} {backend}"
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self._send(address)
        self._received()  # ready

    def do(self, act: str, path: str, size: int) -> dict[str, Any]:
        """seconds, cpu, grew (bytes of memory at the most, above what it had before the first act), done (bytes, or files)."""
        self._send(f"{act} {path} {size}")
        return self._received()

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

    def _received(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise RuntimeError(f"{self._name} ended:\n{self._errors.read()[-2000:]}")
        found: dict[str, Any] = json.loads(line)
        return found


# ---- and from inside ----


def peak() -> int:
    """Bytes, the most since the last `forget`."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) * 1024


def forget() -> None:
    """Count the most memory anew, where the system lets us; elsewhere an act is charged with what another one needed."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        pass


def main() -> None:
    from benchmarks.storage_suite.subjects import subject

    who, backend = sys.argv[1:3]
    one = subject(who, backend, sys.stdin.readline().strip())
    one.write(f"{who}-warm", WARM)
    one.read(f"{who}-warm")
    one.list("nothing")
    forget()
    before = peak()
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        act, path, size = line.split()
        forget()
        worked, began = time.process_time(), time.perf_counter()
        match act:
            case "write":
                one.write(path, int(size))
                done = int(size)
            case "read":
                done = one.read(path)
            case _:
                done = one.list(path)
        seconds = time.perf_counter() - began
        taken = {"seconds": seconds, "cpu": time.process_time() - worked, "grew": max(0, peak() - before), "done": done}
        print(json.dumps(taken), flush=True)


if __name__ == "__main__":
    main()
