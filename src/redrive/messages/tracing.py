"""Messages in traces: their attributes by the names of OpenTelemetry's conventions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ..ledger.events import SOURCE, SOURCE_ID
from ..ledger.model import Lease
from .stored_event import ID

SYSTEM = "messaging.system"
DESTINATION = "messaging.destination.name"
GROUP = "messaging.consumer.group.name"
MESSAGE_ID = "messaging.message.id"
OPERATION_TYPE, OPERATION_NAME = "messaging.operation.type", "messaging.operation.name"
PROCESS = {OPERATION_TYPE: "process", OPERATION_NAME: "process"}
SEND = {OPERATION_TYPE: "send", OPERATION_NAME: "send"}
TRACEPARENT = "traceparent"


def source_attributes(source: object, name: str, /) -> dict[str, str]:
    """Return the system, the destination and the consumer group of a source.

    Args:
        source: It may have the attributes `messaging_system`, and `group` or `consumer`.
        name: Its name in Redrive.
    """
    attributes = {SYSTEM: _system(source), DESTINATION: name, **PROCESS}
    for attribute in ("group", "consumer"):
        group = getattr(source, attribute, None)
        if isinstance(group, str) and group:
            attributes[GROUP] = group
            break
    return attributes


def destination_attributes(destination: object, name: str, /) -> dict[str, str]:
    """Return the system and the name of a destination. It may have `messaging_system`."""
    return {SYSTEM: _system(destination), DESTINATION: name, **SEND}


def _system(source: object) -> str:
    system = getattr(source, "messaging_system", None)
    return system if isinstance(system, str) else type(source).__name__.lower()


def describe_events(
    sources: Iterable[tuple[str, object]], /
) -> Callable[[Lease], Mapping[str, str]]:
    """Return a function from the lease of a handler's job to the attributes of its message.

    Args:
        sources: The sources of the app by name. Events of another source come from the program.
    """
    known = {name: source_attributes(source, name) for name, source in sources}

    def describe(lease: Lease) -> Mapping[str, str]:
        headers = lease.headers
        name = headers[SOURCE]
        return {
            **(known.get(name) or {DESTINATION: name, **PROCESS}),
            MESSAGE_ID: headers.get(SOURCE_ID) or headers[ID],
        }

    return describe


def with_traceparent(headers: dict[str, str], ids: Mapping[str, str], /) -> dict[str, str]:
    """Add the span in which a message was created to its headers, unless they have one."""
    parent = ids.get(TRACEPARENT)
    if parent is not None and not any(name.lower() == TRACEPARENT for name in headers):
        headers[TRACEPARENT] = parent
    return headers
