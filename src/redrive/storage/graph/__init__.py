"""Graph: files of OneDrive and SharePoint.

Experimental: tested against our own server, which follows the documented protocol.
"""

from __future__ import annotations

from .backend import Graph

__all__ = ["Graph"]
