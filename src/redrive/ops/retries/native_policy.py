"""A retry policy in the terms of a client library."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...core.policy import RetryPolicy
from ...native import CLIENTS
from ...native.mapping import POLICY_FIELDS, ClientMapping
from ..project.user_code import Unreadable, import_object, names_object, suggest

__all__ = ["NativeReport", "Unreadable", "native"]

MAX_WAITS = 5
"""Number of waits in a report."""


@dataclass(frozen=True, slots=True)
class NativeReport:
    """A policy in the terms of one client. Immutable."""

    client: str
    policy: RetryPolicy
    words: tuple[tuple[str, str | None], ...]
    """Each field with its equivalent. None: the client has none."""
    dropped: tuple[str, ...]
    asked: tuple[tuple[float, float], ...]
    """Shortest and longest wait of the policy, for the first failed attempts."""
    waits: tuple[tuple[float, float], ...]
    """The same for the client."""
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {
            "client": self.client,
            "policy": asdict(self.policy),
            "words": dict(self.words),
            "dropped": list(self.dropped),
            "asked": [list(pair) for pair in self.asked],
            "waits": [list(pair) for pair in self.waits],
            "notes": list(self.notes),
        }


def native(name: str, source: str | None = None, /) -> NativeReport:
    """Return a policy in the terms of a client.

    Args:
        name: Name of the client.
        source: A TOML file with a [retry] table, or `module:object` of a RetryPolicy. Default:
            `RetryPolicy()`.
    """
    client = CLIENTS.get(name)
    if client is None:
        raise Unreadable(
            f"no mapping for {name!r}{suggest(name, tuple(CLIENTS))}; known: {', '.join(CLIENTS)}"
        )
    policy = RetryPolicy() if source is None else _policy(source)
    try:
        client.check(policy)
    except ValueError as wrong:
        raise Unreadable(str(wrong)) from wrong
    return _report(client, policy)


def _report(client: ClientMapping, policy: RetryPolicy) -> NativeReport:
    failed = range(1, min(policy.max_attempts, MAX_WAITS + 1))
    return NativeReport(
        client.name,
        policy,
        tuple((field, client.describe_field(field, policy)) for field in POLICY_FIELDS),
        client.dropped_fields(policy),
        tuple((policy.wait(attempt, 0.0), policy.wait(attempt, 1.0)) for attempt in failed),
        tuple(client.wait_range(policy, attempt) for attempt in failed),
        client.notes,
    )


def _policy(source: str) -> RetryPolicy:
    path = Path(source)
    if path.suffix != ".toml" and not path.is_file():
        if not names_object(source):
            raise Unreadable(
                f"{source}: no such file; pass a TOML file with a [retry] table, or module:object"
            )
        value = import_object(source)
        if not isinstance(value, RetryPolicy):
            raise Unreadable(f"{source} must be a RetryPolicy, not {type(value).__name__}")
        return value
    try:
        section = tomllib.loads(path.read_text(encoding="utf-8-sig")).get("retry")
        policy = RetryPolicy.from_mapping(section)
    except OSError as wrong:
        raise Unreadable(f"{path} cannot be read: {wrong.strerror}") from wrong
    except (TypeError, ValueError) as wrong:  # Errors of TOML and UTF-8 are ValueErrors.
        raise Unreadable(f"{path}: {wrong}") from wrong
    if policy is None:
        raise Unreadable(f"{path}: no [retry] table; add one")
    return policy
