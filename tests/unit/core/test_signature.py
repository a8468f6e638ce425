"""Errors of one cause have one signature."""

from __future__ import annotations

import pytest

from redrive.core.signature import LONGEST, signature


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no answer from 10.0.0.7:8080 after 3.5 s", "no answer from 10.0.0.19:8080 after 12 s"),
        ("user 'ann' is unknown", "user 'bob' is unknown"),
        ("job 6f1c2d3e-1111-4222-8333-444455556666 failed", "job 00000000-1111-4222-8333-999955556666 failed"),
        ("GET https://api.example.org/orders/17?x=1: 503", "GET https://api.example.org/orders/9: 503"),
        ("order ord_8f3kd92 is gone", "order ord_1aa7772 is gone"),
        ("mail to ann@example.org bounced", "mail to bob.b@example.com bounced"),
        ("it doesn't know 'ann', who isn't here", "it doesn't know 'bob', who isn't here"),
        ("not 'O'Neill', please", "not 'ann', please"),
        ("bytes b'ab' are no text", "bytes b'xyz' are no text"),
        ("no such ids: [1, 22, 'x', None]", "no such ids: [3]"),
        ("cannot read {'a': 1, 'b': [2.5, -1]}", "cannot read {'z': true}"),
    ],
)
def test_what_differs_from_job_to_job_makes_no_difference(one: str, other: str) -> None:
    assert signature(ValueError(one)) == signature(ValueError(other))


def test_what_differs_in_kind_does() -> None:
    assert signature(ValueError("no answer")) != signature(TypeError("no answer"))
    assert signature(ValueError("no answer")) != signature(ValueError("no permission"))
    assert signature(ConnectionError("no answer after 3 s")) == "ConnectionError: no answer after # s"
    assert signature(ValueError()) == "ValueError"
    assert signature(ValueError("can't open it, won't close it")) == "ValueError: can't open it, won't close it"


def test_it_is_short_and_never_raises() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert len(signature(ValueError("word " * 1000))) <= LONGEST
    assert signature(Mute()).startswith("Mute")
