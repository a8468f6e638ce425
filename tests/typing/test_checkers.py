"""Type checkers on the programs beside this file: valid ones pass, and misuse is rejected.

A line that a checker must reject has its `# type: ignore[code]` (mypy) and `# pyright: ignore[rule]`. An unused ignore is an
error in both. Each checker runs once over all files, because it is slow to start.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAMS = sorted(path for path in HERE.glob("*.py") if path.name != "__init__.py" and not path.name.startswith("test_"))
# One-line programs with this project's settings: the checkers, and whether they accept the line.
LINES = {
    "x: int = 1": {"mypy": True, "pyright": True},
    "x: int = ''": {"mypy": False, "pyright": False},
    "x: int = ''  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]": {"mypy": True, "pyright": True},
    "x: int = ''  # type: ignore[assignment]": {"pyright": False},
    "x: int = 1  # type: ignore[assignment]": {"mypy": False},
    "x: int = 1  # pyright: ignore[reportAssignmentType]": {"pyright": False},
}

Said = dict[Path, list[str]]
"""Problems by file."""


def mypy(paths: list[Path]) -> Said:
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--show-absolute-path", *map(str, paths)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    said: Said = {}
    for line in done.stdout.splitlines():
        found = re.match(r"(?P<path>.+?\.py):\d+: (?P<text>.*)", line)
        assert found, done.stdout
        said.setdefault(Path(found["path"]), []).append(line)
    return said


def pyright(paths: list[Path]) -> Said:
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", *map(str, paths)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["summary"]["filesAnalyzed"] >= len(paths), done.stdout
    said: Said = {}
    for each in told["generalDiagnostics"]:
        if each["severity"] == "error":
            said.setdefault(Path(each["file"]), []).append(f"{each['range']['start']['line'] + 1}: {each['message']}")
    return said


CHECKERS: dict[str, Callable[[list[Path]], Said]] = {"mypy": mypy, "pyright": pyright}


@pytest.fixture(scope="module", params=CHECKERS)
def checker_output(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Path], Said]:
    """A checker's name, the files of the lines, and its output for these and for all programs."""
    folder = tmp_path_factory.mktemp("lines").resolve()
    lines = {line: folder / f"line_{number}.py" for number, line in enumerate(LINES)}
    for line, path in lines.items():
        path.write_text(f"{line}\n# {path}\n")  # otherwise mypy reports cached results of the same lines in another folder
    return request.param, lines, CHECKERS[request.param]([*PROGRAMS, *lines.values()])


def test_valid_programs_pass_the_type_checkers(checker_output: tuple[str, dict[str, Path], Said]) -> None:
    _, lines, said = checker_output
    assert PROGRAMS
    assert {path: wrong for path, wrong in said.items() if path not in lines.values()} == {}


@pytest.mark.parametrize("line", LINES)
def test_type_checkers_reject_misuse(checker_output: tuple[str, dict[str, Path], Said], line: str) -> None:
    name, lines, said = checker_output
    if name in LINES[line]:
        assert (lines[line] not in said) is LINES[line][name]
