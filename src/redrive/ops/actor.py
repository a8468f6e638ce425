"""Actor: who is at this machine, as the audit will have it where nobody says otherwise."""

from __future__ import annotations

import getpass
import os
import socket

PROGRAM = "redrive"
"""Who decides what policies decide by themselves: nobody else may bear the name, else their decisions were taken for those."""


def user() -> str:
    """Who runs this process, as the operating system has it."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):  # no such user in this container
        return f"uid {os.getuid()}"
    return f"{name}@{socket.gethostname()}" if name == PROGRAM else name  # services often have a user of their own


def checked(actor: object, /) -> str:
    """The name, if it is one of somebody. ValueError: it is empty, or ours."""
    if not isinstance(actor, str) or not actor.strip():
        raise ValueError(f"actor= must say who acts: {actor!r}")
    if actor.strip() == PROGRAM:
        raise ValueError(f"{PROGRAM} is reserved for decisions of policies; pass your own name")
    return actor
