"""`redrive classify`: the verdict on exceptions, statuses and tracebacks, and the defaults that follow from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from redrive.core.policy import RetryPolicy
from redrive.ops.classified import CALLS, JOB_ATTEMPTS, JOB_BACKOFF, classified, of_traceback
from redrive.ops.imported import Unreadable
from redrive.worker.durable import DURABLE


@pytest.mark.parametrize(
    ("text", "verdict", "kind", "rule"),
    [
        ("httpx.ReadTimeout", "transient", "timeout", "httpx.TimeoutException"),
        ("httpx.ConnectError", "transient", "transient", "httpx.ConnectError"),
        ("requests.exceptions.ConnectionError", "transient", "transient", "requests.ConnectionError"),
        ("ConnectionResetError", "transient", "transient", "builtins.ConnectionError"),
        ("KeyError", "unknown", "unknown", None),
        ("503", "transient", "transient", "HTTP status 503"),
        ("429", "transient", "throttled", "HTTP status 429"),
        ("404", "permanent", "permanent", "HTTP status 404"),
        ("599", "unknown", "unknown", "HTTP status 599"),
        ("UNAVAILABLE", "transient", "transient", "gRPC status UNAVAILABLE"),
        ("NOT_FOUND", "permanent", "permanent", "gRPC status NOT_FOUND"),
    ],
)
def test_errors_and_statuses_get_their_verdict(text: str, verdict: str, kind: str, rule: str | None) -> None:
    found = classified(text)
    assert (found.verdict, found.kind) == (verdict, kind)
    assert found.rule == rule or rule is None
    assert found.retried is (verdict == "transient")
    assert found.calls.startswith("retried: 3 attempts" if found.retried else "not retried")
    assert found.jobs.startswith("not retried" if verdict == "permanent" else "retried: 5 attempts")


def test_a_verdict_that_depends_on_the_response_says_so() -> None:
    found = classified("httpx.HTTPStatusError")
    assert (found.depends, found.verdict) == (True, "unknown")
    assert "depends on the single error" in found.notes[0]


TRACEBACK = """Traceback (most recent call last):
  File "shop.py", line 7, in sync
    response.raise_for_status()
httpx.HTTPStatusError: Server error '503 Service Unavailable' for url 'http://crm/v1'
For more information check: https://developer.mozilla.org/en-US/docs/Web/HTTP/Status/503
"""


def test_a_traceback_is_classified_by_its_last_exception() -> None:
    found = of_traceback(TRACEBACK)
    assert (found.subject, found.verdict) == ("httpx.HTTPStatusError with HTTP 503", "transient")
    chained = TRACEBACK + "\nDuring handling of the above exception, another exception occurred:\n\nKeyError: 'id'\n"
    assert of_traceback(chained).verdict == "unknown"
    with pytest.raises(Unreadable, match="no exception found"):
        of_traceback("all quiet\n")


@pytest.mark.parametrize("text", ["999", "no such", "nosuch.Error", "json.loads", "foo"])
def test_what_is_no_error_is_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        classified(text)


def test_the_library_need_not_be_installed() -> None:
    program = (
        "import sys; sys.modules['httpx'] = None\n"
        "from redrive.ops.classified import classified\n"
        "found = classified('httpx.ConnectError')\n"
        "print(found.verdict, *found.notes)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "not installed here" in done.stdout


def test_an_exception_of_yours_is_imported_and_never_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_errors.py").write_text(
        "class Busy(ConnectionError):\n"
        "    def __new__(cls, *given): raise SystemExit('made')\n"
        "    def __init__(self): raise SystemExit('made')\n"
    )
    monkeypatch.chdir(tmp_path)
    found = classified("own_errors.Busy")
    assert found.verdict == "transient"
    assert "decided by its base class builtins.ConnectionError" in found.notes


def test_the_defaults_are_those_of_calls_and_jobs() -> None:
    assert RetryPolicy.service_call() == CALLS
    assert DURABLE.max_attempts == JOB_ATTEMPTS
    assert tuple(DURABLE.backoff(attempt, 0.5) for attempt in range(1, 5)) == JOB_BACKOFF
