"""Signs: the sign, the tone and the word of every state. The word is always shown, because colour alone is not accessible."""

from __future__ import annotations

SIGNS = {
    "queued": ("○", "calm"), "retry_wait": ("↻", "warn"), "replaying": ("↺", "info"), "running": ("▸", "info"),
    "blocked": ("‖", "warn"), "parked": ("‖", "warn"), "dlq": ("✕", "bad"), "done": ("✓", "good"), "discarded": ("–", "calm"),
    "pending": ("✕", "bad"), "replayed": ("✓", "good"), "paused": ("‖", "warn"), "halted": ("!", "bad"),
    "cancelled": ("–", "calm"), "waiting": ("○", "calm"), "skipped": ("–", "warn"), "failed": ("✕", "bad"),
    "lost": ("!", "bad"), "returned": ("↩", "calm"), "completed": ("✓", "good"), "processing": ("▸", "info"),
    "abandoned": ("!", "bad"), "idle": ("○", "calm"), "healthy": ("✓", "good"), "warning": ("!", "warn"),
    "critical": ("✕", "bad"), "silent": ("!", "bad"), "gone": ("–", "calm"), "open": ("○", "calm"), "giveup": ("✕", "bad"),
    "acknowledged": ("✓", "good"), "alive": ("●", "good"), "ended": ("○", "calm"), "submitted": ("+", "calm"),
    "dead": ("✕", "bad"), "decided": ("◆", "info"), "success": ("✓", "good"), "refresh_failed": ("◪", "warn"),
    "terminal": ("■", "bad"), "accepted": ("✓", "good"), "rejected": ("✕", "bad"), "late": ("!", "warn"), "leased": ("▸", "info"),
}  # fmt: skip
UNKNOWN = ("·", "calm")
WORDS = {
    "alive": "online",
    "dlq": "dead",
    "ended": "stopped",
    "giveup": "given up",
    "leased": "running",
    "lost": "lease lost",
    "parked": "paused (outage)",
    "refresh_failed": "newer run rejected",
    "retry_wait": "retry scheduled",
    "silent": "offline",
    "success": "accepted",
    "terminal": "gave up",
}
"""How the console names a stored state. Every other state is shown by its own name."""


def sign(state: str, /) -> str:
    """The sign that stands before a state's name."""
    return SIGNS.get(state, UNKNOWN)[0]


def word(state: str, /) -> str:
    """Return the name of a state as pages show it."""
    return WORDS.get(state, state)


def tone(state: str, /) -> str:
    """good, info, calm, warn or bad."""
    return SIGNS.get(state, UNKNOWN)[1]
