"""Charts: scales, labels, gaps and escaping."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from xml.etree import ElementTree as ET

import pytest

from redrive.console.render.charts import (
    Chart,
    Series,
    Shape,
    cause_rows,
    count_ticks,
    draw,
    duration_ticks,
    short_duration,
    time_labels,
)

START = datetime(2026, 1, 31, 6, 0, tzinfo=timezone.utc)


def chart(*series: Series, shape: Shape = "bars", step: float = 60) -> Chart:
    times = [START + place * timedelta(seconds=step) for place in range(len(series[0].values))]
    return Chart("Throughput", "per minute", shape, times, step, series, "two attempts")


def parse(drawn: Chart) -> ET.Element:
    return ET.fromstring(str(draw(drawn)))


@pytest.mark.req("Q-12")
def test_a_chart_is_valid_and_has_a_description() -> None:
    svg = parse(chart(Series("Done", "good", [1, 0, 3]), Series("Dead", "bad", [0, 0, 2])))
    assert (svg.get("role"), svg.get("aria-label")) == ("img", "Throughput, per minute: two attempts")
    titles = [element.text for element in svg.iter("title")]
    assert titles == ["2026-01-31 06:00 to 06:01\nDone: 1", "2026-01-31 06:02 to 06:03\nDone: 3\nDead: 2"]
    assert "style" not in str(draw(chart(Series("Done", "good", [1]))))  # the content security policy forbids it


@pytest.mark.req("Q-12")
def test_names_are_escaped() -> None:
    svg = str(draw(chart(Series('<script>"x"', "c1", [2]))))
    assert "<script>" not in svg
    assert "&lt;script&gt;" in svg


def test_rows_of_causes_begin_with_the_latest_step_that_has_failures() -> None:
    rows = str(cause_rows(chart(Series("<a>", "c1", [1000, 0, 2]), Series("b", "c2", [0, 0, 3]))))
    assert rows == (
        '<tr><th scope="row">2026-01-31 06:02 to 06:03</th><td>2</td><td>3</td></tr>\n'
        '<tr><th scope="row">2026-01-31 06:00 to 06:01</th><td>1,000</td><td>0</td></tr>\n'
    )


def test_a_step_without_a_value_is_a_gap() -> None:
    svg = parse(chart(Series("p50", "p50", [1.0, 1.0, None, 2.0]), shape="lines"))
    (path,) = (element.get("d") or "" for element in svg.iter("path") if "line" in (element.get("class") or ""))
    assert path.count("M") == 2


def test_a_step_between_two_gaps_is_wide_enough_to_be_seen() -> None:
    svg = parse(chart(Series("p50", "p50", [None, 1.0, None, 2.0, 2.0, None, 3.0]), shape="lines"))
    (path,) = (element.get("d") or "" for element in svg.iter("path") if "line" in (element.get("class") or ""))
    assert [part.partition("h")[2] for part in path.split("M")[1:]] == ["4", "", "4"]


@pytest.mark.parametrize("shape", ["bars", "lines"])
def test_a_chart_without_values_is_drawn(shape: Shape) -> None:
    empty = chart(Series("Done", "good", [0, None]), shape=shape)
    assert empty.is_empty
    parse(empty)


@pytest.mark.parametrize(
    ("highest", "labels"),
    [
        (0, ["0", "1"]),
        (3, ["0", "1", "2", "3"]),
        (99, ["0", "50", "100"]),
        (1234, ["0", "500", "1k", "1.5k"]),
        (5e6, ["0", "2M", "4M", "6M"]),
    ],
)
def test_counts_have_round_ticks(highest: float, labels: list[str]) -> None:
    end, ticks = count_ticks(highest)
    assert [label for _, label in ticks] == labels
    assert ticks[-1][0] == end >= highest


@pytest.mark.parametrize(
    ("highest", "labels"),
    [(0.004, ["0", "1 ms", "2 ms", "3 ms", "4 ms"]), (3, ["0", "1 s", "2 s", "3 s"]), (4000, ["0", "0.5 h", "1 h", "1.5 h"])],
)
def test_durations_have_round_ticks_in_one_unit(highest: float, labels: list[str]) -> None:
    assert [label for _, label in duration_ticks(highest)[1]] == labels


@pytest.mark.parametrize(
    ("points", "step", "labels"),
    [
        (60, 60, ["06:00", "06:10", "06:20", "06:30", "06:40", "06:50"]),
        (72, 1200, ["08:00", "12:00", "16:00", "20:00", "00:00", "04:00"]),
        (7, 600, ["06:00", "06:20", "06:40", "07:00"]),
        (8, 10_800, ["06:00", "12:00", "18:00", "00:00"]),
        (84, 7200, ["Feb 1", "Feb 3", "Feb 5", "Feb 7"]),
    ],
)
def test_the_time_axis_has_few_round_labels(points: int, step: float, labels: list[str]) -> None:
    times = [START + place * timedelta(seconds=step) for place in range(points)]
    found = [label for _, label in time_labels(times, step)]
    assert len(found) <= 7
    if step != 7200:
        assert found == labels


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "–"), (0.0005, "0.5 ms"), (0.0123, "12.3 ms"), (1.5, "1.5 s"), (90, "1.5 min"), (5400, "1.5 h")]
)
def test_durations_are_short(seconds: float | None, text: str) -> None:
    assert short_duration(seconds) == text
