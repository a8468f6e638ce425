"""What type checkers say of the programs beside this file: right ones pass, and misuse is refused.

A line that a checker must refuse carries its `# type: ignore[code]` (mypy) and `# pyright: ignore[rule]`: an ignore
that nothing calls for is itself an error, in both.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAMS = sorted(path for path in HERE.glob("*.py") if path.name != "__init__.py" and not path.name.startswith("test_"))

MYPY = [sys.executable, "-m", "mypy"]
PYRIGHT = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]
CHECKERS = pytest.mark.parametrize("checker", [MYPY, PYRIGHT], ids=["mypy", "pyright"])


def check(checker: list[str], *paths: Path) -> subprocess.CompletedProcess[str]:
    command = [*checker, *(str(path) for path in paths)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@CHECKERS
def test_the_programs(checker: list[str]) -> None:
    if PROGRAMS:
        done = check(checker, *PROGRAMS)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("checker", "line", "right"),
    [
        (MYPY, "x: int = 1", True),
        (MYPY, "x: int = ''", False),
        (MYPY, "x: int = ''  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]", True),
        (MYPY, "x: int = 1  # type: ignore[assignment]", False),
        (PYRIGHT, "x: int = 1", True),
        (PYRIGHT, "x: int = ''", False),
        (PYRIGHT, "x: int = ''  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]", True),
        (PYRIGHT, "x: int = ''  # type: ignore[assignment]", False),
        (PYRIGHT, "x: int = 1  # pyright: ignore[reportAssignmentType]", False),
    ],
    ids=lambda value: value[2] if isinstance(value, list) else str(value),
)
def test_the_checkers_do_check(checker: list[str], line: str, right: bool, tmp_path: Path) -> None:
    """With this project's settings, on a program of one line."""
    program = tmp_path / "program.py"
    program.write_text(line + "\n")
    done = check(checker, program)
    assert (done.returncode == 0) is right, done.stdout + done.stderr
