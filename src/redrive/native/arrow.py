"""PyArrow's own S3 client, which is Amazon's for C++."""

from __future__ import annotations

from typing import Any

from ..core.policy import RetryPolicy, doubled
from .mapped import Client, Mapped


def _waits(_policy: RetryPolicy, attempt: int) -> tuple[float, float]:
    return 0.0, min(20.0, doubled(1.0, attempt))


PYARROW = Client(
    "pyarrow",
    words={"max_attempts": "AwsStandardS3RetryStrategy(max_attempts={max_attempts})"},
    waits=_waits,
    notes=(
        "It waits by its own rule: a draw from 0 to 1, 2, 4 … 20 s.",
        "Retry-After is not obeyed.",
        "libcurl beneath it sends a request a second time, at once, where a kept connection is reset before any answer.",
        "Its errors are plain OSErrors, with the status in their text only.",
    ),
)


def pyarrow_s3(policy: RetryPolicy, /) -> Mapped[Any]:
    """Return a strategy for `pyarrow.fs.S3FileSystem(retry_strategy=value)`.

    It is the standard strategy, which counts attempts. PyArrow's default strategy counts retries.

    Args:
        policy: The policy.

    Returns:
        The strategy, and the fields that it does not carry.
    """
    from pyarrow.fs import AwsStandardS3RetryStrategy  # noqa: PLC0415  # whoever maps to pyarrow has it

    PYARROW.check(policy)
    return PYARROW.mapped(policy, AwsStandardS3RetryStrategy(max_attempts=policy.max_attempts))
