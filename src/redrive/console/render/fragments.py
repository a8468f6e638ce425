"""Small pieces of HTML that a page repeats: states, times, counts, trends. Everything is escaped.

They are functions instead of macros. A page of fifty rows needs hundreds of them, and a macro costs
ten times as much.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone

from markupsafe import Markup, escape

from ...core.text import join_reason
from ...ops.overview.trend import Trend
from ...ops.render import ago
from .states import icon, state_name, tone

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
    classes = f"trend{' growing' if counts.growing else ''}{'' if counts.hour else ' past'}"
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
