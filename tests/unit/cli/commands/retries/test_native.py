"""`redrive layers --native`: a policy in the terms of a client."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.cells import cell_len

from redrive.native import CLIENTS
from tests.unit.cli.command import call, run


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "retry.toml").write_text("[retry]\nmax_attempts = 5\ntimeout = 60\n")
    (tmp_path / "many.toml").write_text("[retry]\nmax_attempts = 9\n")
    (tmp_path / "wrong.toml").write_text("[retry]\nmax_attempt = 5\n")
    (tmp_path / "none.toml").write_text("[other]\n")
    (tmp_path / "mine.py").write_text("from redrive import RetryPolicy\npolicy = RetryPolicy(max_attempts=2)\nother = 1\n")
    return tmp_path


@pytest.mark.req("R-10")
def test_a_policy_is_printed_in_the_terms_of_a_client() -> None:
    done = run("layers", "--native", "botocore", "retry.toml")
    assert (done.returncode, done.stderr) == (0, "")
    assert 'max_attempts  5       Config(retries={"total_max_attempts": 5, "mode": "standard"})' in done.stdout
    assert "timeout       1 min   no equivalent" in done.stdout or "timeout       60 s    no equivalent" in done.stdout
    assert "Retry-After is not obeyed." in done.stdout
    assert not any(line.endswith(" ") for line in done.stdout.splitlines())


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_as_json(client: str) -> None:
    data = json.loads(run("layers", "--native", client, "mine:policy", "--json").stdout)
    assert (data["client"], data["policy"]["max_attempts"]) == (client, 2)
    assert set(data["dropped"]) == {field for field, word in data["words"].items() if word is None} - {"timeout"}
    assert len(data["waits"]) == len(data["asked"]) == 1


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_output_fits_the_terminal(client: str, width: int) -> None:
    _, printed = call("layers", "--native", client, width=width)
    assert "Fields" in printed
    assert all(cell_len(line) <= width for line in printed.splitlines())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("botocor",), "no mapping for 'botocor' (did you mean 'botocore'?); known: tenacity, botocore"),
        (("grpc", "many.toml"), "grpc makes 5 attempts at most, in silence; max_attempts=9 cannot be carried over"),
        (("grpc", "wrong.toml"), "wrong.toml: unknown key 'max_attempt' in a retry policy; use one of: max_attempts"),
        (("grpc", "none.toml"), "none.toml: no [retry] table"),
        (("grpc", "missing.toml"), "missing.toml cannot be read: No such file or directory"),
        (("grpc", "mine:other"), "mine:other must be a RetryPolicy, not int"),
        (("grpc", "mine"), "mine: no such file; pass a TOML file with a [retry] table, or module:object"),
    ],
)
def test_bad_input_is_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    done = run("layers", "--native", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
