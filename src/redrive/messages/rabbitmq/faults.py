"""Faults of RabbitMQ, in one line: the thing, the problem and the fix. No secrets."""

from __future__ import annotations

import ssl

from ...core.lazy import TYPE_CHECKING, deferred
from .address import AmqpAddress

if TYPE_CHECKING:
    from aiormq import exceptions
else:  # the extra may be missing
    (exceptions,) = deferred("aiormq", "exceptions")

RIGHTS = "see the rights in docs/how-to/engines/rabbitmq.md"


def explain_connect(error: BaseException, address: AmqpAddress, server: str, /) -> OSError:
    """Return the error of a connection that could not be opened."""
    cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
    where = f"RabbitMQ at {server}"
    if isinstance(error, exceptions.ProbableAuthenticationError):
        return PermissionError(
            f"{where}: rejected user {address.user!r} or its password; correct the address"
        )
    text = _text_of(error)
    is_rejected = isinstance(error, exceptions.InvalidFrameError) and "Connection.OpenOk" in text
    if is_rejected or isinstance(error, exceptions.ConnectionClosed):
        return PermissionError(
            f"{where}: virtual host {address.vhost!r} does not exist, or user {address.user!r} may "
            f"not use it; correct the address, or run rabbitmqctl add_vhost and set_permissions"
        )
    if isinstance(cause, ssl.SSLCertVerificationError):
        return ConnectionError(
            f"{where}: certificate not trusted: {cause.verify_message}; add ?cafile=PATH of its "
            f"authority to the address"
        )
    if isinstance(cause, ssl.SSLError):
        return ConnectionError(
            f"{where}: TLS failed: {cause.reason or cause}; amqps:// needs the TLS port, usually "
            f"5671"
        )
    if isinstance(error, TimeoutError):
        return ConnectionError(f"{where}: no reply; check the address and the network")
    is_closed = "unexpectedly closed" in text or "connection reset" in text
    if is_closed or isinstance(error, exceptions.ProtocolSyntaxError):
        return ConnectionError(
            f"{where}: closed the connection before the login; a TLS port needs amqps:// ({text})"
        )
    return ConnectionError(
        f"{where}: cannot connect: {text}; start the server, or correct the address"
    )


def explain(error: BaseException, queue: str, address: AmqpAddress, /) -> BaseException:
    """Return the error of an open connection as a one-line error, or itself."""
    where = f"RabbitMQ at {address.server_list}, queue {queue!r}"
    text = _text_of(error)
    if isinstance(error, exceptions.ChannelAccessRefused):
        return PermissionError(f"{where}: {text}; {RIGHTS}")
    if isinstance(error, exceptions.ChannelNotFoundEntity):
        return LookupError(f"{where}: {text}; the next read creates it")
    if isinstance(error, exceptions.ChannelPreconditionFailed):
        if "message size" in text:  # above its `max_message_size`
            return ValueError(
                f"{where}: {text}; publish a reference to the data, or raise max_message_size"
            )
        return ConnectionError(f"{where}: {text}")
    if isinstance(error, exceptions.PublishError):
        return LookupError(
            f"{where}: a message was not routed to a queue; bind a queue to the exchange"
        )
    if isinstance(error, exceptions.DeliveryError):
        return ConnectionError(f"{where}: rejected a message; check the limits of its queue")
    if isinstance(error, TimeoutError):
        return ConnectionError(f"{where}: no reply; check the server and the network")
    if is_undecodable(error):
        return ValueError(
            f"{where}: a message has a property or a header name that is not valid UTF-8, and the "
            f"client cannot read it; the queue drops it after its delivery limit ({text})"
        )
    lost = (exceptions.AMQPError, exceptions.ChannelInvalidStateError, ConnectionResetError)
    if isinstance(error, lost):
        return ConnectionError(f"{where}: connection lost: {text}")
    return error


def is_undecodable(error: BaseException | None, /) -> bool:
    """Return whether the client could not parse what the server sent."""
    return isinstance(error, UnicodeError | exceptions.InvalidFrameError)


def _text_of(error: BaseException) -> str:
    """Return the text of an error, in one line and without its class."""
    if isinstance(error, OSError) and error.strerror:
        return str(error.strerror)
    words = [str(word) for word in error.args if isinstance(word, str) and word]
    return " ".join(" ".join(words).split()) or type(error).__name__
