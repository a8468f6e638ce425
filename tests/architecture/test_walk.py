"""One job and one partition pass through few files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.walk import GOALS, LIMITS, WALKS, Trace, files_of


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_stays_within_its_limit(name: str) -> None:
    files: list[str] = []
    for _ in range(3):  # On a busy machine a worker may also do maintenance, so the shortest walk counts.
        files = min(filter(None, (files, files_of(WALKS[name]))), key=len)
        if len(files) <= LIMITS[name]:
            return
    listing = "\n".join(files)
    pytest.fail(f"{listing}\n{name}: {len(files)} files, limit {LIMITS[name]}, goal {GOALS[name]}", pytrace=False)


def test_a_trace_notes_functions_and_leaves_out_imports(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("def call():\n    return 1\n")
    (tmp_path / "quiet.py").write_text("class Quiet:\n    x = 1\n")
    outside = tmp_path.parent / f"{tmp_path.name}_outside.py"
    names: dict[str, object] = {}
    trace = Trace(tmp_path)
    with trace.running():
        exec(compile((tmp_path / "quiet.py").read_text(), tmp_path / "quiet.py", "exec"), names)
        exec(compile(program.read_text(), outside, "exec"), names)
        exec("call()", names)
        assert list(trace.files) == []
        exec(compile(program.read_text(), program, "exec"), names)
        exec("call()", names)
    assert list(trace.files) == ["program.py"]
