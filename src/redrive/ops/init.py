"""Init: the first files of a project: a commented redrive.toml, and a small app that works."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..settings import FILE, KEYS, SECRET, SettingInfo
from .target.imported import Unreadable

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

HEAD = """\
# Settings of Redrive for every process that starts in this directory, or that has REDRIVE_CONFIG set to this file.
# Options override variables, and variables override this file. Commented lines show the defaults.
# Docs: reference/configuration.md. `redrive config` shows each value and where it comes from.
"""


@dataclass(frozen=True, slots=True)
class Begun:
    """What was written."""

    folder: str
    files: tuple[str, ...]


def begun(folder: Path, /) -> Begun:
    """Write both files, or neither: Unreadable names one that is there already, or why it cannot be written."""
    texts = {FILE: toml(), f"{MODULE}.py": APP}
    there = [name for name in texts if (folder / name).exists()]
    if there:
        exist = "exists" if len(there) == 1 else "exist"
        raise Unreadable(f"{' and '.join(there)} already {exist} in {folder}; nothing was changed")
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            with (folder / name).open("x", encoding="utf-8") as file:  # never over another, not even one of this moment
                written.append(folder / name)
                file.write(text)
    except OSError as problem:
        for path in written:
            path.unlink()
        raise Unreadable(f"{folder} cannot be written to: {problem.strerror}") from problem
    return Begun(str(folder), tuple(texts))


def toml() -> str:
    """A redrive.toml with every key, commented, and what the small app needs."""
    given = {"app": f'"{MODULE}:app"', "ledger": '"sqlite:///redrive.db"'}
    lines = [HEAD]
    table = ""
    for key in KEYS:
        of, _, name = key.name.rpartition(".")
        if of != table:
            lines += [f"[{of}]"]
            table = of
        line = f"{name} = {given[key.name]}" if key.name in given else f"# {name} = {_example(key)}"
        lines += [f"# {key.says} {_also(key)}", line, ""]
    return "\n".join(lines)


def _also(key: SettingInfo) -> str:
    if key.name == "console.secret":
        return f"Set it only by {key.variable}, because other users may read this file."
    if key.name in SECRET:
        hashes = {True: "`redrive serve --hash password`", False: "`redrive serve --hash token`"}
        how = hashes[key.name.endswith("password")]
        return f"As {how} prints it, or by {key.variable}."
    return f"Also by {key.variable}."


def _example(key: SettingInfo) -> str:
    if key.default is not None:
        return {True: "true", False: "false"}[key.default] if isinstance(key.default, bool) else _toml(key.default)
    return {
        "metrics.port": "9464",
        "storage": '"storage.toml"',
        "worker.name": '"mill-1"',
        "worker.anchors": '"anchors.jsonl"',
    }.get(key.name, '"..."')


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return "[]"
    return f'"{value}"' if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)
