"""Registrations: the commands, event handlers and datasets of an app."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from ..core.lazy import deferred
from ..core.lock import LOCK

if TYPE_CHECKING:
    from ..commands import registry as command_registry
    from ..commands.registry import CommandRegistry
    from ..ledger.ledger import Ledger
    from ..messages import handlers as message_handlers
    from ..messages import inbox as message_inbox
    from ..messages import publish as message_publish
    from ..messages import reader as message_reader
    from ..messages import source as message_source
    from ..messages import tracing as message_tracing
    from ..messages.inbox import Inbox
    from ..messages.publish import Destination, Outbox
    from ..messages.source import Source
    from ..partitions.datasets import dataset as datasets_module
    from ..partitions.datasets.dataset import Datasets, Extraction
    from ..storage.registry import Registry as StoreRegistry
    from ..temporal import client as temporal_client
    from ..temporal import connection as temporal_connection
    from ..temporal.client import TemporalCommands
    from ..temporal.engine import Temporal
    from ..worker.job_type import JobType
else:  # each needs SQLAlchemy
    temporal_client, temporal_connection = deferred("redrive.temporal", "client", "connection")
    (command_registry,) = deferred("redrive.commands", "registry")
    (datasets_module,) = deferred("redrive.partitions.datasets", "dataset")
    message_handlers, message_inbox, message_publish, message_reader, message_source = deferred(
        "redrive.messages", "handlers", "inbox", "publish", "reader", "source"
    )
    (message_tracing,) = deferred("redrive.messages", "tracing")


class Registrations:
    """All that is registered in an app. Each part is loaded at first use.

    Threads and forked children may share it.
    """

    def __init__(
        self,
        ledger: Callable[[], Ledger],
        stores: Callable[[], StoreRegistry],
        include: Sequence[str],
        sources: Sequence[Source],
        destinations: Sequence[Destination] = (),
        engine: Temporal | None = None,
    ) -> None:
        if isinstance(include, str):
            raise TypeError(f"include must be a list of modules, not one text; pass [{include!r}]")
        self._ledger = ledger
        self._stores = stores
        self._include = tuple(include)
        self.sources: Sequence[Source] = ()
        if sources:
            self.sources = message_source.check_sources(sources)
        self.outbox: Outbox | None = None
        """Where events are published. None: the app has no destinations."""
        if sources or destinations:
            self.outbox = message_publish.open_outbox(self.sources, destinations)
        self._engine = engine
        self.temporal: TemporalCommands | None = None
        """Runs commands on Temporal, from the first use of the commands on."""
        self._commands: CommandRegistry | None = None
        self._inbox: Inbox | None = None
        self._datasets: Datasets | None = None

    @property
    def commands(self) -> CommandRegistry:
        """The commands."""
        commands = self._commands
        if commands is None:
            with LOCK:
                commands = self._commands = self._commands or self._make_commands()
        return commands

    def _make_commands(self) -> CommandRegistry:
        commands = command_registry.CommandRegistry(self._ledger)
        if self._engine is not None:
            connection = temporal_connection.TemporalConnection(self._engine)
            self.temporal = temporal_client.TemporalCommands(
                connection, self._ledger, commands.job_type
            )
            commands.engine = self.temporal
        return commands

    @property
    def inbox(self) -> Inbox:
        """The event handlers, and the store for events."""
        inbox = self._inbox
        if inbox is None:
            handlers = message_handlers.Handlers(self.commands.place)
            names = [source.name for source in self.sources]
            with LOCK:
                inbox = self._inbox = self._inbox or message_inbox.Inbox(
                    self._ledger, handlers, names
                )
        return inbox

    @property
    def datasets(self) -> Datasets:
        """The datasets."""
        datasets = self._datasets
        if datasets is None:
            with LOCK:
                if self._datasets is None:  # Not `or`: datasets without members are false.
                    self._datasets = datasets_module.Datasets(self._ledger, self._stores)
                datasets = self._datasets
        return datasets

    def load(self) -> None:
        """Import the modules of `include`, which register functions."""
        for module in self._include:
            import_module(module)

    def job_types(self, only: Collection[str] | None = None, /) -> list[JobType]:
        """Return the job types of commands and handlers.

        Args:
            only: Names of job types and datasets. Default: all job types.

        Raises:
            ValueError: A name is not registered, or nothing is registered.
        """
        self.load()
        inbox = self.used_inbox
        handler_types: list[JobType] = []
        if inbox is not None:
            describe = message_tracing.describe_events(
                (source.name, source) for source in self.sources
            )
            handler_types += [replace(each, describe=describe) for each in inbox.job_types]
            for source in self.sources:
                handler_types.append(message_reader.unread_type(source, inbox))
        if self.outbox is not None:
            handler_types += self.outbox.job_types
        datasets = [extraction.name for extraction in self.extractions()]
        return self.commands.select_job_types(only, handler_types, datasets)

    @property
    def used_inbox(self) -> Inbox | None:
        """The event handlers, or None if there are neither handlers nor sources."""
        return self.inbox if self.sources else self._inbox

    def extractions(self, only: Collection[str] | None = None, /) -> list[Extraction]:
        """Return the extractions of these datasets. Default: all datasets."""
        return [] if self._datasets is None else self._datasets.select(only)

    def close(self) -> None:
        """Stop the threads of the registered parts. They start again at the next use."""
        if self.outbox is not None:
            self.outbox.close()
        if self._commands is not None:
            self._commands.close()
        if self.temporal is not None:
            self.temporal.close()
