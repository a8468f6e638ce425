"""The command with and without its extra."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

SRC = Path(__file__).parents[3] / "src"
# Without site-packages, as after `pip install redrive` alone.
START = f"import sys; sys.path.insert(0, {str(SRC)!r}); from redrive.cli import main; main()"


def test_a_missing_extra_is_named_with_the_install_command() -> None:
    done = subprocess.run([sys.executable, "-I", "-S", "-c", START], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == 'The redrive command needs its extra: pip install "redrive[cli]"\n'


def test_the_installed_command_prints_its_version() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from redrive.cli import main; main()", "--version"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, f"redrive {version('redrive')}\n")
