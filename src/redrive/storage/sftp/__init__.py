"""SFTP: files on a server that is reached by SSH."""

from __future__ import annotations

from .backend import Sftp

__all__ = ["Sftp"]
