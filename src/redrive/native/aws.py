"""AWS clients: botocore (boto3, aiobotocore) and the S3 client of PyArrow."""

from __future__ import annotations

from typing import Any

from ..core.policy import RetryPolicy, exponential_wait
from .mapping import ClientMapping, Mapped

FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS = 1.0, 20.0


def _wait_range(_policy: RetryPolicy, attempt: int) -> tuple[float, float]:
    """Both clients use full jitter of the standard mode of AWS."""
    return 0.0, min(MAX_WAIT_SECONDS, exponential_wait(FIRST_WAIT_SECONDS, attempt))


BOTOCORE = ClientMapping(
    "botocore",
    templates={
        "max_attempts": (
            'Config(retries={{"total_max_attempts": {max_attempts}, "mode": "standard"}})'
        )
    },
    wait_range=_wait_range,
    notes=(
        "It waits by its own rule: a draw from 0 to 1, 2, 4 … 20 s.",
        "Retry-After is not obeyed.",
        "A body that breaks while it is read is not fetched again.",
        "Retries of one client share 500 tokens: in an outage most calls get one attempt.",
        (
            "With aiobotocore, aiohttp sends an idempotent request a second time after a "
            "reset; the backend s3 switches that off."
        ),
    ),
    package="botocore",
)
PYARROW = ClientMapping(
    "pyarrow",
    templates={"max_attempts": "AwsStandardS3RetryStrategy(max_attempts={max_attempts})"},
    wait_range=_wait_range,
    notes=(
        "It waits by its own rule: a draw from 0 to 1, 2, 4 … 20 s.",
        "Retry-After is not obeyed.",
        (
            "libcurl beneath it sends a request a second time, at once, where a kept "
            "connection is reset before any answer."
        ),
        "Its errors are plain OSErrors, with the status in their text only.",
    ),
    package="pyarrow",
)


def botocore(policy: RetryPolicy, /) -> Mapped[Any]:
    """Return a `botocore.config.Config` for `boto3.client("s3", config=value)`.

    `Config.merge()` joins it with another one.

    Args:
        policy: The policy.

    Returns:
        The configuration, and the fields that it does not carry.
    """
    with BOTOCORE.importing():
        from botocore.config import Config  # noqa: PLC0415  # optional dependency

    BOTOCORE.check(policy)
    return BOTOCORE.to_mapped(policy, Config(retries=botocore_retries(policy)))


def botocore_retries(policy: RetryPolicy, /) -> dict[str, Any]:
    """Return the value of `Config(retries=…)`.

    `max_attempts` of botocore would count retries. The mode is explicit, because its default
    depends on the environment and on the version.
    """
    return {"total_max_attempts": policy.max_attempts, "mode": "standard"}


def pyarrow_s3(policy: RetryPolicy, /) -> Mapped[Any]:
    """Return a strategy for `pyarrow.fs.S3FileSystem(retry_strategy=value)`.

    It is the standard strategy, which counts attempts. PyArrow's default strategy counts retries.

    Args:
        policy: The policy.

    Returns:
        The strategy, and the fields that it does not carry.
    """
    with PYARROW.importing():
        from pyarrow.fs import AwsStandardS3RetryStrategy  # noqa: PLC0415  # optional dependency

    PYARROW.check(policy)
    strategy = AwsStandardS3RetryStrategy(max_attempts=policy.max_attempts)
    return PYARROW.to_mapped(policy, strategy)
