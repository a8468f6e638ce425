"""Python 3.14 from Debian's packages: prepared for its folder, and found by scripts/find-python."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.servers import interpreter

ROOT = Path(__file__).parents[2]


@pytest.mark.req("X-5")
def test_the_interpreter_is_started_with_its_own_libraries(tmp_path: Path) -> None:
    unpacked, home = tmp_path / "new", tmp_path / "final"
    for name in ("bin", "lib/x86_64-linux-gnu", f"lib/python{interpreter.VERSION}"):
        (unpacked / name).mkdir(parents=True)
    (unpacked / "bin" / f"python{interpreter.VERSION}").write_text("an ELF program")
    loader = unpacked / "lib" / "x86_64-linux-gnu" / "ld-linux-x86-64.so.2"
    loader.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    loader.chmod(0o755)
    data = unpacked / "lib" / f"python{interpreter.VERSION}" / "_sysconfigdata__x86_64-linux-gnu.py"
    data.write_text("build_time_vars = {'VERSION': '3.14', 'WHEEL_PKG_DIR': '/usr/share/python-wheels/'}\n")
    interpreter.relocate(unpacked, home)
    unpacked.rename(home)
    script = home / "bin" / f"python{interpreter.VERSION}"
    link = tmp_path / "python"
    link.symlink_to(script)
    output = subprocess.run([link, "-c", "print(1)"], check=True, capture_output=True, text=True).stdout.splitlines()
    libraries, program = home / "lib" / "x86_64-linux-gnu", home / "lib" / f"python{interpreter.VERSION}" / "interpreter"
    assert output == ["--library-path", str(libraries), "--argv0", str(link), str(program), "-c", "print(1)"]
    assert program.read_text() == "an ELF program"
    assert f"'WHEEL_PKG_DIR': '{home}/share/python-wheels'" in (home / data.relative_to(unpacked)).read_text()


@pytest.mark.req("X-5")
def test_a_fetched_interpreter_is_found(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "find-python", tmp_path / "scripts")
    program = tmp_path / ".cache" / "python3.19" / "bin" / "python3.19"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 3.19 {program}\n")
    program.chmod(0o755)
    done = subprocess.run(["sh", "scripts/find-python", "--all"], cwd=tmp_path, capture_output=True, text=True)
    assert f"3.19 {program}" in done.stdout.splitlines()
