"""TemporalConnection: what it does when the process ends, and how it explains errors of the SDK."""

from __future__ import annotations

import subprocess
import sys

import pytest

from redrive.temporal.connection import CORRECT_ADDRESS, _explain_connect

WAITS = """
import _thread, threading
from redrive.temporal.connection import wait_for_foreign_threads

started, gate = threading.Event(), threading.Event()

def deliver():
    started.set()
    gate.wait()

assert wait_for_foreign_threads(0)
_thread.start_new_thread(deliver, ())
started.wait()
assert not wait_for_foreign_threads(0)
gate.set()
assert wait_for_foreign_threads(60)
"""


@pytest.mark.req("E-9")
def test_the_end_of_the_process_waits_for_threads_of_the_sdk() -> None:
    # In its own process: libraries of other tests leave foreign threads in this one.
    subprocess.run([sys.executable, "-c", WAITS], check=True, timeout=120)


@pytest.mark.parametrize(
    ("text", "problem", "fix"),
    [
        ("ConnectError(Custom { error: InvalidMessage(InvalidContentType) })", "it does not use TLS", "remove tls="),
        ("error: InvalidCertificate(UnknownIssuer)", "unknown certificate authority", "TLSConfig(server_root_ca_cert=...)"),
        ("InvalidCertificate(NotValidForNameContext { .. })", "has another name", "TLSConfig(domain=...)"),
        ("`get_system_info` call error: CertificateRequired", "needs a client certificate", "TLSConfig(client_cert=...)"),
        ('ConnectError("dns error", Custom { .. })', "the name of the host is unknown", "correct it"),
        ("`get_system_info` call error: ConnectionReset", "it closed the connection", "check tls="),
        ('source: "tcp", message: "Connection refused"', "connection refused", CORRECT_ADDRESS),
        ("anything else", "anything else", CORRECT_ADDRESS),
    ],
)
def test_an_error_of_the_sdk_is_a_problem_and_a_fix(text: str, problem: str, fix: str) -> None:
    says, does = _explain_connect(RuntimeError(text))
    assert problem in says
    assert fix in does
