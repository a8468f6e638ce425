"""Numbers with the right plural."""

from __future__ import annotations

import pytest

from redrive.core.text import join_reason, pluralise, safe_str


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 partitions"), (1, "1 partition"), (2, "2 partitions"), (1_200_000, "1,200,000 partitions")]
)
def test_amounts_are_pluralised(count: int, said: str) -> None:
    assert pluralise(count, "partition") == said


@pytest.mark.parametrize(
    ("reason", "message", "said"),
    [
        ("row_count", "too few", "row_count: too few"),
        ("URLError", "urllib.error.URLError: refused", "urllib.error.URLError: refused"),
        ("TimeoutError", "TimeoutError: 30 s", "TimeoutError: 30 s"),
        ("Error", "my.OtherError: no", "Error: my.OtherError: no"),
        (None, "too few", "too few"),
        ("row_count", None, "row_count"),
        (None, None, ""),
    ],
)
def test_a_reason_is_not_repeated(reason: str | None, message: str | None, said: str) -> None:
    assert join_reason(reason, message) == said


def test_words_after_an_amount_are_pluralised() -> None:
    assert [pluralise(count, "day is", "days are") for count in (1, 2)] == ["1 day is", "2 days are"]


def test_the_link_of_httpx_is_cut_from_a_message() -> None:
    message = "Server error '503 Service Unavailable' for url 'https://crm.example.com/v1'"
    link = "https://developer.mozilla.org/en-US/docs/Web/HTTP/Status/503"
    assert safe_str(OSError(f"{message}\nFor more information check: {link}")) == message
    assert safe_str(OSError("first line\nsecond line")) == "first line\nsecond line"
