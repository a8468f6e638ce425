"""Settings: one place, one order, and no unknown names."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive import App
from redrive.settings import HIDDEN, KEYS, settings


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for key in KEYS:
        monkeypatch.delenv(key.variable, raising=False)
    monkeypatch.delenv("REDRIVE_CONFIG", raising=False)
    return tmp_path


def write(text: str, name: str = "redrive.toml") -> None:
    Path(name).write_text(text)


def test_settings_have_defaults() -> None:
    found = settings({})
    assert (found.app, found.ledger, found.file) == (None, None, None)
    assert (found.worker.threads, found.worker.drain, found.worker.only) == (8, 30.0, ())
    assert (found.console.host, found.console.read_only, found.metrics.port) == ("127.0.0.1", False, None)


def test_the_environment_precedes_the_file() -> None:
    write('app = "shop:app"\n[worker]\nthreads = 4\nonly = ["a"]\ndrain = 5\n[console]\nread_only = true\n')
    found = settings({"REDRIVE_WORKER_THREADS": "16", "REDRIVE_METRICS_PORT": "9464", "REDRIVE_WORKER_ONLY": "b, c"})
    assert (found.app, found.worker.threads, found.worker.only, found.worker.drain) == ("shop:app", 16, ("b", "c"), 5)
    assert (found.metrics.port, found.console.read_only) == (9464, True)
    assert found.set_by["worker.threads"] == "REDRIVE_WORKER_THREADS"
    assert found.set_by["app"] == "redrive.toml"


def test_another_file_can_be_named(tmp_path: Path) -> None:
    write('app = "here:app"')
    write('app = "there:app"', "other.toml")
    assert settings({"REDRIVE_CONFIG": "other.toml"}).app == "there:app"
    with pytest.raises(ValueError, match=r"REDRIVE_CONFIG: no file 'none.toml'; name an existing file"):
        settings({"REDRIVE_CONFIG": "none.toml"})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('ap = "x"', r"redrive.toml: unknown key 'ap': did you mean 'app'\?"),
        ("[worker]\nthreds = 3", r"unknown key 'worker.threds': did you mean 'worker.threads'\?"),
        ("[wroker]\nthreads = 3", r"unknown key 'wroker': did you mean 'worker'\?"),
        ("zzzzzzzz = 1", r"unknown key 'zzzzzzzz'; known: app, ledger, "),
        ("worker = 3", r"worker must be a table; write \[worker\]"),
        ('[worker]\nthreads = "many"', r"worker.threads must be a number, not 'many'"),
        ("[worker]\nthreads = 0", r"worker.threads must be from 1 to 10000, not 0"),
        ("[worker]\nthreads = true", r"worker.threads must be a number, not True"),
        ("[metrics]\nport = 70000", r"metrics.port must be from 0 to 65535"),
        ("[worker]\nonly = [1]", r"worker.only must be a list of strings"),
        ("[console]\nread_only = 1", r"console.read_only must be true or false, not int"),
        ("[console]\npassword = 12345678", r"console.password must be text, not int$"),
        ('ledger = ""', r"ledger must not be empty"),
        ("app = ", r"redrive.toml is not valid TOML"),
    ],
)
def test_invalid_settings_in_a_file_are_named(text: str, says: str) -> None:
    write(text)
    with pytest.raises(ValueError, match=says):
        settings({})


@pytest.mark.parametrize(
    ("variable", "text", "says"),
    [
        ("REDRIVE_WORKER_THREDS", "3", r"unknown variable REDRIVE_WORKER_THREDS: did you mean 'REDRIVE_WORKER_THREADS'\?"),
        ("REDRIVE_WORKER_THREADS", "many", r"REDRIVE_WORKER_THREADS must be a number, not 'many'"),
        ("REDRIVE_CONSOLE_READ_ONLY", "perhaps", r"REDRIVE_CONSOLE_READ_ONLY must be true or false"),
    ],
)
def test_invalid_settings_in_the_environment_are_named(variable: str, text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        settings({variable: text})


def test_variables_set_by_kubernetes_are_ignored() -> None:
    made_up = {
        "REDRIVE_CONSOLE_PORT": "tcp://10.0.0.1:8321", "REDRIVE_CONSOLE_SERVICE_HOST": "10.0.0.1",
        "REDRIVE_CONSOLE_SERVICE_PORT": "8321", "REDRIVE_CONSOLE_PORT_8321_TCP": "tcp://10.0.0.1:8321",
    }  # fmt: skip
    assert settings(made_up).console.port == 8321


def test_secrets_are_redacted_in_visible_values() -> None:
    found = settings({"REDRIVE_CONSOLE_PASSWORD": "correct horse"})
    assert found.console.password == "correct horse"
    assert found.visible_values()["console.password"] == HIDDEN
    assert "correct" not in str(found.visible_values())


def test_an_app_without_an_address_uses_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert App().url == "sqlite:///redrive.db"
    write('ledger = "sqlite:///other.db"')
    assert App().url == "sqlite:///other.db"
    monkeypatch.setenv("REDRIVE_LEDGER", "sqlite:///third.db")
    assert App().url == "sqlite:///third.db"
    assert App("sqlite:///fourth.db").url == "sqlite:///fourth.db"
