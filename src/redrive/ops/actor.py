"""Actor: who is at this machine, as the audit will have it where nobody says otherwise."""

from __future__ import annotations

import getpass
import os


def user() -> str:
    """Who runs this process, as the operating system has it."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # no such user in this container
        return f"uid {os.getuid()}"
