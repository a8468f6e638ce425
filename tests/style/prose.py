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

WORDS: tuple[tuple[str, str], ...] = (
    (r"nobody|somebody|whoever|everybody|anybody", "name the person or the program: you, the operator, the worker, no worker"),
    (r"whatever", "name the cases: any value, regardless of"),
    (r"shall", "must, or the present tense"),
    (r"mend(?:s|ed|ing)?", "fix, fixed"),
    (r"tr(?:y|ied|ies|ying)\ (?:it\ |them\ |that\ )?again|another\ drive|worth\ trying", "retry, retried, another attempt"),
    (
        r"what\ (?:waits|runs|came|comes|failed|fails|was|is|has|had|ended|ends|died|dies|went|stands|happens\ to)",
        "a noun: queued jobs, rejected items, the failed call",
    ),
    (
        r"who\ (?:is|was|has|may|does|asks|waits|holds|comes|only|cannot|writes|reads)",
        "a noun: the caller, the owner of the lease",
    ),
    (r"at\ it|under\ way|in\ hand", "running, in progress"),
    (r"is\ there|are\ there", "exists, online, present"),
    (r"(?:is|are|was|were)\ well|all\ is\ well", "healthy, no problems found"),
    (
        r"(?:is|are)\ no\ (?!longer|more\b|later|earlier|older|newer|larger|smaller|different|worse|better|need|other|way)[a-z]+",
        "invalid X, not a valid X, there are no Xs: No Xs.",
    ),
    (r"so\ (?:many|much|long|often|far)(?!\ (?:that|as))", "a number with its unit: N jobs, up to 30 s"),
    (r"in\ force", "current"),
    (r"rests", "is paused after an outage"),
    (r"left\ alone|leaves?\ alone", "skip, skipped, unchanged"),
    (r"gives?\ back\ to", "return to"),
    (r"is\ begun|was\ begun|are\ begun", "begins, started"),
    (r"time-?outs?(?<!timeout)(?<!timeouts)", "timeout"),
    (r"by\ itself\ alone|of\ its\ own\ accord", "automatically"),
    (r"no\ more\ than\ once\ more|once\ more", "one more time, again"),
    (r"to\ be\ had", "available"),
    (r"says?\ so|said\ so|is\ said|are\ said|was\ said|told\ of|is\ told|are\ told", "log, report, print, show"),
    (r"the\ audit(?!\ log)", "the audit log"),
    (r"the\ moment|a\ moment", "timestamp, time, duration"),
    (r"the\ word\b", "the term, the value"),
)
"""Phrases that make a reader stop, and the words to use instead."""

IDIOM = re.compile(rf"\b(?:{'|'.join(pattern for pattern, _ in WORDS)})\b", re.VERBOSE | re.IGNORECASE)
JOINED = re.compile(r";(?=\s)|(?<=[a-z)`\"'»”]):(?=\ [a-z`*\"(\[0-9])")
WORD = re.compile(r"[A-Za-z][A-Za-z'’-]*")
SENTENCE = re.compile(r"(?<=[.!?])[\"')*]*\s+(?=[A-Z`*\"(\[])")


class Measure(NamedTuple):
    """The counts of one text."""

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
    text = re.sub(r"^::: .*\n(?:(?: {4}.*)?\n)*", "\n", text, flags=re.MULTILINE)
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
    """The prose of one file, by its type."""
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


def better(hit: str) -> str:
    """Return the words to use instead of `hit`, a match of IDIOM."""
    return next(words for pattern, words in WORDS if re.match(rf"(?:{pattern})\b", hit, re.VERBOSE | re.IGNORECASE))


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
