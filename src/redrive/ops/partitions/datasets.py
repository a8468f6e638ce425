"""Datasets as an operator names them: those of the app, and those that the ledger has partitions of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote

from ...app import App
from ...partitions.retry_schedule import Terms
from ..target.imported import meant
from ..target.target import ledger_of

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from ...commands.cron import Cron
    from ...partitions.datasets.definition import Extraction
    from ...partitions.datasets.registry import Dataset
    from ...partitions.model import Selection
    from ..target.target import Operated

Named: TypeAlias = "Dataset | str"
"""A dataset, or its name: `crm/orders`."""


def extractions(app: Operated, /) -> list[Extraction]:
    """What the app has registered; a bare ledger has none."""
    if not isinstance(app, App):
        return []
    app.registrations.load()
    return list(app.datasets)


def extraction(app: Operated, source: str, query: str, /) -> Extraction | None:
    """The one of that name; None: it is not registered here."""
    return next((one for one in extractions(app) if one.terms.dataset == (source, query)), None)


def cron_of(app: Operated, source: str, query: str, /) -> Cron | None:
    """Return the schedule of a dataset, from the app, or else as a worker stored it.

    None: it has none, or none is known.
    """
    from ...partitions.queries import Register  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    known = extraction(app, source, query)
    if known is not None:
        return known.cron
    stored = Register(ledger_of(app)).schedules().get((source, query))
    return None if stored is None else cron_from(stored.cron)


def zone_of(app: Operated, source: str, query: str, /) -> ZoneInfo | None:
    """The time zone of a dataset's schedule. None: it has no schedule, or none is known."""
    cron = cron_of(app, source, query)
    return None if cron is None else cron.zone


def cron_from(line: str | None, /) -> Cron | None:
    """Return the schedule of a stored line, which ends with a time zone. None: it is not valid."""
    from ...commands.cron import Cron  # noqa: PLC0415  # brings SQLAlchemy

    fields, _, zone = (line or "").rpartition(" ")
    try:
        return Cron(fields, zone)
    except (ValueError, ModuleNotFoundError):
        return None


def terms_of(app: Operated, /) -> list[Terms]:
    """On which terms each is extracted. Of a bare ledger nothing is known: the defaults hold there."""
    return [one.terms for one in extractions(app)]


def known(app: Operated, /) -> list[tuple[str, str]]:
    """Every dataset that there is: registered, or with partitions."""
    from ...partitions.queries import Register  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    return sorted({*(one.dataset for one in terms_of(app)), *Register(ledger_of(app)).datasets()})


def label(source: str, query: str, /) -> str:
    """`crm/orders`, as it is written."""
    return "/".join(part.replace("%", "%25").replace("/", "%2F") for part in (source, query))


def meaning(text: str, /) -> tuple[str, str] | None:
    """Source and query of such a label; None: it is none."""
    source, slash, query = text.partition("/")
    if not slash or not source or not query or "/" in query:
        return None
    return unquote(source, errors="replace"), unquote(query, errors="replace")


def named(app: Operated, dataset: Named, /) -> tuple[str, str]:
    """Source and query of a dataset; ValueError names those that there are."""
    if not isinstance(dataset, str):
        return dataset.source, dataset.query
    source, slash, query = dataset.partition("/")
    if not slash or not source or not query or "/" in query:
        raise ValueError(f"invalid dataset {dataset!r}: use source/query, such as crm/orders, with %2F for a / inside a name")
    found = unquote(source, errors="strict"), unquote(query, errors="strict")
    exist(known(app), *found)
    return found


def exist(there: Sequence[tuple[str, str]], source: str | None, query: str | None, /) -> None:
    """ValueError where there is no such source, or none of that query; with what there is, and the nearest name."""
    sources = sorted({each for each, _ in there})
    if source is not None and source not in sources:
        raise ValueError(f"unknown source {source!r}{meant(source, sources)}; {_there(sources)}")
    queries = sorted({each for of, each in there if source in (None, of)})
    if query is not None and query not in queries:
        of = "" if source is None else f" of source {source!r}"
        raise ValueError(f"unknown query {query!r}{of}{meant(query, queries)}; {_there(queries)}")


def checked(app: Operated, selection: Selection, /) -> Selection:
    """The same, if what it names is there."""
    keys = selection.keys or ()
    if selection.source is not None or selection.query_name is not None or keys:
        there = known(app)
        exist(there, selection.source, selection.query_name)
        for source, query in dict.fromkeys((key.source, key.query_name) for key in keys):
            exist(there, source, query)
    return selection


def _there(names: Sequence[str]) -> str:
    if not names:
        return "no dataset is registered, and none has partitions"
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f"known: {shown}"
