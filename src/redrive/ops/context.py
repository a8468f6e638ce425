"""The context of an operator: which ledger, in whose name, and defaults that all skins share."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .project.target import ledger_of
from .sign_in.rights import Rights

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger
    from .plans.plan import Plan
    from .project.target import Operated
    from .sign_in.read_audit import ReadAudit

PROGRAM = "redrive"
"""The actor of decisions that policies make. It is reserved, so that these can be told apart."""
MAX_REPLAYS = 10
"""A dead letter that was replayed this many times is skipped."""
QUIET = 60.0
"""Seconds without a heartbeat after which a worker is offline."""
MOST_COUNTED = 100_000
"""Totals of lists are counted up to this number."""
MAX_CHAIN_JOBS = 100
"""Jobs of one dead letter that are read: the one that died, and its replays."""


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """What every part of an operator needs. Immutable. Threads may share one."""

    app: Operated
    actor: str
    rights: Rights | None = None
    """Acts and job types. None: all."""
    reads: ReadAudit | None = None
    """Records reads of payloads. None: they are not recorded."""

    def require(self, act: str, /, *names: str | None) -> None:
        """Raise MissingRight if an act is not allowed to these job types.

        Args:
            act: The act, see `ACTS`.
            names: The job types. None: it belongs to no job type.
        """
        if self.rights is not None:
            self.rights.check(act, *names)

    def require_plan(self, plan: Plan, /) -> Plan:
        """Return the plan. Raise MissingRight if its act is not allowed to all of its items."""
        act = plan.act if plan.partitions is None else "partition"
        names = [*plan.kinds] if plan.as_kind is None else [*plan.kinds, plan.as_kind]
        self.require(act, *names)
        return plan

    def open_payload(self, noun: str, id_: int | str, /, *names: str) -> None:
        """Check the right to read a payload, and record the read if that is wanted.

        Args:
            noun: What is read: `job`, `dead`, `event` or `key`.
            id_: Its id.
            names: Its job types. One of them is enough. None: it belongs to no job type.

        Raises:
            MissingRight: The rights cover none of the job types.
        """
        if self.rights is not None:
            subject = {"dead": "dead letter", "key": "idempotency record"}.get(noun, noun)
            self.rights.check_read(f"{subject} {id_}", *names)
        if self.reads is not None:
            self.reads.record(self.actor, noun, id_, self.record)

    @property
    def ledger(self) -> Ledger:
        """The ledger. The ledger of an app is opened at its first use."""
        return ledger_of(self.app)

    def record(self, action: str, because: str, details: Mapping[str, Any]) -> None:
        """Write an entry of the audit log."""
        self.ledger.record(actor=self.actor, action=action, because=because, what=details)


def check_reason(because: object, /) -> None:
    """Raise ValueError if the reason for the audit log is empty."""
    if not isinstance(because, str) or not because.strip():
        raise ValueError(f"because= must say why: {because!r}")


def user() -> str:
    """Return the name of the user who runs this process."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):  # A container may have no entry for the user id.
        return f"uid {os.getuid()}"
    # A service often runs as a user with the program's name.
    return f"{name}@{socket.gethostname()}" if name == PROGRAM else name


def check_actor(actor: object, /) -> str:
    """Return the name. Raise ValueError if it is empty or reserved."""
    if not isinstance(actor, str) or not actor.strip():
        raise ValueError(f"actor= must say who acts: {actor!r}")
    if actor.strip() == PROGRAM:
        raise ValueError(f"{PROGRAM} is reserved for decisions of policies; pass your own name")
    return actor
