"""Layout: where the raw data of a run is in a store. Pure: the same on every machine."""

from __future__ import annotations

import re
from hashlib import sha256

from ..key import Partition

MANIFEST = "manifest.json"
"""The file that is written last. A run without it is incomplete, and does not count."""
MAX_PART_CHARS = 160
"""Characters of an encoded part: a disk allows 255 bytes. A longer one is cut, and has a digest."""
_OUR_RUN_ID = re.compile("[0-9A-Za-z-]{1,64}")
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")


def encode_part(part: str, /) -> str:
    """Return a part of a key as the name of a folder, for every backend.

    Different parts have different names, also where case does not count. Lower-case letters,
    digits, `_`, `-` and dots inside stay as they are. Everything else is escaped as `%41`. That
    includes upper-case letters, since some disks do not tell `Acme` from `acme`.
    """
    last = len(part) - 1
    name = "".join(
        char if char in _PLAIN or (char == "." and 0 < place < last) else _escape(char)
        for place, char in enumerate(part)
    )
    if len(name) <= MAX_PART_CHARS:
        return name
    head = re.sub(r"%[0-9a-f]?$", "", name[: MAX_PART_CHARS - 40])
    digest = sha256(part.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{head}~{digest}"  # no other name has a ~


def runs_folder(partition: Partition, /) -> str:
    """Return the folder of all runs of a partition."""
    return (
        f"{encode_part(partition.source)}/customer_id={encode_part(partition.customer_id)}"
        f"/query_name={encode_part(partition.query_name)}"
        f"/logical_date={partition.logical_date.isoformat()}"
    )


def run_folder(partition: Partition, run_id: str, /) -> str:
    """Return the folder of a run. The ledger makes run ids that differ in more than their case."""
    name = run_id if _OUR_RUN_ID.fullmatch(run_id) else encode_part(run_id)
    return f"{runs_folder(partition)}/run_id={name}"


def manifest_path(partition: Partition, run_id: str, /) -> str:
    """Return the path of the manifest of a run."""
    return f"{run_folder(partition, run_id)}/{MANIFEST}"


def _escape(char: str) -> str:
    return "".join(f"%{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
