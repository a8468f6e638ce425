"""`redrive classify`: the verdict on exceptions, statuses and tracebacks, and the defaults that follow from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from redrive.core.policy import RetryPolicy
from redrive.ops.project.user_code import Unreadable
from redrive.ops.retries.classify import CALLS, JOB_ATTEMPTS, JOB_BACKOFF, classified, of_traceback
from redrive.worker.job_type import DURABLE


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


def test_a_verdict_that_depends_on_the_response_is_marked() -> None:
    found = classified("httpx.HTTPStatusError")
    assert (found.depends, found.verdict) == (True, "unknown")
    assert "depends on the single error" in found.notes[0]
    assert found.calls == "depends on the error: retried if it is transient"
    assert found.jobs == "depends on the error: retried unless it is permanent"


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


REFUSED = """Traceback (most recent call last):
  File "client.py", line 952, in connect
ConnectionRefusedError: [Errno 111] Connection refused

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "prices.py", line 4, in price
urllib.error.URLError: <urlopen error [Errno 111] Connection refused>
redrive: gave up on prices.price after 3 attempts in 0.977 s (waits 0.273, 0.64 s): attempts spent
"""


def test_a_wrapper_is_classified_by_the_cause_in_the_traceback() -> None:
    found = of_traceback(REFUSED)
    assert found.subject == "urllib.error.URLError caused by ConnectionRefusedError"
    assert (found.verdict, found.retried) == ("transient", True)
    assert any(note.startswith("Redrive gave up on prices.price after 3 attempts") for note in found.notes)


def test_an_unrelated_traceback_above_is_not_a_cause() -> None:
    later = REFUSED + "Traceback (most recent call last):\nurllib.error.URLError: <urlopen error no host given>\n"
    found = of_traceback(later)
    assert (found.subject, found.verdict, found.depends) == ("urllib.error.URLError", "unknown", True)


@pytest.mark.parametrize("text", ["999", "no such", "nosuch.Error", "json.loads", "foo"])
def test_text_without_an_error_is_rejected(text: str) -> None:
    with pytest.raises(Unreadable):
        classified(text)


def test_the_library_need_not_be_installed() -> None:
    program = (
        "import sys; sys.modules['httpx'] = None\n"
        "from redrive.ops.retries.classify import classified\n"
        "found = classified('httpx.ConnectError')\n"
        "print(found.verdict, *found.notes)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "not installed here" in done.stdout


def test_an_exception_of_the_user_is_imported_and_not_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize(
    ("text", "subject", "verdict"),
    [
        ("TimeoutError: warehouse did not answer", "TimeoutError", "transient"),
        ("httpx.ReadTimeout: slow", "httpx.ReadTimeout", "transient"),
        ("attempts: TimeoutError: warehouse did not answer", "TimeoutError", "transient"),
        ("HTTPStatusError: Server error 503 for url https://crm/v1", "HTTPStatusError with HTTP 503", "transient"),
        ("ConnectError", "ConnectError", "transient"),
        ("ReadTimeout: the read operation timed out", "ReadTimeout", "transient"),
        ("Stop", "redrive.errors.Stop", "permanent"),
        ("Stop: the customer is gone", "redrive.errors.Stop", "permanent"),
    ],
)
def test_errors_as_the_cli_prints_them_are_classified(text: str, subject: str, verdict: str) -> None:
    found = classified(text)
    assert (found.subject, found.verdict) == (subject, verdict)


def test_an_ambiguous_bare_name_is_rejected() -> None:
    with pytest.raises(Unreadable, match="TransportError: depends on the library; pass its module too, such as"):
        classified("TransportError")
    with pytest.raises(Unreadable, match="OddError: unknown exception; pass its module too"):
        classified("OddError")
    with pytest.raises(Unreadable, match="print: not an exception"):
        classified("print")


def test_control_exceptions_have_their_own_advice() -> None:
    stop = classified("redrive.Stop")
    assert (stop.retried, stop.final) == (False, True)
    assert stop.jobs == "not retried: a dead letter after the first attempt (reason stopped)"
    assert "on=(Stop" not in " ".join(stop.change)
    assert stop.change[0] == "to retry the job later: raise redrive.Again(after=30) instead"
    blocked = classified("Blocked")
    assert blocked.jobs.startswith("not retried: a blocked dead letter")
    again = classified("redrive.Again")
    assert (again.retried, again.calls.startswith("not retried"), again.jobs.startswith("retried: 5")) == (False, True, True)
    assert again.change == ("to give up at once: raise redrive.Stop instead",)
    assert classified("BreakerOpen").calls.startswith("not retried")


SHOWN = """Dead letter 2
  job type      stock.reserve
  reason        attempts
  error         TimeoutError: warehouse did not answer
  signature     TimeoutError: warehouse did not answer
  dead since    2 min ago, 2026-11-17 10:00:00 UTC

Job 7: dead, 5 attempts
  1  failed  3 min ago, 2026-11-17 09:59:00 UTC
             failed: ValueError: something before
"""


def test_the_output_of_dead_show_is_classified_by_its_error() -> None:
    assert (of_traceback(SHOWN).subject, of_traceback(SHOWN).verdict) == ("TimeoutError", "transient")
