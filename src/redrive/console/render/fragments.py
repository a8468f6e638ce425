"""Small pieces of HTML that a page repeats: states, times, counts, trends. Everything is escaped.

They are functions instead of macros. A page of fifty rows needs hundreds of them, and a macro costs
ten times as much. The name of a state is always shown, because colour alone is not accessible.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from markupsafe import Markup, escape

from ...core.text import join_reason
from ...ops.overview.trend import Trend
from ...ops.render import ago

PLACEHOLDER = "..."
"""The value of an option that the reader fills in."""


def command(*words: object, **options: Any) -> str:
    """Return a command such as `redrive dead replay 7 --because "..."`, quoted for a shell.

    Words that begin with a dash follow `--`: the id of an event comes from its sender and must not
    become an option.

    Args:
        words: The subcommand and its arguments.
        options: Options by name, with `_` for `-`. True is a flag. None and False are left out.
    """
    texts = [_one_line(word) for word in words]
    split = next((at for at, text in enumerate(texts) if text.startswith("-")), len(texts))
    parts = ["redrive", *map(shlex.quote, texts[:split])]
    for name, value in options.items():
        flag = f"--{name.rstrip('_').replace('_', '-')}"
        if value is True:
            parts.append(flag)
        elif value == PLACEHOLDER:
            parts.append(f'{flag} "{PLACEHOLDER}"')
        elif value is not None and value is not False:
            parts.append(f"{flag} {shlex.quote(_one_line(value))}")
    if texts[split:]:
        parts += ["--", *map(shlex.quote, texts[split:])]
    return " ".join(parts)


def _one_line(value: object) -> str:
    """Return the value as a person writes it: 50 instead of 50.0, without control characters."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return "".join(char if char.isprintable() else " " for char in text)


STATES_BY_TONE = {
    "good": {"✓": "done replayed completed healthy acknowledged success accepted", "●": "alive"},
    "info": {"↺": "replaying", "▸": "running processing leased", "◆": "decided"},
    "calm": {
        "○": "queued waiting sleeping unread idle open ended",
        "–": "discarded cancelled gone",
        "↩": "returned",
        "+": "submitted",
    },
    "warn": {
        "↻": "retry_wait",
        "‖": "blocked parked paused by_hand",
        "–": "skipped",
        "!": "warning late timeout",
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
    "by_hand": "paused by hand",
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


NEVER = Markup('<span class="dim">–</span>')
NONE = Markup('<span class="dim none">–</span>')
CODE = re.compile("`([^`\n]+)`")
CHART_HEIGHT = 20
BAR_WIDTH = 4
"""Width of a bar with its gap."""


def status(state: str, name: str | None = None, /) -> Markup:
    """Render a state with its icon, coloured by its tone.

    Args:
        state: The state.
        name: Shown instead of the name of the state.
    """
    text = escape(name or state_name(state))
    content = f'<span class="sign" aria-hidden="true">{icon(state)}</span>{text}'
    return Markup(f'<span class="state {tone(state)}">{content}</span>')  # noqa: S704  # escaped


def when(time: datetime | None, now: datetime, /) -> Markup:
    """Render a time relative to now, with the exact time as its title. JavaScript updates it."""
    return NEVER if time is None else _time(time, now, "data-ago")


def countdown(time: datetime, now: datetime, /) -> Markup:
    """Render a time in the future that counts down."""
    return _time(time, now, "data-countdown")


def _time(time: datetime, now: datetime, attribute: str) -> Markup:
    exact = time.astimezone(timezone.utc).isoformat()
    title = f"{exact[:10]} {exact[11:19]} UTC"
    html = f'<time datetime="{exact}" title="{title}" {attribute}>{ago(time, now)}</time>'
    return Markup(html)  # noqa: S704  # digits and our own words


def count(number: int | None, url: str, css: str = "", has_more: bool = False, /) -> Markup:
    """Render a count as a link, and zero as a dash."""
    if not number:
        return NONE
    text = f"{number:,}{'+' if has_more else ''}"
    return Markup(f'<a class="plain {css}" href="{escape(url)}">{text}</a>')  # noqa: S704  # escaped


def trend(counts: Trend, label: str, /) -> Markup:
    """Render the counts of the last 24 hours as bars."""
    classes = f"trend{' growing' if counts.is_growing else ''}{'' if counts.hour else ' past'}"
    day, hour = f"{counts.day:,}", f"{counts.hour:,}"
    spoken = f"{escape(label)}: {day} in 24 hours, {hour} in the last hour"
    html = (
        f'<svg class="{classes}" viewBox="0 0 96 20" preserveAspectRatio="none" role="img" '
        f'aria-label="{spoken}"><title>{day} in 24 h, {hour} in the last hour</title>'
        f'<path d="{bars(counts.hours)}"/><path class="ground" d="M0 20h96"/></svg>'
    )
    return Markup(html)  # noqa: S704  # escaped above


def bars(values: Sequence[float], /) -> str:
    """Return the `d` of an SVG path with one bar for each value. The smallest bar is visible."""
    scale = CHART_HEIGHT / (max(values, default=0) or 1)
    path = []
    for position, value in enumerate(values):
        if value:
            height = max(2, round(scale * value))  # whole numbers, because a page has many bars
            path.append(f"M{position * BAR_WIDTH} {CHART_HEIGHT}v-{height}h3v{height}z")
    return "".join(path)


def cli(line: str, /) -> Markup:
    """Render the equivalent command line with a button that copies it."""
    text = escape(line)
    button = f'<button type="button" class="quiet" data-copy="{text}" hidden>Copy</button>'
    html = f'<div class="cli"><code tabindex="0">{text}</code>{button}</div>'
    return Markup(html)  # noqa: S704  # escaped above


def inline(text: object, /) -> Markup:
    """Render a message. Words between backticks become code."""
    return Markup(CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704  # escaped above


def sentence(text: str, /) -> Markup:
    """Render a message as a sentence, with a full stop and a capital letter.

    A name in front (`crm.sync: ...`) stays as it is.
    """
    end = "" if text.endswith((".", "!", "?", "…")) else "."
    first = text[:1].upper() if text.partition(" ")[0].isalpha() else text[:1]
    return inline(f"{first}{text[1:]}{end}")


def cause(reason: str | None, error: str | None, /) -> str:
    """Join a reason and an error message, which may begin with the reason."""
    return join_reason(reason, error)
