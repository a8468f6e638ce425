"""What a page shows most: escaped, and the same however often."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from urllib.parse import parse_qsl, urlsplit

import pytest
from markupsafe import Markup
from starlette.requests import Request

from redrive.console.render.fragments import cli, count, countdown, status, trend, when
from redrive.console.security.credentials import Access
from redrive.console.view import View
from redrive.ledger import open_ledger
from redrive.ops.overview.trend import NONE, Trend

NOW = datetime(2026, 1, 31, 12, 30, 5, tzinfo=timezone.utc)
ODD = "<b a='1'>\"&"


def test_what_comes_from_outside_is_escaped() -> None:
    busy = Trend((0,) * 23 + (5,), 5, 5, NOW)
    for made in (status(ODD), status("dead", ODD), count(1, ODD), trend(busy, ODD), cli(ODD)):
        assert isinstance(made, Markup)
        assert "<b " not in made
        assert "&lt;b a=&#39;1&#39;&gt;&#34;&amp;" in made


def test_a_moment_is_said_from_now_and_exactly() -> None:
    there = timezone(timedelta(hours=2))
    moment = (NOW - timedelta(minutes=5)).astimezone(there)
    assert when(moment, NOW) == (
        '<time datetime="2026-01-31T12:25:05+00:00" title="2026-01-31 12:25:05 UTC" data-ago>5 min ago</time>'
    )
    assert "data-countdown>in 5 min<" in countdown(NOW + timedelta(minutes=5), NOW)
    assert when(None, NOW) == '<span class="dim">–</span>'


def test_nothing_is_a_dash_and_leads_nowhere() -> None:
    assert count(0, "/jobs") == '<span class="dim none">–</span>'
    assert count(1000, "/jobs", "warn", True) == '<a class="plain warn" href="/jobs">1,000+</a>'
    assert 'class="trend past"' in trend(NONE, "failed attempts")


@pytest.mark.parametrize("value", ["plain", "two words", "a=b&c", "ä/ö", "%41", 7, ["x", "y z"], ("x",)])
def test_an_address_says_what_it_was_given(value: object) -> None:
    request = Request({"type": "http", "path": "/jobs", "query_string": b"", "headers": [], "state": {"who": None, "form": {}}})
    with open_ledger("sqlite://") as stored:
        view = View(request, stored, Access())
    given = list(value) if isinstance(value, (list, tuple)) else [value]
    said = urlsplit(view.url("/jobs", kind=value, state="", limit=None, **{"o d&=d": "1"}))
    assert parse_qsl(said.query) == [*(("kind", str(each)) for each in given), ("o d&=d", "1")]
    assert view.url("/jobs", state=None) == "/jobs"
