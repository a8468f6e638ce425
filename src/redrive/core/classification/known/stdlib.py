"""The standard library: sockets, files, TLS, HTTP, mail, processes."""

from __future__ import annotations

import errno
import re

from ...fault import PERMANENT, TRANSIENT, UNKNOWN, Fault
from .cloud import fault_of_arrow_message
from .http_responses import status_in
from .inspect import (
    NEVER_SENT,
    NEVER_SENT_PERMANENT,
    TIMEOUT,
    Entry,
    Inspector,
    as_int,
    fault_of_inner,
    read,
    worst_fault,
)

NETWORK_ERRNOS = frozenset(
    (
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.EPIPE,
        errno.ENETUNREACH,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.EHOSTDOWN,
    )
)
"""Also raised in the middle of a connection, so the request may have arrived."""
PERMANENT_TLS_REASONS = re.compile(
    "CERTIFICATE|UNKNOWN_CA|WRONG_VERSION|UNSUPPORTED_PROTOCOL|PROTOCOL_VERSION|NO_PROTOCOLS"
    "|HANDSHAKE_FAILURE|NO_SHARED_CIPHER|UNRECOGNIZED_NAME|HTTPS?_(PROXY_)?REQUEST"
)
"""Reasons of TLS errors that a retry cannot fix."""


def _os_error(error: Exception, inspector: Inspector) -> Fault:
    """Classify by number, by its cause (s3fs raises it from botocore's), or by pyarrow's text."""
    number = as_int(read(error, "errno"))
    if number == errno.ECONNREFUSED:
        return NEVER_SENT
    if number == errno.ETIMEDOUT:
        return TIMEOUT
    if number in NETWORK_ERRNOS:
        return TRANSIENT
    inner = inspector.classify(read(error, "__cause__"))
    if inner.kind == "unknown" and number is None:
        return fault_of_arrow_message(str(error))
    return inner


def _tls(error: Exception, inspector: Inspector) -> Fault:
    """Classify by the reason. A handshake comes before every request."""
    is_permanent = PERMANENT_TLS_REASONS.search(str(read(error, "reason")))
    return NEVER_SENT_PERMANENT if is_permanent else TRANSIENT


def _group(error: Exception, inspector: Inspector) -> Fault:
    return worst_fault([inspector.classify(member) for member in read(error, "exceptions")])


def _smtp_response(error: Exception, inspector: Inspector) -> Fault:
    """Classify by the reply code: 4yz is transient, 5yz permanent (RFC 5321, 4.2.1)."""
    return _fault_of_reply(as_int(read(error, "smtp_code")))


def _smtp_recipients(error: Exception, inspector: Inspector) -> Fault:
    return worst_fault(
        [_fault_of_reply(as_int(code)) for code, _ in read(error, "recipients").values()]
    )


def _fault_of_reply(code: int | None) -> Fault:
    if code is None or not 400 <= code < 600:
        return UNKNOWN
    return TRANSIENT if code < 500 else PERMANENT


_NETWORK: dict[str, Entry] = {
    "builtins.ConnectionRefusedError": NEVER_SENT,
    "builtins.ConnectionError": TRANSIENT,
    "builtins.TimeoutError": TIMEOUT,
    "builtins.OSError": _os_error,
    # Also for unknown names: resolvers report them without a network and during a roll-out.
    "socket.gaierror": NEVER_SENT,
    "socket.herror": NEVER_SENT,
    "ssl.SSLCertVerificationError": NEVER_SENT_PERMANENT,
    "ssl.SSLEOFError": TRANSIENT,
    "ssl.SSLZeroReturnError": TRANSIENT,
    "ssl.SSLSyscallError": TRANSIENT,
    "ssl.SSLError": _tls,
    "asyncio.IncompleteReadError": TRANSIENT,
    "subprocess.TimeoutExpired": TIMEOUT,
    "builtins.ExceptionGroup": _group,
}
_FILES: dict[str, Entry] = dict.fromkeys(
    (
        "builtins.FileNotFoundError",
        "builtins.FileExistsError",
        "builtins.PermissionError",
        "builtins.IsADirectoryError",
        "builtins.NotADirectoryError",
    ),
    PERMANENT,
)
_HTTP: dict[str, Entry] = {
    "http.RemoteDisconnected": TRANSIENT,
    "http.IncompleteRead": TRANSIENT,
    "http.BadStatusLine": TRANSIENT,
    "http.LineTooLong": TRANSIENT,
    "http.InvalidURL": PERMANENT,
    "urllib.HTTPError": status_in("code"),
    "urllib.ContentTooShortError": TRANSIENT,
    "urllib.URLError": fault_of_inner(UNKNOWN, "reason"),
}
_MAIL: dict[str, Entry] = {
    "smtplib.SMTPServerDisconnected": TRANSIENT,
    "smtplib.SMTPResponseException": _smtp_response,
    "smtplib.SMTPRecipientsRefused": _smtp_recipients,
    "smtplib.SMTPNotSupportedError": PERMANENT,
    "smtplib.SMTPException": UNKNOWN,
    "ftplib.error_temp": TRANSIENT,
    "ftplib.error_perm": PERMANENT,
}
FAMILIES: dict[str, dict[str, Entry]] = {"standard": {**_NETWORK, **_FILES, **_HTTP, **_MAIL}}
