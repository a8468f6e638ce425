"""The targets of alerts: webhooks from the settings, and how a message reaches one.

The URL of a webhook is a secret. It comes from the environment or a file, and no message, log
record or stored text contains more of it than its host.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit

from ... import http
from ...core.key import Key
from ...core.policy import RetryPolicy
from ...engine.nesting import outcome
from ...engine.retry import Retry, retry
from ...journal.redaction import redact_text
from ...journal.redaction.secrets import keep_secret
from ...settings import AlertSettings
from ..project.user_code import Unreadable
from .message import AlertNotice, slack_body, webhook_body

TargetName: TypeAlias = Literal["webhook", "slack"]
BODIES: Mapping[TargetName, Callable[[AlertNotice], dict[str, Any]]] = {
    "webhook": webhook_body,
    "slack": slack_body,
}
SEND_SECONDS = 30.0
"""For one message with all attempts. Shorter than the lease of the stored state."""
ATTEMPT_SECONDS = 10.0
POLICY = RetryPolicy(max_attempts=3, backoff_base=0.5, backoff_max=5.0, jitter=0.5)
NO_TARGET = (
    "alerts: no target; set REDRIVE_ALERTS_WEBHOOK or REDRIVE_ALERTS_SLACK to a URL, "
    "or REDRIVE_ALERTS_WEBHOOK_FILE or REDRIVE_ALERTS_SLACK_FILE to a file with the URL"
)
GONE_STATUSES = frozenset((301, 302, 303, 307, 308, 401, 403, 404, 405, 410))
"""Statuses of a URL that is wrong, has moved, or was revoked. Redirects are not followed: another
host would get the message and the credentials."""


@dataclass(frozen=True, slots=True)
class AlertTarget:
    """Where alerts are sent. Immutable."""

    name: TargetName
    url: str = field(repr=False)

    @property
    def target_id(self) -> str:
        """Identifies the target in the ledger. Another URL is another target."""
        return f"{self.name}-{sha256(self.url.encode()).hexdigest()[:8]}"

    @property
    def address(self) -> str:
        """The part of the URL that is not secret: scheme, host and port."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def __str__(self) -> str:
        return f"{self.name} ({self.address})"


def configured_targets(settings: AlertSettings, /) -> list[AlertTarget]:
    """Return the targets of the settings.

    Raises:
        Unreadable: No target is set, or a URL is not valid. The message does not contain the URL.
    """
    urls: dict[TargetName, str | None] = {
        "webhook": _read("webhook", settings.webhook, settings.webhook_file),
        "slack": _read("slack", settings.slack, settings.slack_file),
    }
    targets = [
        AlertTarget(name, _check_url(name, url)) for name, url in urls.items() if url is not None
    ]
    if not targets:
        raise Unreadable(NO_TARGET)
    return targets


def _read(name: str, url: str | None, file: str | None) -> str | None:
    """Return the URL of a setting, or of the file that another setting names."""
    if file is None:
        return url
    if url is not None:
        raise Unreadable(f"alerts.{name}: also set by alerts.{name}_file; set one of the two")
    try:
        content = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not text"
        raise Unreadable(
            f"alerts.{name}_file: {file!r} cannot be read ({reason}); name a file with the URL"
        ) from None
    if not content:
        raise Unreadable(f"alerts.{name}_file: {file!r} is empty; write the URL into it")
    return content


def _check_url(name: TargetName, url: str) -> str:
    """Return the URL if a client can be made for it. From now on, it is redacted everywhere."""
    problem: str | None = "not a URL"
    try:
        parts = urlsplit(url)
        keep_secret(url, parts.path, parts.query, *_credentials(parts))
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            problem = None if url.isprintable() and " " not in url else "it has spaces"
    except ValueError:
        pass
    if problem is not None:
        raise Unreadable(
            f"alerts.{name}: {problem}; set REDRIVE_ALERTS_{name.upper()} to an address that "
            "begins with https:// or http:// (its value is not printed)"
        ) from None
    return url


def _credentials(parts: SplitResult) -> tuple[str, ...]:
    return tuple(unquote(part) for part in (parts.username, parts.password) if part)


def _redact_log(record: logging.LogRecord) -> bool:
    """Redact a message of httpx2, which logs the URL of each request."""
    record.msg, record.args = redact_text(record.getMessage()), ()
    return True


class AlertSender:
    """Sends messages to one target, with retries. One thread at a time.

    Args:
        target: The target.
        policy: Retries of one message.

    Raises:
        Unreadable: httpx2 is not installed. The message names the extra.
    """

    def __init__(self, target: AlertTarget, /, *, policy: Retry | None = None) -> None:
        self.target = target
        parts = urlsplit(target.url)
        self._path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        headers = {}
        if credentials := ":".join(_credentials(parts)):
            basic = base64.b64encode(credentials.encode()).decode()
            headers["authorization"] = f"Basic {basic}"
        logging.getLogger("httpx2").addFilter(_redact_log)
        policy = policy or retry(POLICY, attempt_timeout=ATTEMPT_SECONDS)
        try:
            self._client = http.Client(target.address, headers=headers, retry=policy)
        except ImportError as missing:
            raise Unreadable(f"alerts: {missing}") from missing

    def send(self, notice: AlertNotice, revision: str, /) -> str | None:
        """Send a message.

        Args:
            notice: The content.
            revision: Part of the idempotency key. A message that is sent again has the same one.

        Returns:
            Why it was not delivered. None: it was.
        """
        key = Key("redrive", "", self.target.target_id, "alert", revision)
        try:
            self._client.post(
                self._path,
                json=BODIES[self.target.name](notice),
                idempotency_key=key,
                operation=f"alert {self.target.name}",
                timeout=SEND_SECONDS,
            )
        except Exception as error:  # Of httpx2, which is optional. Its text contains the URL.
            return self._explain(error)
        return None

    def _explain(self, error: Exception) -> str:
        """Return the problem in one line, without the URL."""
        status = getattr(getattr(error, "response", None), "status_code", None)
        ended = outcome(error)
        attempts = 1 if ended is None else ended.attempts
        count = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        reason = type(error).__name__ if status is None else f"HTTP {status}"
        fix = "retried at the next check"
        if status in GONE_STATUSES:
            fix = f"check the URL in REDRIVE_ALERTS_{self.target.name.upper()}"
        return f"{self.target}: not delivered after {count} ({reason}); {fix}"

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
