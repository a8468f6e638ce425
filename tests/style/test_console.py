"""The words of the console: idiom, the length of labels and sentences, verbs on buttons."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from redrive.console.render.fragments import ICONS, state_name
from redrive.console.view import NAVIGATION
from tests.style.prose import MAX_JOINED, WORD, measure, template

CONSOLE = Path(__file__).parents[2] / "src" / "redrive" / "console"
TEMPLATES = sorted((CONSOLE / "templates").glob("*.html"))
MODULES = sorted(CONSOLE.rglob("*.py"))
LABELS = ("th", "dt", "summary", "h2")
MAX_LABEL = 3
"""Words of a label or a button, without units in parentheses."""
VERBS = frozenset(
    (
        "allow", "apply", "backfill", "cancel", "change", "clear", "close", "copy", "discard", "erase", "filter", "fire",
        "give", "hide", "open", "pause", "preview", "prioritise", "release", "reopen", "replay", "reschedule", "reset",
        "resume", "retry", "reveal", "roll", "run", "search", "send", "set", "show", "sign", "skip", "unpause", "update",
        "verify",
    )
)  # fmt: skip


class _Labels(HTMLParser):
    """Collects the labels and buttons of a template."""

    def __init__(self) -> None:
        super().__init__()
        self.labels: list[str] = []
        self.buttons: list[str] = []
        self._into: list[list[str] | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        classes = (given.get("class") or "").split()
        self.labels += [given["data-label"] or ""] if "data-label" in given else []
        if tag in ("button", "a", "span", *LABELS):
            into = None
            if tag == "button" or (tag == "a" and "button" in classes):
                into = self.buttons
            elif tag in LABELS or (tag == "span" and self.lasttag in ("label", "a") and not classes):
                into = self.labels
            self._into.append(into)
            if into is not None:
                into.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("button", "a", "span", *LABELS):
            self._into.pop()

    def handle_data(self, data: str) -> None:
        if self._into and self._into[-1] is not None:
            self._into[-1][-1] += data


def _labels(path: Path) -> _Labels:
    found = _Labels()
    found.feed(re.sub(r"\{[{%#].*?[}%#]\}", " ", path.read_text(encoding="utf-8"), flags=re.DOTALL))
    return found


def _words(label: str) -> list[str]:
    return WORD.findall(re.sub(r"\([^)]*\)", "", label))


def _strings(path: Path) -> Iterator[str]:
    """Messages of a module. Docstrings of pages and of the API count too: the API description shows them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documents = path.parent.name in ("api", "pages")
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif not isinstance(node, ast.Constant) or id(node) in inner:
            continue
        elif isinstance(node.value, str) and (documents or id(node) not in bare):
            yield node.value


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_has_simple_words_and_short_sentences(path: Path) -> None:
    found = measure(template(path.read_text(encoding="utf-8")))
    assert (found.idiom, found.long) == ([], [])


def test_templates_have_few_joined_clauses() -> None:
    found = measure(block for path in TEMPLATES for block in template(path.read_text(encoding="utf-8")))
    assert found.joined_rate <= MAX_JOINED


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_labels_have_at_most_three_words_and_buttons_are_verbs(path: Path) -> None:
    found = _labels(path)
    assert [label for label in found.labels + found.buttons if len(_words(label)) > MAX_LABEL] == []
    assert [button for button in found.buttons if (words := _words(button)) and words[0].lower() not in VERBS] == []


def test_the_reader_finds_labels_and_buttons() -> None:
    found = [_labels(path) for path in TEMPLATES]
    assert {"Job type", "Reason", "Dead letters"} <= {label.strip() for one in found for label in one.labels}
    assert {"Filter", "Replay selected", "Reopen items …"} <= {label.strip() for one in found for label in one.buttons}
    assert sum(len(one.labels) for one in found) > 300


def test_the_menu_has_nouns_of_at_most_three_words() -> None:
    titles = [page.title for _, pages in NAVIGATION for page in pages]
    assert len(set(titles)) == len(titles)
    assert [title for title in titles if len(_words(title)) > MAX_LABEL] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(CONSOLE)))
def test_messages_of_the_console_have_simple_words(path: Path) -> None:
    assert measure(_strings(path)).idiom == []


def test_no_state_is_shown_by_an_internal_name() -> None:
    shown = {state_name(state) for state in ICONS}
    assert [state for state in shown if "_" in state or state in ("dlq", "giveup", "terminal", "alive")] == []
