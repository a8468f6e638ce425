"""Place: where the raw data of a run lies in a store. Pure: the same run has the same place on every machine."""

from __future__ import annotations

import re
from hashlib import sha256
from urllib.parse import unquote

from ..key import Partition

MANIFEST = "manifest.json"
"""The file that is written last: a run that has it is whole, and one that has not does not count."""
LONGEST = 160
"""Characters of one encoded part; a disk takes 255 bytes. What is longer is cut, and told apart by its digest."""
_OURS = re.compile("[0-9A-Za-z-]{1,64}")
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")


def encoded(part: str, /) -> str:
    """A part of a key as the name of a folder, on every backend. Different parts have different names, whatever the case.

    Lower-case letters, digits, `_`, `-` and dots inside stay as they are; all else, upper-case letters too, is written `%41`,
    since some disks take `Acme` and `acme` for one.
    """
    last = len(part) - 1
    found = "".join(char if char in _PLAIN or (char == "." and 0 < at < last) else _escaped(char) for at, char in enumerate(part))
    if len(found) <= LONGEST:
        return found
    head = re.sub(r"%[0-9a-f]?$", "", found[: LONGEST - 40])
    return f"{head}~{sha256(part.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"  # ~ is in no other name


def decoded(name: str, /) -> str | None:
    """The part that has this name; None where it was too long to be kept in it."""
    return None if "~" in name else unquote(name, errors="surrogatepass")


def runs_of(partition: Partition, /) -> str:
    """The folder of all runs of a partition."""
    return (
        f"{encoded(partition.source)}/customer_id={encoded(partition.customer_id)}"
        f"/query_name={encoded(partition.query_name)}/logical_date={partition.logical_date.isoformat()}"
    )


def folder_of(partition: Partition, run_id: str, /) -> str:
    """The folder of one run. Runs are named by the ledger, never two of them alike but for their case."""
    name = run_id if _OURS.fullmatch(run_id) else encoded(run_id)
    return f"{runs_of(partition)}/run_id={name}"


def manifest_of(partition: Partition, run_id: str, /) -> str:
    """The path of its manifest."""
    return f"{folder_of(partition, run_id)}/{MANIFEST}"


def _escaped(char: str) -> str:
    return "".join(f"%{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))
