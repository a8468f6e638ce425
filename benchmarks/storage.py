"""What the storage backends cost beside their clients. `make bench-storage` runs it; `--quick` only shows that it works."""

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.stored.subjects import HOME
from tests.servers.azurite import azure_server
from tests.servers.buckets import client
from tests.servers.process import short_folder
from tests.servers.seaweed import s3_server
from tests.servers.sftp import openssh_server

ROOT = Path(__file__).resolve().parent.parent
WHO = ("ours", "native", "peer")
NAMES = {"ours": "Redrive", "peer": "remote-store"}
NATIVE = {"local": "open()", "sftp": "asyncssh", "s3": "s3fs", "s3-pyarrow": "pyarrow", "azure": "azure-storage-blob"}
ALL = ["local", "sftp", "s3", "s3-pyarrow", "azure"]
TARGET = 0.9
MIB = 1024 * 1024


def once(who: str, backend: str, act: str, path: str, size: int, address: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.stored.once", who, backend, act, path, str(size)]
    done = subprocess.run(command, cwd=ROOT, input=address + "\n", capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[2:])}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def filled(backend: str, address: str, count: int) -> None:
    """So many small objects, to be listed."""
    names = [f"list/{number % 100:02d}/{number:06d}" for number in range(count)]
    if backend in ("local", "sftp"):
        root = Path(address if backend == "local" else json.loads(address)["root"])
        for name in names:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(b"x")
        return
    if backend == "azure":
        from azure.storage.blob import ContainerClient

        container = ContainerClient.from_connection_string(address, HOME)
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda name: container.upload_blob(name, b"x", overwrite=True), names))
        return
    s3 = client(address)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: s3.put_object(Bucket=HOME, Key=name, Body=b"x"), names))


def backend_rows(backend: str, address: str, size: int, count: int, rounds: int, who: tuple[str, ...]) -> list[dict[str, object]]:
    filled(backend, address, count)
    best: dict[tuple[str, str], dict[str, float]] = {}
    for _ in range(rounds):  # in turn, so that a busy moment hits all of them
        for act in ("write", "read", "list"):
            for each in who:
                path = "list" if act == "list" else f"{each}-big"
                seen = once(each, backend, act, path, size, address)
                if seen["done"] != (count if act == "list" else size):
                    raise RuntimeError(f"{each} {backend} {act}: {seen['done']} instead of {count if act == 'list' else size}")
                known = best.get((each, act))
                if known is None or seen["seconds"] < known["seconds"]:
                    best[each, act] = seen
    return [{"backend": backend, "act": act, "who": each, **best[each, act]} for act in ("write", "read", "list") for each in who]


def table(rows: list[dict[str, object]], size: int, count: int) -> str:
    lines = ["| backend | | by | | against it | processor | memory grew |", "| --- | --- | --- | ---: | ---: | ---: | ---: |"]
    seconds = {(row["backend"], row["act"], row["who"]): float(str(row["seconds"])) for row in rows}
    for row in rows:
        took = float(str(row["seconds"]))
        rate = f"{count / took:,.0f} /s" if row["act"] == "list" else f"{size / MIB / took:,.0f} MiB/s"
        ours = seconds[row["backend"], row["act"], "ours"]
        ratio = "" if row["who"] == "ours" else f"{took / ours:.2f}×"
        name = NAMES.get(str(row["who"]), NATIVE[str(row["backend"])])
        cells = [row["backend"], row["act"], name, rate, ratio]
        cells += [f"{float(str(row['cpu'])):.2f} s", f"{float(str(row['grew'])) / MIB:.0f} MiB"]
        lines.append(f"| {' | '.join(str(cell) for cell in cells)} |")
    return "\n".join(lines)


def missed(rows: list[dict[str, object]]) -> list[str]:
    seconds = {(row["backend"], row["act"], row["who"]): float(str(row["seconds"])) for row in rows}
    least = {"native": TARGET, "peer": 1.0}
    return [
        f"{backend} {act}: {took / seconds[backend, act, 'ours']:.2f}× {who}, not {least[str(who)]}×"
        for (backend, act, who), took in seconds.items()
        if who != "ours" and took / seconds[backend, act, "ours"] < least[str(who)]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storage", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="little data; the figures mean little")
    parser.add_argument("--only", default=",".join(ALL), help="backends, with commas between")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    size, count, rounds = (32 * MIB, 300, 1) if options.quick else (options.mib * MIB, 10_000, options.rounds)
    try:
        import remote_store  # noqa: F401
    except ImportError:
        print("without remote-store, which is not installed")
        who = WHO[:2]
    else:
        who = WHO
    rows: list[dict[str, object]] = []
    wanted = options.only.split(",")
    if "local" in wanted:
        with short_folder() as folder:
            rows += backend_rows("local", str(folder), size, count, rounds, who)
    if "sftp" in wanted:
        with openssh_server() as address:
            rows += backend_rows("sftp", address, size, count, rounds, who)
    if "azure" in wanted:
        with azure_server() as address:
            from azure.storage.blob import ContainerClient

            ContainerClient.from_connection_string(address, HOME).create_container()
            rows += backend_rows("azure", address, size, count, rounds, who)
    on_s3 = [each for each in wanted if each.startswith("s3")]
    if on_s3:
        with s3_server() as address:
            client(address).create_bucket(Bucket=HOME)
            for backend in on_s3:
                rows += backend_rows(backend, address, size, count, rounds, who)
    text = table(rows, size, count)
    print(text)
    if not options.quick and wanted == ALL:
        head = (
            f"# Storage\n\n{size // MIB:,} MiB streamed and {count:,} objects listed over loopback, the best of {rounds} rounds, "
            "each in a process of its own. *Against it* is how much longer it took than Redrive did.\n\n"
        )
        (ROOT / "benchmarks" / "storage.md").write_text(head + text + "\n", encoding="utf-8")
    for line in missed(rows):
        print(f"MISSED: {line}")
    return 1 if missed(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
