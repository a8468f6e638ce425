"""The standard library: sockets, files, TLS, HTTP, mail, processes."""

from __future__ import annotations

import errno
import re

from ..fault import PERMANENT, TRANSIENT, UNKNOWN, Fault
from ..retry_after import retry_after
from .arrow import in_words
from .look import NEVER_SENT, NEVER_SENT_PERMANENT, TIMEOUT, Entry, Look, read, whole, worst, wrapping
from .status import by_status

NETWORK = frozenset(
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
"""May come up in the middle of a connection too, so that nothing says whether the request arrived."""
MISCONFIGURED = re.compile(
    "CERTIFICATE|UNKNOWN_CA|WRONG_VERSION|UNSUPPORTED_PROTOCOL|PROTOCOL_VERSION|NO_PROTOCOLS|HANDSHAKE_FAILURE"
    "|NO_SHARED_CIPHER|UNRECOGNIZED_NAME|HTTPS?_(PROXY_)?REQUEST"
)
"""Reasons of TLS errors that no further attempt can change."""


def _os_error(error: Exception, look: Look) -> Fault:
    """By number; else as its cause (s3fs raises it from botocore's); else by pyarrow's text, which has no more."""
    number = whole(read(error, "errno"))
    if number == errno.ECONNREFUSED:
        return NEVER_SENT
    if number == errno.ETIMEDOUT:
        return TIMEOUT
    if number in NETWORK:
        return TRANSIENT
    inner = look.at(read(error, "__cause__"))
    if inner.kind == "unknown" and number is None:
        return in_words(str(error))
    return inner


def _tls(error: Exception, look: Look) -> Fault:
    """A handshake precedes every request; what breaks afterwards is the network."""
    return NEVER_SENT_PERMANENT if MISCONFIGURED.search(str(read(error, "reason"))) else TRANSIENT


def _group(error: Exception, look: Look) -> Fault:
    return worst([look.at(member) for member in read(error, "exceptions")])


def _http_error(error: Exception, look: Look) -> Fault:
    status = whole(read(error, "code"))
    return UNKNOWN if status is None else by_status(status, retry_after(read(error, "headers"), now=look.now))


def _mail(error: Exception, look: Look) -> Fault:
    """SMTP says it itself: 4yz is transient, 5yz permanent (RFC 5321, 4.2.1)."""
    return _reply(whole(read(error, "smtp_code")))


def _recipients(error: Exception, look: Look) -> Fault:
    return worst([_reply(whole(code)) for code, _ in read(error, "recipients").values()])


def _reply(code: int | None) -> Fault:
    if code is None or not 400 <= code < 600:
        return UNKNOWN
    return TRANSIENT if code < 500 else PERMANENT


_NETWORK: dict[str, Entry] = {
    "builtins.ConnectionRefusedError": NEVER_SENT,
    "builtins.ConnectionError": TRANSIENT,
    "builtins.TimeoutError": TIMEOUT,
    "builtins.OSError": _os_error,
    # "No such name" too: resolvers say so without a network and during a roll-out, and nothing was sent for certain.
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
    "urllib.HTTPError": _http_error,
    "urllib.ContentTooShortError": TRANSIENT,
    "urllib.URLError": wrapping(UNKNOWN, "reason"),
}
_MAIL: dict[str, Entry] = {
    "smtplib.SMTPServerDisconnected": TRANSIENT,
    "smtplib.SMTPResponseException": _mail,
    "smtplib.SMTPRecipientsRefused": _recipients,
    "smtplib.SMTPNotSupportedError": PERMANENT,
    "smtplib.SMTPException": UNKNOWN,
    "ftplib.error_temp": TRANSIENT,
    "ftplib.error_perm": PERMANENT,
}
KNOWN: dict[str, Entry] = {**_NETWORK, **_FILES, **_HTTP, **_MAIL}
