"""Messages in traces: their attributes by the names of OpenTelemetry's conventions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from ..core.context import ids_around
from ..ledger.events import SOURCE, SOURCE_ID
from ..ledger.model import Lease
from .source import Source
from .stored_event import ID

Attributes: TypeAlias = Mapping[str, str | int]
SYSTEM = "messaging.system"
DESTINATION = "messaging.destination.name"
GROUP = "messaging.consumer.group.name"
MESSAGE_ID = "messaging.message.id"
SERVER, PORT = "server.address", "server.port"
OPERATION_TYPE, OPERATION_NAME = "messaging.operation.type", "messaging.operation.name"
PROCESS = {OPERATION_TYPE: "process", OPERATION_NAME: "process"}
SEND = {OPERATION_TYPE: "send", OPERATION_NAME: "send"}
TRACEPARENT = "traceparent"


def source_attributes(source: Source, /) -> Attributes:
    """Return the broker, the destination and the consumer group of a source."""
    attributes = {**_broker_attributes(source), DESTINATION: source.name, **PROCESS}
    group = getattr(source, "group", None) or getattr(source, "consumer", None)
    return {**attributes, GROUP: group} if isinstance(group, str) else attributes


def destination_attributes(destination: object, name: str, /) -> Attributes:
    """Return the broker and the name of a destination."""
    return {**_broker_attributes(destination), DESTINATION: name, **SEND}


def _broker_attributes(endpoint: object) -> Attributes:
    """Return the system, and the server if there is only one.

    A source of the user may have the attributes `messaging_system` and `servers`.
    """
    system = getattr(endpoint, "messaging_system", None)
    servers = getattr(endpoint, "servers", None)
    attributes: dict[str, str | int] = {
        SYSTEM: system if isinstance(system, str) else type(endpoint).__name__.lower()
    }
    if isinstance(servers, str) and servers and "," not in servers:
        host, _, port = servers.rpartition(":")
        if host and port.isdecimal():
            attributes |= {SERVER: host.strip("[]"), PORT: int(port)}
        else:  # the path of a socket, or a host without a port
            attributes[SERVER] = servers
    return attributes


def describe_events(sources: Iterable[Source], /) -> Callable[[Lease], Attributes]:
    """Return a function from the lease of a handler's job to the attributes of its message.

    Args:
        sources: The sources of the app. Events of another source come from the program.
    """
    known = {source.name: source_attributes(source) for source in sources}

    def describe(lease: Lease) -> Attributes:
        headers = lease.headers
        name = headers[SOURCE]
        return {
            **(known.get(name) or {DESTINATION: name, **PROCESS}),
            # A message that was not decoded has no event yet.
            MESSAGE_ID: headers.get(ID) or headers[SOURCE_ID],
        }

    return describe


def with_traceparent(headers: dict[str, str], /) -> dict[str, str]:
    """Add the current span to the headers of a message, unless they have one.

    Without a current span, it is the span in which the event was published.
    """
    parent = ids_around().get(TRACEPARENT)
    if parent is not None and not any(name.lower() == TRACEPARENT for name in headers):
        headers[TRACEPARENT] = parent
    return headers
