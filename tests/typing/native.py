"""Type-checked, never run: a policy in the terms of each client."""

from typing import Any, assert_type

import tenacity
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from redrive import RetryPolicy, native

policy = RetryPolicy(max_attempts=5, backoff_base=0.5, backoff_max=20, timeout=60)

config, dropped = native.botocore(policy)
assert_type(dropped, tuple[str, ...])
assert_type(native.urllib3(policy).value, Retry)
assert_type(native.azure(policy).value, dict[str, Any])
assert_type(native.httpx(policy), native.Mapped[dict[str, int]])
assert_type(native.grpc_options(policy, codes=["UNAVAILABLE"]).value, tuple[tuple[str, Any], ...])
HTTPAdapter(max_retries=native.urllib3(policy).value)


@tenacity.Retrying(**native.tenacity(policy, on=(ConnectionError, TimeoutError)).value).wraps
def legacy(number: int) -> str:
    return str(number)


native.botocore(policy=policy)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
native.urllib3(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
native.tenacity(policy, on="ConnectionError")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
