"""botocore, and with it boto3 and aiobotocore."""

from __future__ import annotations

from typing import Any

from ..core.policy import RetryPolicy, doubled
from .mapped import Client, Mapped


def _waits(_policy: RetryPolicy, attempt: int) -> tuple[float, float]:
    return 0.0, min(20.0, doubled(1.0, attempt))


BOTOCORE = Client(
    "botocore",
    words={"max_attempts": 'Config(retries={{"total_max_attempts": {max_attempts}, "mode": "standard"}})'},
    waits=_waits,
    notes=(
        "It waits by its own rule: a draw from 0 to 1, 2, 4 … 20 s.",
        "Retry-After is not obeyed.",
        "A body that breaks while it is read is not fetched again.",
        "Retries of one client share 500 tokens: in an outage most calls get one attempt.",
        "With aiobotocore, aiohttp sends an idempotent request a second time after a reset; the backend s3 switches that off.",
    ),
)


def retries(policy: RetryPolicy, /) -> dict[str, Any]:
    """The value of `Config(retries=…)`. Not `max_attempts`: that counts the ones after the first; and the mode is said,
    since its default depends on the environment, and changes."""
    return {"total_max_attempts": policy.max_attempts, "mode": "standard"}


def botocore(policy: RetryPolicy, /) -> Mapped[Any]:
    """Return a `botocore.config.Config` for `boto3.client("s3", config=value)`.

    `Config.merge()` joins it with another one.

    Args:
        policy: The policy.

    Returns:
        The configuration, and the fields that it does not carry.
    """
    from botocore.config import Config  # noqa: PLC0415  # whoever maps to botocore has it

    BOTOCORE.check(policy)
    return BOTOCORE.mapped(policy, Config(retries=retries(policy)))
