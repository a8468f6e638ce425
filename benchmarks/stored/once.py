"""One measurement in a process of its own: seconds, and by how much memory grew at its peak.

python -m benchmarks.stored.once ours s3 write PATH SIZE < address
"""

import resource
import sys
import time

from benchmarks.stored.subjects import say, subject

WARM = 1024


def peak() -> int:
    """Bytes, the most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    who, backend, act, path, size = sys.argv[1:6]
    one = subject(who, backend, sys.stdin.readline().strip())
    one.write(f"{who}-warm", WARM)  # imports, connections and credentials are not what is measured
    one.read(f"{who}-warm")
    one.list("nothing")
    before, worked, began = peak(), time.process_time(), time.perf_counter()
    match act:
        case "write":
            one.write(path, int(size))
            done = int(size)
        case "read":
            done = one.read(path)
        case _:
            done = one.list(path)
    seconds = time.perf_counter() - began
    say(seconds=seconds, cpu=time.process_time() - worked, grew=peak() - before, done=done)


if __name__ == "__main__":
    main()
