"""docs/reference/cli.md is generated from the commands."""

from __future__ import annotations

from tests.docs import cli_reference
from tests.style.prose import MAX_IDIOM, MAX_JOINED, markdown, measure


def test_the_reference_is_generated_from_the_commands() -> None:
    written = cli_reference.PAGE.read_text(encoding="utf-8")
    assert written == cli_reference.page(), "stale: run `python -m tests.docs.cli_reference`"


def test_the_reference_has_no_broken_formatting() -> None:
    found = measure(markdown(cli_reference.page()))
    assert found.idiom_rate <= MAX_IDIOM, found.idiom
    assert found.joined_rate <= MAX_JOINED, found.joined
    assert not found.long
