"""Data by customer and day: extracted as a whole, validated by checks, readable when accepted."""

from __future__ import annotations

from ..core.lazy import lazily

TYPE_CHECKING = False  # as in the root: typing's own would cost 10 ms
if TYPE_CHECKING:
    from .datasets.checks import drop as drop
    from .datasets.checks import freshness as freshness
    from .datasets.checks import not_null as not_null
    from .datasets.checks import row_count as row_count
    from .datasets.checks import schema as schema
    from .datasets.checks import unique as unique
    from .datasets.dataset import Dataset as Dataset
    from .datasets.dataset import Extract as Extract
    from .key import Day as Day
    from .key import Partition as Partition
    from .model import Check as Check
    from .model import Finding as Finding
    from .raw.files import File as File
    from .raw.files import Raw as Raw
    from .raw.writer import Sink as Sink
    from .reader import Gap as Gap
    from .reader import Reading as Reading

_HOMES = {
    "Check": "model",
    "Dataset": "datasets.dataset",
    "Day": "key",
    "Extract": "datasets.dataset",
    "File": "raw.files",
    "Finding": "model",
    "Gap": "reader",
    "Partition": "key",
    "Raw": "raw.files",
    "Reading": "reader",
    "Sink": "raw.writer",
    "drop": "datasets.checks",
    "freshness": "datasets.checks",
    "not_null": "datasets.checks",
    "row_count": "datasets.checks",
    "schema": "datasets.checks",
    "unique": "datasets.checks",
}
__all__ = [*_HOMES]  # noqa: PLE0604  # the names are listed once, above


if not TYPE_CHECKING:  # a checker that saw this would let every misspelt name pass
    # Loaded when first asked for: SQLAlchemy comes with some of them.
    __getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
