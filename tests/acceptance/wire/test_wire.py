"""Exactly one layer retries: three attempts are three requests, for every fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from redrive.errors import Unavailable
from redrive.native import CLIENTS
from redrive.testing import FaultServer
from tests.acceptance.wire import ssh
from tests.acceptance.wire.fault import FAULTS, RETRY_AFTER_SECONDS, Fault
from tests.acceptance.wire.measured import measure, open_proxy
from tests.acceptance.wire.subject import POLICY, SUBJECTS, Subject
from tests.servers.fixtures import SERVERS

MAPPING_BY_BACKEND = {
    "s3": "botocore",
    "s3-pyarrow": "pyarrow",
    "azure": "azure",
    "s3-obstore": "obstore",
    "azure-obstore": "obstore",
    "gcs": "obstore",
}
"""Mappings of the clients that retry, with their own waits."""
RESPECT_RETRY_AFTER = {"azure", "graph"}
"""Backends that respect Retry-After."""


@pytest.fixture(scope="module")
def proxies(request: pytest.FixtureRequest) -> Iterator[Callable[[str], tuple[str, FaultServer]]]:
    started: dict[str, tuple[str, FaultServer]] = {}

    def proxy(server: str) -> tuple[str, FaultServer]:
        if server not in started:
            address = "" if server in ("Graph", "GCS") else request.config.stash[SERVERS].address(server)
            started[server] = address, stack.enter_context(open_proxy(server, address))
        return started[server]

    with ExitStack() as stack:
        yield proxy


def waits(backend: str, attempt: int) -> tuple[float, float]:
    """Return the shortest and the longest wait after an attempt."""
    if backend in MAPPING_BY_BACKEND:
        return CLIENTS[MAPPING_BY_BACKEND[backend]].wait_range(POLICY, attempt)
    return POLICY.wait(attempt, 0.0), POLICY.wait(attempt, 1.0)


@pytest.mark.req("S-4", "S-5", "S-6", "S-8", "S-11", "X-6")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.name}, {fault.act}".replace(" ", "_"))
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_three_attempts_are_three_requests(
    subject: Subject, fault: Fault, proxies: Callable[[str], tuple[str, FaultServer]]
) -> None:
    address, proxy = proxies(subject.server)
    seen = measure(subject.ours(address, proxy.port, fault.patience), proxy, fault, subject.asks_first[0])
    if fault.passes:
        assert seen.error is None
        assert seen.right
        assert seen.requests == len(fault.script)
    else:
        assert isinstance(seen.error, Unavailable)
        assert seen.error.backend == subject.name
        assert POLICY.max_attempts <= seen.requests <= POLICY.max_attempts + (fault.name in subject.hidden)
    if fault.name.startswith("503"):
        for attempt, wait in enumerate(seen.waits, 1):
            least, most = waits(subject.name, attempt)
            assert least - 0.005 <= wait <= most + 10  # Late on a busy machine, but never early.
    if fault.name.startswith("Retry-After") and subject.name in RESPECT_RETRY_AFTER:
        assert seen.waits[0] >= RETRY_AFTER_SECONDS


@pytest.mark.req("S-3", "S-11")
@pytest.mark.parametrize("fault", ssh.FAULTS, ids=lambda fault: f"{fault.name}, {fault.act}".replace(" ", "_"))
def test_three_attempts_are_three_connections(fault: ssh.Fault, sftp_options: dict[str, Any]) -> None:
    seen = ssh.measure(ssh.ours, sftp_options, fault)
    if fault.passes:
        assert seen.error is None
        assert seen.connections == len(fault.connections)
    else:
        assert isinstance(seen.error, Unavailable)
        attempts = 1 if fault.midway else POLICY.max_attempts
        cleanups = fault.midway is not None and fault.act == "write"  # One more connection removes the temporary file.
        assert attempts <= seen.connections <= attempts + cleanups
    assert seen.left == ("new" if fault.passes and fault.act == "write" else "old")
