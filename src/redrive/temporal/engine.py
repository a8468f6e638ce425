"""Temporal: the address and the options of a Temporal server that runs the commands of an app."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..core.seconds import Seconds, positive
from ..journal.redaction.secrets import keep_secret
from ..ledger.validation import check_name

if TYPE_CHECKING:
    from temporalio.service import TLSConfig

MAX_NAME_BYTES = 200
MAX_ID_CHARS = 900
"""The server takes 1,000 characters."""
DIGEST_CHARS = 32
MIN_HEARTBEAT_SECONDS = 0.5
DEFAULT_HEARTBEAT_SECONDS = 10.0
DEFAULT_ATTEMPT_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Temporal:
    """A Temporal server that runs the commands of an app. Extra: `temporal`.

    Creating one opens nothing. Immutable: threads, event loops and forked children may share one.

    Args:
        address: Host and port of the frontend, such as `localhost:7233`.
        namespace: Namespace, which must exist.
        task_queue: Task queue of sync functions. Those of async functions have `-async` added.
        heartbeat: Seconds after which an attempt without a heartbeat is lost, for example because
            its worker was killed.
        attempt_timeout: Longest time of an attempt of a command without an `attempt_timeout` of
            its own.
        on_ledger: Names of commands that stay on the ledger.
        tls: Whether the server uses TLS. A `temporalio.service.TLSConfig` has your own certificate
            authority, or a client certificate.
        api_key: API key, for Temporal Cloud. Needs `tls=True`.

    Raises:
        TypeError: An option has the wrong type.
        ValueError: An option is not valid.
    """

    address: str
    namespace: str = field(default="default", kw_only=True)
    task_queue: str = field(default="redrive", kw_only=True)
    heartbeat: Seconds = field(default=DEFAULT_HEARTBEAT_SECONDS, kw_only=True)
    attempt_timeout: Seconds = field(default=DEFAULT_ATTEMPT_SECONDS, kw_only=True)
    on_ledger: Collection[str] = field(default=(), kw_only=True)
    tls: bool | TLSConfig = field(default=False, kw_only=True, repr=False)
    api_key: str | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if find_spec("temporalio") is None:
            raise ImportError(
                'redrive.temporal.Temporal needs temporalio: pip install "redrive[temporal]"',
                name="temporalio",
            )
        for name in ("address", "namespace", "task_queue"):
            check_name(f"Temporal: {name}", getattr(self, name), MAX_NAME_BYTES)
        host, _, port = self.address.rpartition(":")
        if "://" in self.address or not host or not port.isdigit():
            raise ValueError(
                f"Temporal: invalid address {self.address!r}: use host:port, such as "
                "'localhost:7233'"
            )
        if isinstance(self.on_ledger, str):
            raise TypeError(
                "Temporal: on_ledger must be a collection of names, not one text; "
                f"pass [{self.on_ledger!r}]"
            )
        if positive("heartbeat", self.heartbeat) < MIN_HEARTBEAT_SECONDS:
            raise ValueError(
                f"Temporal: heartbeat must be at least {MIN_HEARTBEAT_SECONDS} s: "
                f"{self.heartbeat!r}"
            )
        positive("attempt_timeout", self.attempt_timeout)
        if not isinstance(self.tls, bool) and not hasattr(self.tls, "client_cert"):
            kind = type(self.tls).__name__
            raise TypeError(f"Temporal: tls must be True, False or a TLSConfig, not {kind}")
        if self.api_key is not None:
            keep_secret(self.api_key)
            if not self.tls:
                raise ValueError("Temporal: api_key= needs tls=True; pass both")

    def queue_of(self, execution: str, /) -> str:
        """Return the task queue of sync or async functions. Each has its own limit in a worker."""
        return f"{self.task_queue}-async" if execution == "async" else self.task_queue

    def activity_id(self, kind: str, key: str, /) -> str:
        """Return the id of the activity of a job. Long ones end in a digest.

        The task queue is a part of it, so that apps can share a namespace.
        """
        name = f"{self.task_queue}/{kind}/{key}"
        if len(name) <= MAX_ID_CHARS:
            return name
        digest = sha256(name.encode()).hexdigest()[:DIGEST_CHARS]
        return f"{name[: MAX_ID_CHARS - DIGEST_CHARS - 1]}~{digest}"

    @property
    def heartbeat_seconds(self) -> float:
        """The heartbeat timeout in seconds."""
        return positive("heartbeat", self.heartbeat)

    @property
    def attempt_seconds(self) -> float:
        """The longest time of an attempt in seconds."""
        return positive("attempt_timeout", self.attempt_timeout)
