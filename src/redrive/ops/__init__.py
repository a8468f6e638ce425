"""What an operator may do, once, for both skins: the command line and the console. One module for each noun."""

from __future__ import annotations

from .operator import Operator
from .plan import Plan
from .sweep import Sweep

__all__ = ["Operator", "Plan", "Sweep"]
