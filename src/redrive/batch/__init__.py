"""Batches with partial failures: retrying senders, a send buffer and a shared poller."""

from __future__ import annotations

from ..core.lazy import lazily

TYPE_CHECKING = False  # as in the root: typing's own would cost 10 ms
if TYPE_CHECKING:
    from .buffer.flusher import BufferStats as BufferStats
    from .buffer.send_buffer import SendBuffer as SendBuffer
    from .call import progress as progress
    from .progress_bar import bar as bar
    from .report import ItemStatus as ItemStatus
    from .report import Report as Report
    from .sender import retrying as retrying
    from .settings import Settings as Settings
    from .shared_poller import SharedPoller as SharedPoller
    from .store.protocol import Items as Items
    from .store.protocol import ManyItems as ManyItems
    from .store.protocol import SparingItems as SparingItems
    from .store.table import TableItems as TableItems

_HOMES = {
    "BufferStats": "buffer.flusher",
    "ItemStatus": "report",
    "Items": "store.protocol",
    "ManyItems": "store.protocol",
    "Report": "report",
    "SendBuffer": "buffer.send_buffer",
    "Settings": "settings",
    "SharedPoller": "shared_poller",
    "SparingItems": "store.protocol",
    "TableItems": "store.table",
    "bar": "progress_bar",
    "progress": "call",
    "retrying": "sender",
}
__all__ = [*_HOMES]  # noqa: PLE0604  # the names are listed once, above


if not TYPE_CHECKING:  # a type checker that saw this would accept every misspelt name
    # Loaded at first use, because `TableItems` needs SQLAlchemy and `bar` needs Rich.
    __getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
