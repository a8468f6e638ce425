"""Texts that a user reads keep to the house style (docs/contributing/style.md)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import typer

from redrive.cli.root import app
from tests.docs.test_api import ENTRIES, import_path
from tests.style.prose import IDIOM, JOINED, MAX_IDIOM, MAX_JOINED, MAX_WORDS, SENTENCE, WORD, better, blocks_of, markdown
from tests.style.strings import literals_of

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "redrive"
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
STYLE = ROOT / "docs" / "contributing" / "style.md"
TEMPLATES = sorted(SOURCE.rglob("*.html"))
PACKAGES = sorted({path.relative_to(SOURCE).parts[0] for path in SOURCE.rglob("*.py")})
FLOOR_IDIOM, FLOOR_JOINED = 1, 2
"""Hits that even the shortest text may have."""
MAX_SUMMARY = 45
"""Characters of a command's summary."""

PENDING: list[str] = []
"""Groups that exceed a limit today. An entry whose group is within its limits fails the test. Remove it then."""

_ITEM = re.compile(r"(?m)^ {4}\*{0,2}[\w.]+(?: \([^)]*\))?: ")
"""An item of `Args`, `Attributes` or `Raises` in a docstring."""
_LABEL = re.compile(r"(?:^|(?<=[.)] ))(?:Default|Optional|True|False|None|`x`): ")
"""The label of a value in the description of a parameter."""

Blocks = list[tuple[str, str]]
"""Places (file and line) and their texts."""


def page(path: Path) -> Blocks:
    text = path.read_text(encoding="utf-8")
    if path == STYLE:  # The tables of words and examples quote the phrases to avoid.
        text = "\n".join(line for line in text.splitlines() if not line.startswith("|"))
    return [(str(path.relative_to(ROOT)), block) for block in markdown(text)]


def templates() -> Blocks:
    return [(str(path.relative_to(ROOT)), block) for path in TEMPLATES for block in blocks_of(path)]


def messages(package: str) -> Blocks:
    folder = SOURCE / package
    files = [folder] if folder.is_file() else sorted(folder.rglob("*.py"))
    return [(f"{path.relative_to(ROOT)}:{each.line}", each.text) for path in files for each in literals_of(path)]


def public_docstrings() -> Blocks:
    texts = [(place, _ITEM.sub("- ", inspect.cleandoc(text))) for place, text in _documented()]
    return [(place, _LABEL.sub(" ", block)) for place, text in texts for block in markdown(text)]


def _documented() -> Iterator[tuple[str, str]]:
    for path, members in ENTRIES.items():
        public = import_path(path)
        if isinstance(public.__doc__, str):
            yield path, public.__doc__
        if not inspect.isclass(public):
            continue
        for name, member in vars(public).items():
            is_listed = not name.startswith("_") if members is None else name in members
            text = getattr(member, "__doc__", None)
            if is_listed and callable(getattr(public, name)) and isinstance(text, str):
                yield f"{path}.{name}", text


@cache
def commands() -> dict[str, Any]:
    """Return every command of the CLI by its words."""
    return dict(_commands("redrive", typer.main.get_command(app)))


def _commands(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(f"{words} {name}", inner)


def cli_help() -> Blocks:
    texts = [(words, command.help or "") for words, command in commands().items()]
    texts += [
        (f"{words} {option.opts[0]}", getattr(option, "help", None) or "")
        for words, command in commands().items()
        for option in command.params
    ]
    return [(place, block) for place, text in texts for block in markdown(text)]


def summaries() -> Blocks:
    return [(words, (command.help or "").strip().split("\n")[0]) for words, command in commands().items()]


def wide(blocks: Blocks) -> list[str]:
    return [
        f"{place}: {len(text)} characters in {text!r}; use: {MAX_SUMMARY}" for place, text in blocks if len(text) > MAX_SUMMARY
    ]


def idiom(blocks: Blocks) -> list[str]:
    hits = [(place, block, hit) for place, block in blocks for hit in IDIOM.finditer(block)]
    return _above(
        MAX_IDIOM,
        FLOOR_IDIOM,
        blocks,
        [f"{place}: {hit.group()!r} in {_near(block, hit)!r}; use: {better(hit.group())}" for place, block, hit in hits],
    )


def joined(blocks: Blocks) -> list[str]:
    hits = [(place, block, hit) for place, block in blocks for hit in JOINED.finditer(block)]
    return _above(
        MAX_JOINED,
        FLOOR_JOINED,
        blocks,
        [f"{place}: {hit.group()!r} in {_near(block, hit)!r}; use: two sentences" for place, block, hit in hits],
    )


def long(blocks: Blocks) -> list[str]:
    sentences = [(place, each) for place, block in blocks for each in SENTENCE.split(block)]
    return [
        f"{place}: {len(WORD.findall(each))} words in {each!r}; use: at most {MAX_WORDS}, better 20"
        for place, each in sentences
        if len(WORD.findall(each)) > MAX_WORDS
    ]


def _above(limit: float, floor: int, blocks: Blocks, hits: list[str]) -> list[str]:
    words = sum(len(WORD.findall(block)) for _, block in blocks)
    return hits if len(hits) > max(floor, limit * words / 1000) else []


def _near(block: str, hit: Any) -> str:
    return block[max(0, hit.start() - 40) : hit.end() + 40].strip()


GROUPS: dict[str, tuple[Callable[[], Blocks], tuple[Callable[[Blocks], list[str]], ...]]] = {
    **{str(path.relative_to(ROOT)): (partial(page, path), (idiom, joined, long)) for path in PAGES},
    **{f"messages of {package}": (partial(messages, package), (idiom,)) for package in PACKAGES},
    "public docstrings": (public_docstrings, (idiom, joined, long)),
    "console templates": (templates, (idiom, joined, long)),
    "command help": (cli_help, (idiom, joined, long)),
    "help summaries": (summaries, (wide,)),
}


def problems(group: str) -> list[str]:
    blocks, checks = GROUPS[group]
    texts = blocks()
    return [problem for check in checks for problem in check(texts)]


@pytest.mark.parametrize("group", [group for group in GROUPS if group not in PENDING])
def test_texts_keep_to_the_house_style(group: str) -> None:
    if found_problems := problems(group):
        pytest.fail("\n".join(found_problems), pytrace=False)


def test_pending_groups_still_exceed_a_limit() -> None:
    within = [group for group in PENDING if not problems(group)]
    assert within == [], "within their limits now: remove them from PENDING"


def test_a_phrase_to_avoid_is_reported_with_its_place_and_the_words_to_use() -> None:
    assert idiom([("page.md", "Wait for it, then mend it. It shall work.")]) == [
        "page.md: 'mend' in 'Wait for it, then mend it. It shall work.'; use: fix, fixed",
        "page.md: 'shall' in 'Wait for it, then mend it. It shall work.'; use: must, or the present tense",
    ]


def test_literals_include_messages_and_leave_out_docstrings_and_sql(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""A docstring of many words."""\n'
        'ROWS = "SELECT id FROM jobs WHERE due"\n'
        'def check(value):\n    raise ValueError(f"size: {value!r} is too large; use 1 to 9")\n'
    )
    assert [(each.line, each.text) for each in literals_of(module)] == [(4, "size: x is too large; use 1 to 9")]
