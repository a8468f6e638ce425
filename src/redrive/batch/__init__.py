"""Batches with partial failures: retrying senders, a send buffer and a shared poller."""

from __future__ import annotations

from ..core.lazy import lazily

TYPE_CHECKING = False  # as in the root: typing's own would cost 10 ms
if TYPE_CHECKING:
    from .bars import bar as bar
    from .buffer.send_buffer import SendBuffer as SendBuffer
    from .buffer.stats import BufferStats as BufferStats
    from .call import progress as progress
    from .items import Items as Items
    from .items import ManyItems as ManyItems
    from .items import SparingItems as SparingItems
    from .poller.shared_poller import SharedPoller as SharedPoller
    from .report import ItemStatus as ItemStatus
    from .report import Report as Report
    from .sender import retrying as retrying
    from .settings import Settings as Settings
    from .table_items import TableItems as TableItems

_HOMES = {
    "BufferStats": "buffer.stats",
    "ItemStatus": "report",
    "Items": "items",
    "ManyItems": "items",
    "Report": "report",
    "SendBuffer": "buffer.send_buffer",
    "Settings": "settings",
    "SharedPoller": "poller.shared_poller",
    "SparingItems": "items",
    "TableItems": "table_items",
    "bar": "bars",
    "progress": "call",
    "retrying": "sender",
}
__all__ = [*_HOMES]  # noqa: PLE0604  # the names are listed once, above


if not TYPE_CHECKING:  # a checker that saw this would let every misspelt name pass
    # Loaded when first asked for: `TableItems` needs SQLAlchemy, `bar` needs Rich, the rest needs neither.
    __getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
