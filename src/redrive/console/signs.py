"""Signs: of every state a sign and a tone. The word stands beside them, always: colour alone says nothing to some."""

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


def sign(state: str, /) -> str:
    """The sign that stands before a state's name."""
    return SIGNS.get(state, UNKNOWN)[0]


def tone(state: str, /) -> str:
    """good, info, calm, warn or bad."""
    return SIGNS.get(state, UNKNOWN)[1]
