"""Actor: the name under which the audit log records a decision."""

from __future__ import annotations

import getpass
import os
import socket

PROGRAM = "redrive"
"""The actor of decisions that policies make. It is reserved, so that these can be told apart."""


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
