"""The first files of a project: a commented redrive.toml, and a small app."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ...settings import FILE, KEYS, SECRET, SettingInfo
from .user_code import Unreadable

MODULE = "work"

APP = '''\
"""Background jobs. `python work.py` enqueues three jobs, and `redrive work` runs them."""

from redrive import App, current, retry

app = App()  # the ledger is set in redrive.toml, or by REDRIVE_LEDGER


@app.command(
    "hello",
    key="demo:{name}:1:hello:v1",  # a second submission with the same key is a duplicate
    retry=retry(max_attempts=5, backoff_base=0.5, jitter=0.1, on=ConnectionError),
)
def hello(name: str) -> str:
    """Return a greeting. The first attempt fails, to show a retry."""
    if current().number == 1:
        raise ConnectionError("connection lost")
    return f"Hello, {name}!"


if __name__ == "__main__":
    for name in ("ann", "bob", "cat"):
        job = hello.submit(name)
        print(f"{name}: job {job.id}" + ("" if job.created else " (duplicate)"))
'''

HEAD = (
    "# Settings of Redrive for every process that starts in this directory, or that has "
    "REDRIVE_CONFIG set to this file.\n"
    "# Options override variables, and variables override this file. "
    "Commented lines show the defaults.\n"
    "# Docs: reference/configuration.md. "
    "`redrive config` shows each value and where it comes from.\n"
)


@dataclass(frozen=True, slots=True)
class CreatedProject:
    """The files that were written."""

    folder: str
    files: tuple[str, ...]


def create_project(folder: Path, /) -> CreatedProject:
    """Write both files, or neither.

    Raises:
        Unreadable: A file exists, or cannot be written.
    """
    texts = {FILE: toml(), f"{MODULE}.py": APP}
    existing = [name for name in texts if (folder / name).exists()]
    if existing:
        exist = "exists" if len(existing) == 1 else "exist"
        raise Unreadable(
            f"{' and '.join(existing)} already {exist} in {folder}; nothing was changed"
        )
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            # "x": a file that another process creates now is not overwritten.
            with (folder / name).open("x", encoding="utf-8") as file:
                written.append(folder / name)
                file.write(text)
    except OSError as problem:
        for path in written:
            path.unlink()
        raise Unreadable(f"{folder} cannot be written to: {problem.strerror}") from problem
    return CreatedProject(str(folder), tuple(texts))


def toml() -> str:
    """Return a redrive.toml with every key as a comment, and the settings of the small app."""
    values = {"app": f'"{MODULE}:app"', "ledger": '"sqlite:///redrive.db"'}
    lines = [HEAD]
    table = ""
    for key in KEYS:
        of, _, name = key.name.rpartition(".")
        if of != table:
            lines += [f"[{of}]"]
            table = of
        line = (
            f"{name} = {values[key.name]}" if key.name in values else f"# {name} = {_example(key)}"
        )
        lines += [f"# {key.says} {_also(key)}", line, ""]
    return "\n".join(lines)


def _also(key: SettingInfo) -> str:
    if key.name not in SECRET:
        return f"Also by {key.variable}."
    if key.name.endswith("password"):
        return f"As `redrive serve --hash password` prints it, or by {key.variable}."
    if key.name.endswith("token"):
        return f"As `redrive serve --hash token` prints it, or by {key.variable}."
    return f"Set it only by {key.variable}, because other users may read this file."


def _example(key: SettingInfo) -> str:
    if key.default is not None:
        return _toml(key.default)
    return {
        "metrics.port": "9464",
        "storage": '"storage.toml"',
        "worker.name": '"mill-1"',
        "worker.anchors": '"anchors.jsonl"',
        "worker.executor": '"dask://localhost:8786"',
        "worker.processes": "2",
    }.get(key.name, '"..."')


def _toml(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value)  # The same in TOML for texts, numbers, booleans and lists.
