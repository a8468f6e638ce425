"""Graph: files of OneDrive and SharePoint. Experimental: tried against a server of ours that follows the documented protocol."""

from __future__ import annotations

from .backend import Graph

__all__ = ["Graph"]
