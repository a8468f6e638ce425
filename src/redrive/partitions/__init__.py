"""Data by customer and day: extracted as a whole, validated by checks, readable when accepted."""

from __future__ import annotations

from ..core.lazy import lazily

TYPE_CHECKING = False  # as in the root: typing's own would cost 10 ms
if TYPE_CHECKING:
    from .checks import drop as drop
    from .checks import freshness as freshness
    from .checks import not_null as not_null
    from .checks import row_count as row_count
    from .checks import schema as schema
    from .checks import unique as unique
    from .dataset import Dataset as Dataset
    from .extraction import Extract as Extract
    from .finding import Check as Check
    from .finding import Finding as Finding
    from .gap import Gap as Gap
    from .partition import Day as Day
    from .partition import Partition as Partition
    from .raw import File as File
    from .raw import Raw as Raw
    from .reading import Reading as Reading
    from .sink import Sink as Sink

_HOMES = {
    "Check": "finding",
    "Dataset": "dataset",
    "Day": "partition",
    "Extract": "extraction",
    "File": "raw",
    "Finding": "finding",
    "Gap": "gap",
    "Partition": "partition",
    "Raw": "raw",
    "Reading": "reading",
    "Sink": "sink",
    "drop": "checks",
    "freshness": "checks",
    "not_null": "checks",
    "row_count": "checks",
    "schema": "checks",
    "unique": "checks",
}
__all__ = [*_HOMES]  # noqa: PLE0604  # the names are listed once, above


if not TYPE_CHECKING:  # a checker that saw this would let every misspelt name pass
    # Loaded when first asked for: SQLAlchemy comes with some of them.
    __getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
