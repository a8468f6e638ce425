"""Pieces: what a page shows a hundred times: states, moments, counts that lead somewhere, trends. Everything is escaped.

As functions, not as macros: a page of fifty rows calls for hundreds of them, and a macro costs ten times as much.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone

from markupsafe import Markup, escape

from ...ops.overview.trend import Trend
from ...ops.render import ago
from .icons import sign, tone
from .icons import word as word_of
from .sparkline import bars

NEVER = Markup('<span class="dim">–</span>')
NONE = Markup('<span class="dim none">–</span>')
QUOTED = re.compile("`([^`\n]+)`")


def status(name: str, word: str | None = None, /) -> Markup:
    """Render a state as its sign and its word, coloured by its tone. word: shown instead of the name of the state."""
    shown = f'<span class="sign" aria-hidden="true">{sign(name)}</span>{escape(word or word_of(name))}'
    return Markup(f'<span class="state {tone(name)}">{shown}</span>')  # noqa: S704  # escaped above


def when(moment: datetime | None, now: datetime, /) -> Markup:
    """How long ago or how soon; when exactly, in its title. JavaScript keeps it true."""
    return NEVER if moment is None else _time(moment, now, "data-ago")


def countdown(moment: datetime, now: datetime, /) -> Markup:
    """A moment to come, counted down."""
    return _time(moment, now, "data-countdown")


def _time(moment: datetime, now: datetime, kept: str) -> Markup:
    exact = moment.astimezone(timezone.utc).isoformat()
    said = f'<time datetime="{exact}" title="{exact[:10]} {exact[11:19]} UTC" {kept}>{ago(moment, now)}</time>'
    return Markup(said)  # noqa: S704  # digits and our own words


def count(many: int | None, to: str, tone: str = "", more: bool = False, /) -> Markup:
    """A count that leads somewhere; nothing is a dash. more: there are more than that."""
    if not many:
        return NONE
    said = f'<a class="plain {tone}" href="{escape(to)}">{many:,}{"+" if more else ""}</a>'
    return Markup(said)  # noqa: S704  # escaped above; the tone is one of ours


def trend(one: Trend, what: str, /) -> Markup:
    """How much there was in each of the last 24 hours, as bars."""
    shape = f"trend{' growing' if one.growing else ''}{'' if one.hour else ' past'}"
    day, hour = f"{one.day:,}", f"{one.hour:,}"
    said = (
        f'<svg class="{shape}" viewBox="0 0 96 20" preserveAspectRatio="none" role="img" aria-label="{escape(what)}: {day} in 24 '
        f'hours, {hour} in the last hour"><title>{day} in 24 h, {hour} in the last hour</title><path d="{bars(one.hours)}"/>'
        '<path class="ground" d="M0 20h96"/></svg>'
    )
    return Markup(said)  # noqa: S704  # escaped above


def cli(line: str, /) -> Markup:
    """Render the equivalent command line with a button that copies it."""
    text = escape(line)
    said = f'<div class="cli"><code tabindex="0">{text}</code><button type="button" class="quiet" data-copy="{text}" hidden>Copy'
    return Markup(f"{said}</button></div>")  # noqa: S704  # escaped above


def inline(text: object, /) -> Markup:
    """Render a message. Words between backticks become code."""
    return Markup(QUOTED.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704  # escaped above


def sentence(text: str, /) -> Markup:
    """Render a message as a sentence, with a full stop and a capital letter. A name in front (`crm.sync: ...`) stays."""
    end = "" if text.endswith((".", "!", "?", "…")) else "."
    first = text[:1].upper() if text.partition(" ")[0].isalpha() else text[:1]
    return inline(f"{first}{text[1:]}{end}")


def why(reason: str | None, text: str | None, /) -> str:
    """What went wrong: the reason, and its own words, which may begin with it."""
    if not text or not reason:
        return text or reason or ""
    return text if text.startswith(reason) else f"{reason}: {text}"
