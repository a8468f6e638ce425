"""Measure prose: idiom, joined clauses and long sentences. Run as `python -m tests.style.prose FILE ...`.

Markdown files count without code, Python files count with their docstrings, templates with their visible text.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

MAX_IDIOM = 3.0
"""Per 1,000 words."""
MAX_JOINED = 12.0
"""Semicolons and colons inside a sentence, per 1,000 words."""
MAX_WORDS = 30
"""Of one sentence. The goal is 20; quoted names and numbers may need more."""

IDIOM = re.compile(
    r"""
    \b(?:
        nobody|somebody|whoever|everybody|anybody|whatever|shall
        |mend(?:s|ed|ing)?
        |tr(?:y|ied|ies|ying)\ (?:it\ |them\ |that\ )?again|another\ drive
        |what\ (?:waits|runs|came|comes|failed|fails|was|is|has|had|ended|ends|died|dies|went|stands|happens\ to)
        |who\ (?:is|was|has|may|does|asks|waits|holds|comes|only|cannot|writes|reads)
        |at\ it|under\ way|in\ hand|is\ there|are\ there
        |(?:is|are|was|were)\ well|all\ is\ well
        |(?:is|are)\ no\ (?!longer|more\b|later|earlier|older|newer|larger|smaller|different|worse|better|need|other|way)[a-z]+
        |so\ (?:many|much|long|often|far)(?!\ (?:that|as))
        |in\ force|rests|left\ alone|leaves?\ alone|gives?\ back\ to|is\ begun|was\ begun|are\ begun
        |time-?outs?(?<!timeout)(?<!timeouts)
        |by\ itself\ alone|no\ more\ than\ once\ more|once\ more|of\ its\ own\ accord|to\ be\ had
        |says?\ so|said\ so|is\ said|are\ said|was\ said|told\ of|is\ told|are\ told|worth\ trying
        |the\ audit(?!\ log)|the\ moment|a\ moment|the\ word\b
    )\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
JOINED = re.compile(r";(?=\s)|(?<=[a-z)`\"'»”]):(?=\ [a-z`*\"(\[0-9])")
WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")
SENTENCE = re.compile(r"(?<=[.!?])[\"')*]*\s+(?=[A-Z`*\"(\[])")


class Measure(NamedTuple):
    """What one text holds."""

    words: int
    idiom: list[str]
    joined: list[str]
    long: list[str]

    @property
    def idiom_rate(self) -> float:
        """Per 1,000 words."""
        return 1000 * len(self.idiom) / max(self.words, 1)

    @property
    def joined_rate(self) -> float:
        """Per 1,000 words."""
        return 1000 * len(self.joined) / max(self.words, 1)


def markdown(text: str) -> list[str]:
    """The prose blocks of a page, without code and links."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^( *)(```|~~~).*?^\1\2\s*$", "\n", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`\n]+`", "`x`", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^\s*[|]?[-:| ]+[|]?\s*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^(---|\.\.\.)\n.*?\n\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    blocks: list[str] = []
    fresh = True
    for line in text.splitlines():
        bare = line.strip()
        starts = re.match(r"([-*+]|\d+\.|#+|>|\||!!!|\?\?\?|:)\s?", bare)
        if not bare:
            fresh = True
            continue
        if bare.startswith("|"):
            blocks.extend(cell.strip() for cell in bare.strip("|").split("|") if cell.strip())
            fresh = True
            continue
        if starts or fresh or not blocks:
            blocks.append(re.sub(r"^([-*+]|\d+\.|#+|>|!!! \w+|\?\?\? \w+)\s*", "", bare))
        else:
            blocks[-1] += " " + bare
        fresh = bare.startswith("#")
    return blocks


def docstrings(source: str) -> list[str]:
    """The docstrings of public things, and of attributes."""
    blocks = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            blocks += markdown(node.value.value)
    return blocks


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("script", "style", "svg", "code")
        self.blocks += [value for name, value in attrs if name in ("title", "aria-label", "placeholder") and value]

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style", "svg", "code")

    def handle_data(self, data: str) -> None:
        if not self._hidden and data.strip():
            self.blocks.append(" ".join(data.split()))


def template(text: str) -> list[str]:
    """The visible text of a Jinja template."""
    strings = re.findall(r"\{[{%].*?[}%]\}", text, flags=re.DOTALL)
    said = [words for each in strings for words in re.findall(r"\"([^\"]* [^\"]*)\"", each)]
    parser = _Text()
    parser.feed(re.sub(r"\{[{%#].*?[}%#]\}", " x ", text, flags=re.DOTALL))
    return [*parser.blocks, *said]


def blocks_of(path: Path) -> list[str]:
    """The prose of one file, by its kind."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return docstrings(text)
    return template(text) if path.suffix in (".html", ".j2", ".jinja") else markdown(text)


def measure(blocks: Iterable[str]) -> Measure:
    """Count words, idiom, joined clauses and long sentences."""
    words, idiom, joined, long = 0, [], [], []
    for block in blocks:
        words += len(WORD.findall(block))
        idiom += [f"{found.group()}  ({_around(block, found)})" for found in IDIOM.finditer(block)]
        joined += [_around(block, found) for found in JOINED.finditer(block)]
        long += [each for each in SENTENCE.split(block) if len(WORD.findall(each)) > MAX_WORDS]
    return Measure(words, idiom, joined, long)


def _around(block: str, found: re.Match[str]) -> str:
    return block[max(0, found.start() - 40) : found.end() + 40].strip()


def main(paths: list[str]) -> None:
    """Print a line for each file, and with one file everything that counts."""
    total: list[str] = []
    for name in paths:
        blocks = blocks_of(Path(name))
        total += blocks
        found = measure(blocks)
        print(
            f"{found.idiom_rate:6.1f} idiom {found.joined_rate:6.1f} joined "
            f"{len(found.long):3} long {found.words:6} words  {name}"
        )
        if len(paths) == 1:
            for title in ("idiom", "joined", "long"):
                print(f"\n{title}:", *getattr(found, title), sep="\n  ")
    found = measure(total)
    print(f"{found.idiom_rate:6.1f} idiom {found.joined_rate:6.1f} joined {len(found.long):3} long {found.words:6} words  total")


if __name__ == "__main__":
    main(sys.argv[1:])
