"""The standard classifier on errors that need no server, and on hostile errors."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import ftplib
import gc
import http.client
import json
import smtplib
import socket
import sqlite3
import ssl
import subprocess
import sys
import tracemalloc
import urllib.error
import weakref
from datetime import datetime, timedelta, timezone
from email.message import Message
from typing import Any

import pytest

from redrive import errors
from redrive.core.classification import classify as module
from redrive.core.classification.classify import classify
from redrive.core.fault import PERMANENT, TRANSIENT, UNKNOWN, Fault

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)
TIMEOUT = Fault("timeout")
NEVER_SENT = Fault("transient", sent=False)


def tls(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}]")
    error.reason = reason
    return error


@pytest.mark.req("C-3", "C-10")
@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (ConnectionRefusedError(), NEVER_SENT),
        (ConnectionResetError(), TRANSIENT),
        (ConnectionAbortedError(), TRANSIENT),
        (BrokenPipeError(), TRANSIENT),
        (OSError(errno.ECONNREFUSED, "refused"), NEVER_SENT),
        (OSError(errno.ENETUNREACH, "no route"), TRANSIENT),
        (OSError(errno.EHOSTUNREACH, "no route"), TRANSIENT),
        (OSError(errno.ETIMEDOUT, "timed out"), TIMEOUT),
        (OSError(errno.EPIPE, "pipe"), TRANSIENT),
        (OSError(errno.ENOSPC, "disk full"), UNKNOWN),
        (TimeoutError(), TIMEOUT),
        (concurrent.futures.TimeoutError(), TIMEOUT),
        (socket.gaierror(socket.EAI_NONAME, "no such name"), NEVER_SENT),
        (socket.gaierror(socket.EAI_AGAIN, "try again"), NEVER_SENT),
        (ssl.SSLCertVerificationError(), Fault("permanent", sent=False)),
        (tls("WRONG_VERSION_NUMBER"), Fault("permanent", sent=False)),
        (tls("DECRYPTION_FAILED_OR_BAD_RECORD_MAC"), TRANSIENT),
        (ssl.SSLEOFError(), TRANSIENT),
        (http.client.RemoteDisconnected("gone"), TRANSIENT),
        (http.client.IncompleteRead(b""), TRANSIENT),
        (http.client.BadStatusLine("?"), TRANSIENT),
        (http.client.InvalidURL(), PERMANENT),
        (asyncio.IncompleteReadError(b"", 5), TRANSIENT),
        (urllib.error.URLError(ConnectionRefusedError()), NEVER_SENT),
        (urllib.error.URLError("unknown url type"), UNKNOWN),
        (subprocess.TimeoutExpired("sleep", 1), TIMEOUT),
        (FileNotFoundError(), PERMANENT),
        (PermissionError(), PERMANENT),
    ],
    ids=repr,
)
def test_network_and_system_errors_are_classified(error: Exception, fault: Fault) -> None:
    assert classify(error) == fault


@pytest.mark.req("C-3")
@pytest.mark.parametrize(
    ("status", "kind"),
    [(status, "transient") for status in (425, 500, 502, 503)]
    + [(status, "timeout") for status in (408, 504)]
    + [(status, "throttled") for status in (429, 529)]
    + [(status, "permanent") for status in (301, 304, 400, 401, 403, 404, 405, 409, 410, 412, 413, 422, 423, 451, 501)]
    + [(status, "unknown") for status in (507, 520, 599)],
)
def test_http_statuses_are_classified(status: int, kind: str) -> None:
    error = urllib.error.HTTPError("http://x", status, "", Message(), None)
    assert classify(error) == Fault(kind, status=status)  # type: ignore[arg-type]  # the table above has valid kinds
    error.close()


@pytest.mark.req("R-6")
def test_a_503_with_retry_after_is_throttling() -> None:
    headers = Message()
    headers["Retry-After"] = "Sun, 01 Mar 2026 12:00:05 GMT"
    error = urllib.error.HTTPError("http://x", 503, "", headers, None)
    assert classify(error, now=NOON) == Fault("throttled", 5.0, status=503)
    error.close()


@pytest.mark.req("C-3")
def test_a_conflict_with_retry_after_is_transient() -> None:
    headers = Message()
    headers["Retry-After"] = "2"
    error = urllib.error.HTTPError("http://x", 409, "", headers, None)
    assert classify(error, now=NOON) == Fault("transient", 2.0, status=409)
    error.close()


@pytest.mark.req("C-3")
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (smtplib.SMTPServerDisconnected(), "transient"),
        (smtplib.SMTPDataError(451, b"later"), "transient"),
        (smtplib.SMTPDataError(554, b"spam"), "permanent"),
        (smtplib.SMTPAuthenticationError(535, b"no"), "permanent"),
        (smtplib.SMTPRecipientsRefused({"a": (450, b"")}), "transient"),
        (smtplib.SMTPRecipientsRefused({"a": (450, b""), "b": (550, b"")}), "permanent"),
        (smtplib.SMTPException("?"), "unknown"),
        (ftplib.error_temp("421"), "transient"),
        (ftplib.error_perm("550"), "permanent"),
        (sqlite3.OperationalError("database is locked"), "transient"),
        (sqlite3.OperationalError("no such table: t"), "unknown"),
        (sqlite3.IntegrityError(), "permanent"),
    ],
    ids=repr,
)
def test_mail_file_and_sqlite_errors_are_classified(error: Exception, kind: str) -> None:
    assert classify(error).kind == kind


@pytest.mark.req("C-3")
def test_undecodable_data_is_permanent() -> None:
    with pytest.raises(json.JSONDecodeError) as broken:
        json.loads("{")
    assert classify(broken.value) is PERMANENT
    with pytest.raises(UnicodeDecodeError) as undecodable:
        b"\xff".decode()
    assert classify(undecodable.value) is PERMANENT


@pytest.mark.req("C-3")
@pytest.mark.parametrize("kind", [Exception, ValueError, KeyError, RuntimeError, AssertionError, NotImplementedError])
def test_other_errors_are_unknown(kind: type[Exception]) -> None:
    assert classify(kind()) is UNKNOWN
    assert classify(type("Own", (kind,), {})()) is UNKNOWN


def test_a_subclass_of_a_known_error_is_classified_like_it() -> None:
    class CrmDownError(ConnectionError):
        pass

    assert classify(CrmDownError()) is TRANSIENT


@pytest.mark.req("C-3")
@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (errors.AttemptTimeout(), TIMEOUT),
        (errors.Rejected(), TRANSIENT),
        (errors.BreakerOpen("open", retry_at=NOON), PERMANENT),
        (errors.KeyBusy("busy", key="k", retry_at=NOON + timedelta(seconds=3)), Fault("throttled", 3.0, sent=False)),
        (errors.KeyBusy("busy", key="k", retry_at=NOON - timedelta(seconds=3)), Fault("throttled", 0.0, sent=False)),
        (errors.KeyConflict("other request", key="k"), PERMANENT),
        (errors.KeyFailed("failed", key="k", error={}), PERMANENT),
        (errors.Dead("dead", dead_id="1", reason="spent"), PERMANENT),
        (errors.LeaseLost(), PERMANENT),
        (errors.Drift(), PERMANENT),
        (errors.MissingRight(), PERMANENT),
        (errors.SchemaMismatch("newer"), PERMANENT),
        (errors.Again(), TRANSIENT),
        (errors.Again(after=timedelta(seconds=2)), Fault("transient", 2.0)),
        (errors.Stop("no"), PERMANENT),
    ],
    ids=repr,
)
def test_redrive_errors_are_classified(error: Exception, fault: Fault) -> None:
    assert classify(error, now=NOON) == fault


def test_every_redrive_error_is_known() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    ours = [kind for kind in kinds if not issubclass(kind, Warning)]
    unknown = [kind for kind in ours if module._entry_of(kind) is UNKNOWN]
    assert unknown == [errors.RedriveError]


@pytest.mark.req("C-3")
def test_a_group_is_classified_by_its_worst_member() -> None:
    good: list[Exception] = [ConnectionResetError(), TimeoutError()]
    assert classify(ExceptionGroup("", good)) == Fault("timeout")
    assert classify(ExceptionGroup("", [*good, ValueError()])).kind == "unknown"
    assert classify(ExceptionGroup("", [*good, ValueError(), PermissionError()])).kind == "permanent"
    assert classify(ExceptionGroup("", [ExceptionGroup("", [ConnectionRefusedError()])])) == NEVER_SENT
    assert classify(ExceptionGroup("", [ConnectionRefusedError(), ConnectionResetError()])).sent


@pytest.mark.req("R-6")
def test_a_group_waits_for_its_slowest_member() -> None:
    busy = [errors.KeyBusy("", key="k", retry_at=NOON + timedelta(seconds=wait)) for wait in (1, 9, 4)]
    assert classify(ExceptionGroup("", busy), now=NOON) == Fault("throttled", 9.0, sent=False)


def test_a_cyclic_chain_of_causes_ends() -> None:
    error = OSError("a")
    other = OSError("b")
    error.__cause__, other.__cause__ = other, error
    assert classify(error) is UNKNOWN


def test_a_chain_of_ten_thousand_ends() -> None:
    error: Exception = ConnectionResetError()
    for _ in range(10_000):
        outer = OSError("around")
        outer.__cause__, error = error, outer
    assert classify(error) is UNKNOWN


class Unhashable(type):
    __hash__ = None  # type: ignore[assignment]  # the point of the test

    def __eq__(cls, other: object) -> bool:
        raise RuntimeError("not comparable")


class NoModule(type):
    @property
    def __module__(cls) -> str:  # type: ignore[override]  # the point of the test
        raise RuntimeError("no module")


@pytest.mark.parametrize("meta", [Unhashable, NoModule])
def test_classes_with_broken_metaclasses_are_unknown(meta: type) -> None:
    kind: Any = meta("Odd", (Exception,), {})
    assert classify(kind()) is UNKNOWN
    assert classify(kind()) is UNKNOWN


def test_a_class_created_at_run_time_is_not_kept_alive() -> None:
    known = len(module._ENTRIES)
    kept = [type(f"Fly{number}", (ConnectionError,), {}) for number in range(100)]
    assert all(classify(kind()) is TRANSIENT for kind in kept)
    seen = weakref.ref(kept[0])
    kept.clear()
    gc.collect()
    assert seen() is None
    assert len(module._ENTRIES) <= known
    assert len(module._TYPE_REFS) == len(module._ENTRIES)


def test_classify_imports_no_library_and_loads_its_registry_lazily() -> None:
    program = (
        "import sys; before = set(sys.modules); import redrive.core.classification.classify as c\n"
        "assert 'redrive.core.classification.known.registry' not in sys.modules\n"
        "c.classify(ValueError()); c.classify(OSError(5, 'x'))\n"
        "print(' '.join(name for name in sys.modules if name.partition('.')[0] in sys.argv[1:]))"
    )
    foreign = "httpx httpx2 requests urllib3 aiohttp grpc botocore azure google redis psycopg sqlalchemy openai".split()
    found = subprocess.run([sys.executable, "-c", program, *foreign], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""


def test_classifying_a_simple_error_allocates_nothing() -> None:
    error = ConnectionResetError()
    classify(error)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(1000):
        classify(error)
    made = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert made < 500
