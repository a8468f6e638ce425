"""The icon, the tone and the name of every state.

The name is always shown, because colour alone is not accessible.
"""

from __future__ import annotations

STATES_BY_TONE = {
    "good": {"✓": "done replayed completed healthy acknowledged success accepted", "●": "alive"},
    "info": {"↺": "replaying", "▸": "running processing leased", "◆": "decided"},
    "calm": {
        "○": "queued waiting idle open ended",
        "–": "discarded cancelled gone",
        "↩": "returned",
        "+": "submitted",
    },
    "warn": {
        "↻": "retry_wait",
        "‖": "blocked parked paused",
        "–": "skipped",
        "!": "warning late",
        "◪": "refresh_failed",
    },
    "bad": {
        "✕": "dlq pending failed critical giveup dead rejected",
        "!": "halted lost abandoned silent",
        "■": "terminal",
    },
}
ICONS = {
    state: (icon, tone)
    for tone, icons in STATES_BY_TONE.items()
    for icon, states in icons.items()
    for state in states.split()
}
"""Icon and tone by state."""
UNKNOWN = ("·", "calm")
NAMES = {
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
"""Names that differ from the stored state."""


def icon(state: str, /) -> str:
    """Return the icon in front of the name."""
    return ICONS.get(state, UNKNOWN)[0]


def state_name(state: str, /) -> str:
    """Return the name that pages show."""
    return NAMES.get(state, state)


def tone(state: str, /) -> str:
    """Return good, info, calm, warn or bad."""
    return ICONS.get(state, UNKNOWN)[1]
