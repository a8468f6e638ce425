"""The registry of known errors: all families in one table."""

from __future__ import annotations

from . import apis, cloud, databases, grpc, http_clients, libraries, redrive_errors, stdlib
from .inspect import Entry

FAMILIES: dict[str, dict[str, Entry]] = {
    **stdlib.FAMILIES,
    **redrive_errors.FAMILIES,
    **libraries.FAMILIES,
    **http_clients.FAMILIES,
    **apis.FAMILIES,
    **grpc.FAMILIES,
    **cloud.FAMILIES,
    **databases.FAMILIES,
}
"""The entries of each family. `redrive classify` prints the names of the families."""

KNOWN: dict[str, Entry] = {
    name: entry for family in FAMILIES.values() for name, entry in family.items()
}
"""By package and class name, such as `httpx.ConnectTimeout`."""
