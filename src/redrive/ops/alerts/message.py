"""The messages that alerts become: JSON for webhooks, and text with Slack's markup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ...core.text import format_duration
from ...journal.redaction import redact_text
from ..health.overview_rules import Health
from ..render import document, utc
from .changes import AlertChange

FORMAT = 1
"""Of the JSON. A field that is added does not change it."""
MAX_SLACK_ALERTS = 20
"""Alerts in one Slack message. `redrive doctor` shows all problems."""
MAX_SLACK_CHARS = 400
"""Characters of a problem in a Slack message. Slack cuts a message at 40,000."""
MAX_TEXT_CHARS = 2_000
ICONS = {
    "critical": ":red_circle:",
    "warning": ":large_yellow_circle:",
    "resolved": ":white_check_mark:",
}
WORDS = {"new": "New", "escalated": "Now critical", "repeated": "Still open"}
COUNTED = {"escalated": "now critical", "repeated": "still open"}


class AlertNotice(NamedTuple):
    """Everything that one message contains. Immutable."""

    health: Health
    changes: Sequence[AlertChange]
    sent_at: datetime
    complete: Callable[[str], str]
    """Adds the ledger to a command, so that it runs as it is printed."""

    def fix_of(self, change: AlertChange) -> tuple[str | None, bool]:
        """Return what to do next, and whether it is a command. None: the problem is resolved."""
        if change.finding is None:
            return None, False
        mend = change.finding.mend
        fix = redact_text(self.complete(mend))
        # Without a known app, `redrive work` becomes words.
        return fix, change.finding.is_command and fix.split()[0] == mend.split()[0]


def describe_change(change: AlertChange, now: datetime, /) -> str:
    """Return the problem in one sentence, with its start or its duration."""
    alert, finding = change.alert, change.finding
    if finding is None:
        seconds = round((now - alert.opened_at).total_seconds())
        return f"{alert.title} (open for {format_duration(max(0, seconds))})."
    says = redact_text(finding.says)
    about = "about " if finding.about else ""
    since = "" if finding.since is None else f" Since {about}{utc(finding.since)} UTC."
    return f"{says}.{since}"


def label_of(change: AlertChange, /) -> str:
    """Return `New, critical`, `Still open, warning`, `Now critical` or `Resolved`."""
    if change.change == "resolved":
        return "Resolved"
    word = WORDS[change.change]
    return word if change.change == "escalated" else f"{word}, {change.alert.severity}"


def webhook_body(notice: AlertNotice, /) -> dict[str, Any]:
    """Return the JSON of a webhook."""
    return {
        "format": FORMAT,
        "ledger": notice.health.url,
        "severity": notice.health.severity,
        "sent_at": document(notice.sent_at),
        "alerts": [_alert(change, notice) for change in notice.changes],
    }


def _alert(change: AlertChange, notice: AlertNotice) -> dict[str, Any]:
    alert, finding = change.alert, change.finding
    fix, is_command = notice.fix_of(change)
    return {
        "id": f"{alert.name}/{alert.subject}" if alert.subject else alert.name,
        "change": change.change,
        "name": alert.name,
        "subject": alert.subject,
        "severity": alert.severity,
        "text": describe_change(change, notice.sent_at)[:MAX_TEXT_CHARS],
        "count": None if finding is None else finding.count,
        "since": document(alert.opened_at),
        "fix": fix,
        "is_command": is_command,
    }


def slack_body(notice: AlertNotice, /) -> dict[str, Any]:
    """Return the JSON of an incoming webhook of Slack."""
    counts = Counter(change.change for change in notice.changes)
    counted = ", ".join(f"{count} {COUNTED.get(name, name)}" for name, count in counts.items())
    lines = [f"*Redrive: {counted}* ({_escape(notice.health.url)})"]
    for change in notice.changes[:MAX_SLACK_ALERTS]:
        icon = ICONS["resolved" if change.finding is None else change.alert.severity]
        text = describe_change(change, notice.sent_at)
        if len(text) > MAX_SLACK_CHARS:
            text = f"{text[: MAX_SLACK_CHARS - 1]}…"
        lines.append(f"{icon} *{label_of(change)}:* {_escape(text)}")
        fix, is_command = notice.fix_of(change)
        if fix is not None:
            lines.append(f"→ `{_escape(fix)}`" if is_command else f"→ {_escape(fix)}")
    hidden = len(notice.changes) - MAX_SLACK_ALERTS
    if hidden > 0:
        lines.append(f"and {hidden:,} more; run `{_escape(notice.complete('redrive doctor'))}`")
    return {"text": "\n".join(lines)}


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
