"""SFTP: files on a server, over SSH."""

from __future__ import annotations

from .backend import Sftp

__all__ = ["Sftp"]
