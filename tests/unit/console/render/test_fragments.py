"""The repeated pieces of a page: escaped, and with exact times."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from urllib.parse import parse_qsl, urlsplit

import pytest
from markupsafe import Markup
from starlette.requests import Request

from redrive.console.render.fragments import cli, count, countdown, status, trend, when
from redrive.console.security.credentials import AccessControl
from redrive.console.view import View
from redrive.ledger import open_ledger
from redrive.ops.overview.trend import NONE, Trend

NOW = datetime(2026, 1, 31, 12, 30, 5, tzinfo=timezone.utc)
ODD = "<b a='1'>\"&"


def test_fragments_escape_their_input() -> None:
    busy = Trend((0,) * 23 + (5,), 5, 5, NOW)
    for fragment in (status(ODD), status("dead", ODD), count(1, ODD), trend(busy, ODD), cli(ODD)):
        assert isinstance(fragment, Markup)
        assert "<b " not in fragment
        assert "&lt;b a=&#39;1&#39;&gt;&#34;&amp;" in fragment


def test_a_time_is_relative_and_has_the_exact_time_as_title() -> None:
    elsewhere = timezone(timedelta(hours=2))
    time = (NOW - timedelta(minutes=5)).astimezone(elsewhere)
    assert when(time, NOW) == (
        '<time datetime="2026-01-31T12:25:05+00:00" title="2026-01-31 12:25:05 UTC" data-ago>5 min ago</time>'
    )
    assert "data-countdown>in 5 min<" in countdown(NOW + timedelta(minutes=5), NOW)
    assert when(None, NOW) == '<span class="dim">–</span>'


def test_a_count_of_zero_is_a_dash_without_a_link() -> None:
    assert count(0, "/jobs") == '<span class="dim none">–</span>'
    assert count(1000, "/jobs", "warn", True) == '<a class="plain warn" href="/jobs">1,000+</a>'
    assert 'class="trend past"' in trend(NONE, "failed attempts")


@pytest.mark.parametrize("value", ["plain", "two words", "a=b&c", "ä/ö", "%41", 7, ["x", "y z"], ("x",)])
def test_a_url_encodes_its_query(value: object) -> None:
    state: dict[str, object] = {"identity": None, "form": {}}
    request = Request({"type": "http", "path": "/jobs", "query_string": b"", "headers": [], "state": state})
    with open_ledger("sqlite://") as stored:
        view = View(request, stored, AccessControl())
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    url = urlsplit(view.url("/jobs", kind=value, state="", limit=None, **{"o d&=d": "1"}))
    assert parse_qsl(url.query) == [*(("kind", str(each)) for each in values), ("o d&=d", "1")]
    assert view.url("/jobs", state=None) == "/jobs"
