"""PyArrow: attempts follow the policy."""

from __future__ import annotations

import pytest
from pyarrow import fs

from redrive import RetryPolicy, native
from redrive.native.aws import PYARROW
from redrive.testing import FaultServer
from redrive.testing.http_server import Step
from tests.acceptance.native.wire import assert_waits

pytestmark = pytest.mark.req("R-10")


@pytest.mark.parametrize(("trouble", "attempts"), [(503, 1), (503, 2), ("reset", 2)])
def test_attempts_follow_the_policy_with_the_waits_of_pyarrow(trouble: Step, attempts: int) -> None:
    policy = RetryPolicy(max_attempts=attempts, timeout=9)
    strategy, dropped = native.pyarrow_s3(policy)
    with FaultServer(trouble) as server:
        files = fs.S3FileSystem(
            access_key="a",
            secret_key="b",
            region="us-east-1",
            scheme="http",
            endpoint_override=f"127.0.0.1:{server.port}",
            retry_strategy=strategy,
        )
        with pytest.raises(OSError, match="AWS Error"):
            files.get_file_info("bucket/key")
        assert server.count == attempts
        if attempts > 1:
            assert_waits(server, PYARROW, policy)
    assert dropped == (() if attempts == 1 else ("backoff_base", "backoff_max", "jitter", "timeout"))
