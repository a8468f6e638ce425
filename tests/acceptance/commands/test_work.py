"""`redrive work` as a process: signals, with and without a terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from redrive.ledger import Ledger, NewJob, open_ledger
from tests.servers.relay import Relay
from tests.unit.cli.command import LEFT_OUT, PROGRAM, run

APP = """
import os, time
from pathlib import Path
from redrive import App

app = App(os.environ["SHOP_LEDGER"], include=["shop_mail"])

@app.command("slow")
def slow(n: int) -> int:
    Path(f"began-{n}").touch()
    time.sleep(float(os.environ.get("SHOP_SLOW", "1")))
    return n

@app.command("nightly", cron="0 2 * * *", timezone="Europe/Prague")
def nightly() -> None: ...
"""
MAIL = """
from shop import app

@app.command("mail.send", key="shop:{user}:{n}:mail:v1")
def send(n: int, user: str) -> str:
    return f"mail-{n}"
"""
ASYNC = """
import asyncio
from pathlib import Path
from shop import app

@app.command("mail.send", key="shop::{n}:mail:v1")
def send(n: int) -> str:
    return f"mail-{n}"

@app.command("chain")
async def chain() -> None:
    await send.asubmit(1)
    Path("chaining").touch()
    while not Path("silent").exists():
        await asyncio.sleep(0.01)
    await send.asubmit(2)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "shop_mail.py").write_text(MAIL)
    return tmp_path


@pytest.fixture
def ledger(folder: Path) -> Iterator[Ledger]:
    with open_ledger(f"sqlite:///{folder / 'shop.db'}", migrate=True) as opened:
        yield opened


def environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    return kept | {"SHOP_LEDGER": f"sqlite:///{folder / 'shop.db'}", "PYTHONUNBUFFERED": "1", "COLUMNS": "120", **more}


@contextmanager
def working(folder: Path, *options: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-W", "error", "-c", PROGRAM, "work", "shop:app", *options]
    process = subprocess.Popen(
        command, cwd=folder, env=environment(folder, **more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def submit(ledger: Ledger, kind: str, *payloads: str) -> list[int]:
    jobs = [NewJob(kind, f"k-{kind}-{at}", payload.encode()) for at, payload in enumerate(payloads)]
    return [one.id for one in ledger.submit_many(jobs)]


@pytest.mark.req("W-6")
def test_work_drains_on_sigterm_and_logs_it(folder: Path, ledger: Ledger) -> None:
    submit(ledger, "mail.send", '{"n":1,"user":"ann"}', '{"n":2,"user":"ann"}')
    submit(ledger, "old.name", "{}")
    with working(folder, "--name", "w1", "--threads", "3") as process:
        until(lambda: len(ledger.jobs("done")) == 2)
        submit(ledger, "slow", '{"n":1}')
        until((folder / "began-1").exists)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert err == ""
    lines = out.splitlines()
    name, on, rest = lines[0].partition(" on ")
    assert name.startswith("Worker w1-")
    assert on + rest == f" on sqlite:///{folder}/shop.db: 3 commands, mail.send, nightly, slow; 3 threads."
    assert lines[1] == "Schedule: nightly `0 2 * * * Europe/Prague`."
    assert lines[2] == "Not registered here: old.name, 1 job queued; kept for other workers."
    assert lines[-1].startswith("ended: 3 done")
    assert len(ledger.jobs("done")) == 3, "what was running has ended"
    assert [worker.ended_at is not None for worker in ledger.workers()] == [True]


@pytest.mark.req("W-6")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_stops_immediately_and_releases_running_jobs(
    folder: Path, ledger: Ledger, number: signal.Signals
) -> None:
    (job,) = submit(ledger, "slow", '{"n":1}')
    with working(folder, SHOP_SLOW="600") as process:
        until((folder / "began-1").exists)
        process.send_signal(number)
        time.sleep(0.5)
        assert process.poll() is None, "it drains"
        began = time.monotonic()
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
        assert time.monotonic() - began < 50
    assert process.returncode == 128 + number
    assert err == ""
    row = ledger.get(job)
    assert row is not None
    assert (row.state, row.shown, row.attempts, row.crashes) == ("ready", "retry_wait", 0, 0), "uncharged"


def test_failures_are_printed_if_logging_is_not_configured(folder: Path, ledger: Ledger) -> None:
    (folder / "shop_mail.py").write_text(MAIL.replace('return f"mail-{n}"', 'raise Stop(f"no address {n}")'))
    (folder / "shop_mail.py").write_text("from redrive import Stop\n" + (folder / "shop_mail.py").read_text())
    submit(ledger, "mail.send", '{"n":1,"user":"ann"}', '{"n":2,"user":"ann"}')
    for options in ((), ("--json",)):
        with working(folder, *options) as process:
            until(lambda: len(ledger.dead_letters(status="pending")) == 2)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        failed = [line for line in out.splitlines() if "no address" in line]
        assert len(failed) == 2, out
        if options:
            assert {json.loads(line)["event"] for line in failed} == {"failure"}
        else:
            assert failed[0].startswith("mail.send job 1: attempt 1 of 5 failed (Stop: no address"), failed
        ledger.replay([letter.id for letter in ledger.dead_letters()], actor="ann", because="once more")


def test_work_prints_json_lines(folder: Path, ledger: Ledger) -> None:
    submit(ledger, "mail.send", '{"n":1,"user":"ann"}')
    with working(folder, "--json", "--only", "mail.send", "--name", "w2") as process:
        until(lambda: len(ledger.jobs("done")) == 1)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    started, *_, ended = map(json.loads, out.splitlines())
    assert (started["event"], started["kinds"], started["scheduled"]) == ("started", ["mail.send"], {})
    assert (ended["event"], ended["state"], ended["done"]) == ("ended", "ended", 1)


def test_work_shows_a_progress_line_on_a_terminal(folder: Path, ledger: Ledger) -> None:
    submit(ledger, "mail.send", *(f'{{"n":{n},"user":"ann"}}' for n in range(5)))
    main, other = pty.openpty()
    env = environment(folder, TERM="xterm-256color", NO_COLOR="1")
    command = [sys.executable, "-c", PROGRAM, "work", "shop:app"]
    with subprocess.Popen(command, cwd=folder, env=env, stdin=other, stdout=other, stderr=other) as process:
        os.close(other)
        printed = b""
        try:
            while b"working: 0 running, 5 done" not in printed:
                printed += os.read(main, 65536)
            process.send_signal(signal.SIGINT)
            while block := os.read(main, 65536):
                printed += block
        except OSError:
            pass  # the terminal closes with the program
    os.close(main)
    assert process.returncode == 0
    assert b"working: 0 running, 5 done" in printed
    assert b"ended: 5 done" in printed
    assert b"Traceback" not in printed


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["shop"], 2, "'shop' is not an app; use module:app, such as shop.work:app"),
        (["nowhere:app"], 2, "module nowhere cannot be imported: not found in"),
        (["shop:ap"], 2, "shop:ap: no attribute 'ap' (did you mean 'app'?)"),
        (["shop:time"], 2, "shop:time must be an App, not module"),
        (["shop:app", "--only", "mail.sned"], 2, "'mail.sned' is not registered; registered: mail.send, nightly, slow"),
        (["shop:app", "--threads", "0"], 2, "--threads"),
        (["empty:app"], 2, "are registered; list their modules"),
        (["broken:app"], 2, "empty_include_that_is_not_there"),
        (["twice:app"], 2, "command 'a' is already registered"),
    ],
)
def test_invalid_arguments_of_work_are_rejected(
    folder: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, arguments: list[str], status: int, says: str
) -> None:
    (folder / "empty.py").write_text("from redrive import App\napp = App('sqlite://')\n")
    (folder / "broken.py").write_text(
        "from redrive import App\napp = App('sqlite://', include=['empty_include_that_is_not_there'])\n"
    )
    command_a = "@app.command('a')\ndef {}() -> None: ...\n"
    (folder / "twice.py").write_text(
        f"from redrive import App\napp = App('sqlite://')\n{command_a.format('a')}{command_a.format('b')}"
    )
    monkeypatch.chdir(folder)
    done = run("work", *arguments, **environment(folder))
    assert done.returncode == status, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_postgres_schema_is_reported(folder: Path, postgres_db: str) -> None:
    """Nothing is created. The message names the command to run, and shows no password."""
    address = (
        postgres_db.replace("postgresql://", f"postgresql://x:{quote('s3cret')}@", 1) if "@" not in postgres_db else postgres_db
    )
    command = [sys.executable, "-W", "error", "-c", PROGRAM, "work", "shop:app"]
    done = subprocess.run(
        command, cwd=folder, env=environment(folder, SHOP_LEDGER=address), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 3, done.stderr
    assert "for a new ledger: `redrive ledger migrate --ledger" in done.stderr
    assert "s3cret" not in done.stderr
    assert "Traceback" not in done.stderr


def test_work_exits_with_3_if_its_ledger_file_is_removed(folder: Path) -> None:
    open_ledger(f"sqlite:///{folder / 'shop.db'}", migrate=True).close()
    with working(folder, "--json") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "started"
        for file in folder.glob("shop.db*"):
            file.unlink()
        _, err = process.communicate(timeout=60)
    assert process.returncode == 3, err
    assert "was removed or moved while in use" in err


def test_a_removed_ledger_file_is_reported_once_with_the_recovery(folder: Path) -> None:
    file = folder / "shop.db"
    open_ledger(f"sqlite:///{file}", migrate=True).close()
    with working(folder) as process:
        assert process.stdout is not None
        assert "Worker" in process.stdout.readline()
        file.unlink()
        out, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert (out + err).count("is missing, but") == 1, out + err
    assert "without a backup its jobs are lost" in err
    assert "lease" not in out + err
    listed = run("jobs", "list", "--ledger", f"sqlite:///{file}")
    assert "is missing, but" in listed.stderr
    assert "ledger migrate" not in listed.stderr


@pytest.mark.req("W-6")
def test_sigterm_ends_work_while_the_database_is_silent(folder: Path, postgres_db: str) -> None:
    (folder / "shop_mail.py").write_text(ASYNC)
    open_ledger(postgres_db, migrate=True).close()
    parts = urlsplit(postgres_db)
    assert parts.port is not None
    with Relay(parts.port) as relay, open_ledger(postgres_db) as ledger:
        through = parts._replace(netloc=f"{parts.username}@127.0.0.1:{relay.port}").geturl()
        with working(folder, "--drain", "1", SHOP_LEDGER=through) as process:
            submit(ledger, "chain", "{}")
            until((folder / "chaining").exists)
            relay.hold()
            (folder / "silent").touch()
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=30)  # a single statement may take 35 s
        relay.go_on()
    assert process.returncode == 3
    assert "not all results were stored" in err
