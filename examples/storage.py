"""Run the same program on a local folder, on S3 or on another backend. Only its configuration changes.

python examples/storage.py                     # a local folder
python examples/storage.py my-storage.toml     # the store in [stores.raw] of this file
"""

import csv
import io
import sys
from collections.abc import Iterator

from redrive.errors import AlreadyExists
from redrive.storage import Registry, RegistryConfig, Store

LOCAL = {"stores": {"raw": {"type": "local", "options": {"root": "raw"}}}}


def extract(day: str) -> Iterator[bytes]:
    """Generate rows, so that they are never all in memory."""
    yield b"order,amount\n"
    for number in range(1000):
        yield f"{day}-{number},{number * 10}\n".encode()


def save(store: Store, day: str) -> None:
    """Write the data first, then create the manifest once. If a manifest exists, its data is complete."""
    store.write_atomic(f"orders/{day}/data.csv", extract(day))
    size = store.info(f"orders/{day}/data.csv").size
    try:
        store.create(f"orders/{day}/manifest", f"data.csv {size}\n".encode())
    except AlreadyExists:
        print(f"{day}: the manifest already exists")


def total(store: Store, day: str) -> int:
    """Add up the amounts, without reading the whole file into memory."""
    with store.read(f"orders/{day}/data.csv") as file:
        rows = csv.DictReader(io.TextIOWrapper(file, encoding="utf-8"))
        return sum(int(row["amount"]) for row in rows)


config = RegistryConfig.from_toml(sys.argv[1]) if len(sys.argv) > 1 else RegistryConfig.from_dict(LOCAL)
with Registry(config) as registry:
    raw = registry.get_store("raw")
    for day in ("2026-01-30", "2026-01-31", "2026-01-31"):
        save(raw, day)
    for path in sorted(raw.files("orders")):
        print(path, raw.info(path).size)
    print("total", sum(total(raw, day) for day in ("2026-01-30", "2026-01-31")))
