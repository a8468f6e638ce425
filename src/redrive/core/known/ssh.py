"""paramiko and asyncssh."""

from __future__ import annotations

from ..fault import PERMANENT, TRANSIENT
from .look import NEVER_SENT, NEVER_SENT_PERMANENT, Entry

KNOWN: dict[str, Entry] = {
    "paramiko.NoValidConnectionsError": NEVER_SENT,
    "paramiko.AuthenticationException": NEVER_SENT_PERMANENT,
    "paramiko.BadHostKeyException": NEVER_SENT_PERMANENT,
    "paramiko.IncompatiblePeer": NEVER_SENT_PERMANENT,
    "paramiko.ConfigParseError": PERMANENT,
    "paramiko.SSHException": TRANSIENT,
    "asyncssh.PermissionDenied": NEVER_SENT_PERMANENT,
    "asyncssh.HostKeyNotVerifiable": NEVER_SENT_PERMANENT,
    "asyncssh.KeyExchangeFailed": NEVER_SENT_PERMANENT,
    "asyncssh.DisconnectError": TRANSIENT,
}
