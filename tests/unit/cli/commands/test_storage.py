"""`redrive storage`: output, errors and exit codes."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.cells import cell_len

from redrive.testing.storage import sample_bytes
from tests.unit.cli.command import PROGRAM, call, on_terminal, run

TOML = """
[backends.disk]
type = "local"
options = {{ root = "{folder}/disk" }}

[stores.raw]
backend = "disk"
root_path = "raw"

[stores.other]
type = "local"
options = {{ root = "{folder}/other" }}

[stores.away]
type = "graph"
options = {{ drive = "me/drive", base_url = "http://127.0.0.1:1", token = {{ env = "AWAY_PASSWORD" }} }}
retry = {{ max_attempts = 1 }}
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three stores: two folders, and an offline server."""
    file = tmp_path / "storage.toml"
    file.write_text(TOML.format(folder=tmp_path))
    monkeypatch.setenv("REDRIVE_STORAGE", str(file))
    monkeypatch.setenv("AWAY_PASSWORD", "hunter2")
    for path, data in (
        ("a.csv", b"a,b\n"),
        ("2026/01.csv", b"1\n"),
        ("2026/02.csv", b"22\n"),
        ("bin", b"\xff\x00"),
    ):
        (tmp_path / "disk" / "raw" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "disk" / "raw" / path).write_bytes(data)
    return file


@pytest.mark.usefixtures("config")
def test_ls_lists_stores_folders_and_files() -> None:
    done = run("storage", "ls", "raw")
    assert done.returncode == 0, done.stderr
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["path", "2026/", "a.csv", "bin"]
    assert "hunter2" not in run("storage", "ls").stdout + run("storage", "ls", "--json").stdout
    everything = json.loads(run("storage", "ls", "raw:2026", "--recursive", "--json").stdout)
    assert [(each["path"], each["size"]) for each in everything["files"]] == [("2026/01.csv", 2), ("2026/02.csv", 3)]
    assert run("storage", "ls", "raw:nothing/here").stdout == "No files.\n"
    stores = json.loads(run("storage", "ls", "--json").stdout)
    assert [each["store"] for each in stores] == ["raw", "other", "away"]
    for width in (60, 120):
        _, shown = call("storage", "ls", "raw", "-r", width=width)
        assert max(cell_len(line) for line in shown.splitlines()) <= width


@pytest.mark.usefixtures("config")
def test_cat_prints_a_file() -> None:
    program = [sys.executable, "-c", PROGRAM, "storage", "cat", "raw:bin"]
    assert subprocess.run(program, capture_output=True).stdout == b"\xff\x00"
    assert run("storage", "cat", "raw:a.csv").stdout == "a,b\n"
    assert json.loads(run("storage", "cat", "raw:a.csv", "--json").stdout) == {"path": "a.csv", "size": 4, "text": "a,b\n"}
    found = json.loads(run("storage", "cat", "raw:bin", "--json").stdout)
    assert base64.b64decode(found["base64"]) == b"\xff\x00"


def test_put_writes_a_file(config: Path, tmp_path: Path) -> None:
    (tmp_path / "here.bin").write_bytes(sample_bytes(3_000_000))
    done = run("storage", "put", str(tmp_path / "here.bin"), "other:x/y.bin")
    assert (done.returncode, done.stdout) == (0, "other:x/y.bin: 3,000,000 bytes written\n")
    assert (tmp_path / "other" / "x" / "y.bin").read_bytes() == sample_bytes(3_000_000)
    again = run("storage", "put", str(tmp_path / "here.bin"), "other:x/y.bin", "--if-absent")
    assert (again.returncode, again.stderr) == (1, "redrive: other: file 'x/y.bin' already exists\n")
    assert json.loads(run("storage", "put", str(tmp_path / "here.bin"), "other:", "--json").stdout)[0]["path"] == "other:here.bin"
    program = [sys.executable, "-c", PROGRAM, "storage", "put", "-", "other:piped"]
    assert subprocess.run(program, input=b"from a pipe", capture_output=True).returncode == 0
    assert (tmp_path / "other" / "piped").read_bytes() == b"from a pipe"


@pytest.mark.usefixtures("config")
def test_cp_copies_between_stores(tmp_path: Path) -> None:
    assert run("storage", "cp", "raw:a.csv", "other:b.csv").stdout == "other:b.csv: 4 bytes written\n"
    assert run("storage", "cp", "raw:a.csv", "other:in/").stdout == "other:in/a.csv: 4 bytes written\n"
    assert run("storage", "cp", "raw:a.csv", "other:").stdout == "other:a.csv: 4 bytes written\n"
    done = run("storage", "cp", "-r", "raw:2026", "other:year")
    assert (done.returncode, done.stdout) == (0, "2 files: 5 bytes written\n")
    assert (tmp_path / "other" / "year" / "02.csv").read_bytes() == b"22\n"
    assert run("storage", "cp", "-r", "raw:", "other:all", "--json").returncode == 0
    assert (tmp_path / "other" / "all" / "2026" / "01.csv").exists()
    alone = run("storage", "cp", "raw:a.csv", "other:a.csv", "--if-absent")
    assert (alone.returncode, alone.stderr) == (1, "redrive: other: file 'a.csv' already exists\n")
    assert run("storage", "cp", "-r", "raw:nothing", "other:x").returncode == 1


@pytest.mark.usefixtures("config")
def test_an_interrupted_copy_is_continued(tmp_path: Path) -> None:
    """One of the targets is a folder, so the copy ends. After the fix, the rest is copied and existing files are kept."""
    (tmp_path / "other" / "year" / "02.csv").mkdir(parents=True)
    done = run("storage", "cp", "-r", "raw:2026", "other:year")
    assert (done.returncode, done.stdout) == (2, "")
    said = done.stderr.splitlines()
    assert said[0] == "redrive: other: 'year/02.csv' is a folder"
    assert said[1].endswith("of 2 files copied; --recursive --if-absent continues with the others")
    (tmp_path / "other" / "year" / "02.csv").rmdir()
    (tmp_path / "other" / "year" / "01.csv").write_bytes(b"mine")
    done = run("storage", "cp", "-r", "raw:2026", "other:year", "--if-absent")
    assert (done.returncode, done.stdout) == (0, "1 file: 3 bytes written; 1 existed already\n")
    assert (tmp_path / "other" / "year" / "01.csv").read_bytes() == b"mine"
    found = json.loads(run("storage", "cp", "-r", "raw:2026", "other:year", "--if-absent", "--json").stdout)
    assert [each["copied"] for each in found] == [False, False]


@pytest.mark.usefixtures("config")
def test_a_long_copy_shows_its_progress(tmp_path: Path) -> None:
    (tmp_path / "disk" / "raw" / "large").write_bytes(bytes(40_000_000))
    status, shown = on_terminal("storage", "cp", "raw:large", "other:large")
    assert status == 0
    assert "40.0 MB" in shown
    assert "other:large: 40,000,000 bytes written" in shown
    status, shown = on_terminal("storage", "put", str(tmp_path / "disk" / "raw" / "large"), "other:again")
    assert "40.0 MB" in shown
    assert run("storage", "cp", "raw:large", "other:large").stderr == ""


@pytest.mark.usefixtures("config")
def test_an_interrupted_copy_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_bytes(b"old")
    program = [sys.executable, "-c", PROGRAM, "storage", "put", "-", "other:file"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(bytes(3_000_000))
        process.stdin.flush()
        deadline = time.monotonic() + 60
        while len(list((tmp_path / "other").iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said == b"redrive: interrupted; completed files stay, and no file is incomplete\n"
    assert [each.name for each in (tmp_path / "other").iterdir()] == ["file"]
    assert (tmp_path / "other" / "file").read_bytes() == b"old"


@pytest.mark.usefixtures("config")
def test_check_reports_every_store() -> None:
    done = run("storage", "check", "raw", "other", "--write")
    assert done.returncode == 0, done.stdout
    assert "raw (local): ok" in done.stdout
    assert "exclusive create" in done.stdout
    done = run("storage", "check")
    assert done.returncode == 1
    assert "away (graph): failed" in done.stdout
    assert "cannot be reached" in done.stdout
    found = json.loads(run("storage", "check", "--json").stdout)
    assert [each["problem"] is None for each in found] == [True, True, False]
    assert "hunter2" not in done.stdout + done.stderr
    assert json.loads(run("storage", "ls", "raw", "-r", "--json").stdout)["files"][-1]["path"] == "bin"  # no file is left


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("cat", "raw:missing"), 1, "disk: file 'raw/missing' not found"),
        (("cat", "raw:../a"), 2, "invalid path '../a'"),
        (("cat", "rwa:a.csv"), 2, "unknown store 'rwa' (did you mean 'raw'?); use one of: raw, other, away"),
        (("cat", "a.csv"), 2, "A file of a store is written STORE:PATH"),
        (("cat", "raw:"), 2, "invalid path '': it is empty"),
        (("cp", "raw:missing", "other:x"), 1, "not found"),
        (("put", "/no/such/file", "raw:x"), 2, "/no/such/file: cannot be read (No such file or directory)"),
        (("put", "/tmp", "raw:x"), 2, "/tmp: cannot be read (Is a directory)"),
        (("ls", "away"), 3, "cannot be reached"),
        (("ls", "raw", "--config", "/no/such.toml"), 2, "file /no/such.toml not found"),
        (("ls", "raw", "--config", "no_module_of_that_name:app"), 2, "module no_module_of_that_name cannot be imported"),
        (("check", "nothing"), 2, "unknown store 'nothing'"),
    ],
)
def test_invalid_storage_arguments_are_rejected(arguments: tuple[str, ...], status: int, message: str) -> None:
    done = run("storage", *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[stores.x]\ntype = 'loca'", "backend 'x': unknown type of backend 'loca' (did you mean 'local'?)"),
        ("[stores.x]\ntype = 'local'\noptions = { rot = '.' }", "unknown option 'rot' (did you mean 'root'?)"),
        ("[stores.x]\ntype = 'sftp'\noptions = { host = 'x' }\nretry = { tries = 3 }", "unknown key 'tries' in a retry policy"),
        ("[stores", "is not valid TOML"),
    ],
)
def test_an_invalid_configuration_is_rejected(tmp_path: Path, toml: str, message: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(toml)
    done = run("storage", "ls", "--config", str(file))
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.usefixtures("config")
def test_an_unset_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWAY_PASSWORD")
    done = run("storage", "ls", "away")
    assert done.returncode == 2
    assert "needs the environment variable AWAY_PASSWORD; set it" in done.stderr
    checked = run("storage", "check")
    assert checked.returncode == 1
    assert "needs the environment variable AWAY_PASSWORD; set it" in checked.stdout
    assert checked.stdout.count("): ok") == 2  # the others are still checked


def test_a_missing_configuration_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDRIVE_STORAGE", raising=False)
    done = run("storage", "ls")
    assert done.returncode == 2
    assert "file storage.toml not found (pass --config, or set REDRIVE_STORAGE)" in done.stderr


def test_stores_of_an_app_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = "from redrive import App\napp = App(stores={'raw': {'type': 'local', 'options': {'root': 'files'}}})\n"
    (tmp_path / "shop.py").write_text(program)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").write_bytes(b"x")
    assert run("storage", "put", "here", "raw:there", "--config", "shop:app").returncode == 0
    assert (tmp_path / "files" / "there").read_bytes() == b"x"
