"""`redrive layers`: exit codes, widths, colours and JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from redrive.cli.commands.retries import layers
from tests.unit.cli.command import call, on_terminal, run

FINE = """
[[layer]]
name = "api"
timeout = 30
attempt_timeout = 20

[[layer]]
name = "crm"
timeout = 15
attempt_timeout = 4
"""
MULTIPLIED = """
[[layer]]
name = "worker.handle_everything_that_comes"
by = "tenacity"
max_attempts = 5

[[layer]]
name = "crm"
nested = "allow"
max_attempts = 4
backoff = [5, 10, 60]
timeout = 20

[[layer]]
name = "channel"
by = "grpc"
on = ["UNAVAILABLE", "RESOURCE_EXHAUSTED"]
max_attempts = 60
backoff_base = 0.1
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fine.toml").write_text(FINE)
    (tmp_path / "multiplied.toml").write_text(MULTIPLIED)
    return tmp_path


@pytest.mark.req("C-7")
def test_layers_prints_the_worst_case() -> None:
    done = run("layers", "fine.toml")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Worst case: 3 attempts in total for one call, in at most 13.2 s.\n")
    assert "transient, throttled, timeout  crm" in done.stdout
    assert "permanent, unknown             none" in done.stdout
    assert "api never retries" in done.stdout
    assert not any(line.endswith(" ") for line in done.stdout.splitlines())


@pytest.mark.req("C-7")
def test_multiplied_attempts_are_exit_code_1() -> None:
    done = run("layers", "multiplied.toml")
    assert (done.returncode, done.stderr) == (1, "")
    assert "✗ crm retries errors that channel already retried (UNAVAILABLE" in done.stdout
    assert "5 × 180 = 900 attempts" in " ".join(done.stdout.split())
    assert "0 no layer multiplies attempts 1 a layer retries errors" in " ".join(run("layers", "--help").stdout.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("layers", "missing.toml"), "redrive: missing.toml cannot be read: No such file or directory\n"),
        (("layers", "nowhere:stack"), "redrive: module nowhere cannot be imported"),
        (("layers",), "SOURCE: missing"),
        (("layers", "fine.toml", "--colour"), "No such option"),
    ],
)
def test_bad_input_is_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_json_is_one_document() -> None:
    for source, status in (("fine.toml", 0), ("multiplied.toml", 1)):
        done = run("layers", source, "--json")
        data = json.loads(done.stdout)
        assert done.returncode == status
        assert (data["source"], data["multiplies"]) == (source, bool(status))
        assert data["attempts"] == (900 if status else 3)


@pytest.mark.parametrize("source", ["fine.toml", "multiplied.toml"])
@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_output_fits_the_terminal(source: str, width: int) -> None:
    _, printed = call("layers", source, width=width)
    assert max(cell_len(line) for line in printed.splitlines()) <= width
    assert printed.count("┃") > 5
    assert "Traceback" not in printed


def test_colours_only_on_a_terminal() -> None:
    assert "\x1b[" not in run("layers", "multiplied.toml").stdout
    assert "\x1b[31m" in on_terminal("layers", "multiplied.toml", NO_COLOR="")[1]
    _, plain = on_terminal("layers", "multiplied.toml")
    assert "retries errors that" in plain
    assert not any(f"\x1b[{colour}m" in plain for colour in ("31", "1;31", "32", "1;32", "33", "34"))


def test_an_ascii_terminal_is_supported() -> None:
    done = run("layers", "multiplied.toml", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (1, "")


def test_an_internal_error_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from redrive.cli import main

    def broken(source: str) -> None:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(layers, "read_layers", broken)
    monkeypatch.setattr(sys, "argv", ["redrive", "layers", "fine.toml"])
    monkeypatch.delenv("REDRIVE_DEBUG", raising=False)
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 70
    assert capsys.readouterr().err == "redrive: unexpected RuntimeError: no such luck; set REDRIVE_DEBUG=1 for a traceback\n"
    monkeypatch.setenv("REDRIVE_DEBUG", "1")
    with pytest.raises(RuntimeError, match="no such luck"):
        main()


SHOP = """
from redrive import App, retry
app = App("sqlite:///never.db", stores={"raw": {"type": "memory"}})
none = App("sqlite:///never.db")

@app.command("mail.send")
@retry(max_attempts=3)
def send(to: str) -> None: ...

@app.command("mail.tidy", retry=retry(max_attempts=2, backoff_base=60, backoff_max=60, jitter=0))
def tidy() -> None: ...

@app.command("mail.archive", retry=retry(on=KeyError, max_attempts=3, timeout=20))
def archive() -> None: ...

@app.dataset("crm", "orders", raw="raw", checks=[], customers=["acme"])
def orders(partition, out): ...
"""


def test_an_app_is_shown_by_job_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "layered_shop.py").write_text(SHOP, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    status, printed = call("layers", "layered_shop:app", width=120)
    assert status == 0, printed
    assert [line for line in printed.splitlines() if line and not line.startswith(" ")] == [
        "crm/orders",
        "mail.archive",
        "mail.send",
        "mail.tidy",
        "Retries of clients that a function calls are not included. To see those of a client, pass it: module:client.",
    ]
    assert "in process  one attempt, as declared by the app" in printed
    assert "by workers  3 attempts, after 5.5 s, 33 s at most; no time limit" in printed
    assert "by workers  6 attempts, after 5.5 min, 33 min, 132 min, 132 min, 132 min at most; no time limit" in printed
    assert "in process  Worst case: 3 attempts in total for one call" in printed
    assert "by workers  2 attempts, after 60 s at most" in printed
    found = json.loads(call("layers", "layered_shop:app", "--json")[1])
    assert [(one["kind"], one["inside"] is None) for one in found["kinds"]] == [
        ("crm/orders", True), ("mail.archive", True), ("mail.send", False), ("mail.tidy", True),
    ]  # fmt: skip
    status, printed = call("layers", "layered_shop:none")
    assert (status, "is registered in this app" in printed) == (2, True)
    assert not (tmp_path / "never.db").exists()
