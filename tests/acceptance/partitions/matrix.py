"""`make crash-matrix`, second part: every boundary of an extraction × database × store × way to crash × pass, as a table.

python -m tests.acceptance.partitions.matrix [point …]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from redrive.ledger import open_ledger
from tests.acceptance.crash.cell import PASSES, STATUS, WAYS, Pass, Way
from tests.servers.buckets import client, options
from tests.servers.postgres import postgres_server
from tests.servers.process import ServerMissing
from tests.servers.seaweed import s3_server
from tests.zygote import Zygote

from .lake import LOADED, Lake
from .test_crash import POINTS

COLUMNS = [(way, which) for way in WAYS for which in PASSES]
BUCKET = "matrix"


def cell(lake: Lake, point: str, way: Way, which: Pass) -> str:
    """Crash there, restart and check. Return ok, the problem, or a dash if the point is not reached this often."""
    lake.fill()
    deaths = 0
    for _ in range(2 if which == "twice" else 1):
        status = lake.zygote.wait(lake.hire(crash_at=f"{point}:{2 if which == 'second' else 1}:{way}"))
        if status == 0:
            break
        if status != STATUS[way]:
            return f"ended with {status} instead of dying: {lake.story()[-1000:]}"
        deaths += 1
        lake.an_hour_passes()
    try:
        lake.finished()
    except AssertionError as error:
        return str(error)
    return "; ".join(lake.wrong()) or ("ok" if deaths else "–")


def lakes(stack: ExitStack) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """A name, a database ("": SQLite) and a store ("": a disk)."""
    postgres, s3 = stack.enter_context(postgres_server()), stack.enter_context(s3_server())
    boto = client(s3)
    boto.create_bucket(Bucket=BUCKET)
    boto.close()
    for database, url in (("sqlite", ""), ("postgresql", postgres)):
        for place, store in (("local", {}), ("s3", {"type": "s3", "options": {**options(s3), "bucket": BUCKET}})):
            yield f"{database}, {place}", url, store


def main(points: Sequence[str]) -> int:
    """Print the table. Return 1 if there is a problem."""
    began, wrong, many = time.monotonic(), [], 0
    print(f"{'crash point':<32}{'on':<20}" + "".join(f"{f'{way} {which}':<13}" for way, which in COLUMNS))
    with ExitStack() as stack:
        zygote = stack.enter_context(Zygote(*LOADED))
        try:
            places = list(lakes(stack))
        except ServerMissing as missing:
            print(f"NOT RUN: {missing}", file=sys.stderr)
            return 1
        for point in points or POINTS:
            for name, url, store in places:
                cells = []
                for way, which in COLUMNS:
                    with tempfile.TemporaryDirectory(prefix="redrive-crash-") as folder:
                        address = url or f"sqlite:///{folder}/ledger.db"
                        open_ledger(address, migrate=True).close()
                        kept = store or {"type": "local", "options": {"root": f"{folder}/raw"}}
                        found = cell(Lake(zygote, address, kept, Path(folder)), point, way, which)
                    many += 1
                    cells.append(found if len(found) < 4 else "WRONG")
                    wrong += [f"{point} on {name}, {way}, {which}: {found}"] if len(found) > 3 else []
                print(f"{point:<32}{name:<20}" + "".join(f"{one:<13}" for one in cells), flush=True)
    print("\n".join(["", *wrong, f"{many} deaths and returns in {time.monotonic() - began:.0f} s: {len(wrong)} wrong"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
