"""The picture of a report: valid SVG, escaped, and with the figures in words."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest

from redrive.simulation.figures import LoadCurve, PolicyRun, SimulationReport, summarise
from redrive.simulation.picture import draw, short_count
from redrive.simulation.scenario import scenario_from_mapping


def report(peak: int, *, seconds: int = 60, outages: bool = True, name: str = "<b>") -> SimulationReport:
    content: dict[str, Any] = {
        "title": "A & B",
        "minutes": seconds / 60,
        "service": {"capacity": 100},
        "clients": {"count": 10, "every": 1},
        "outage": [{"at": 10, "lasts": 10}] if outages else [],
        "policy": [{"name": name}],
    }
    scenario = scenario_from_mapping(content)
    attempts = tuple(peak if second == 12 else 10 for second in range(seconds))
    ten = (10,) * seconds
    curve = LoadCurve(ten, attempts, (0,) * seconds, ten, (0,) * seconds, {})
    return SimulationReport(scenario, 1, (PolicyRun(name, curve, summarise(scenario, curve)),))


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_names_are_escaped_and_figures_are_in_words() -> None:
    svg = draw(report(30))
    assert "<b>" not in svg
    found = texts(svg)
    assert {"A & B", "<b>", "peak 30/s (3 × normal)", "recovered after 0 s", "outage"} <= set(found)
    assert "A & B. <b>: peak 30/s" in str(ET.fromstring(svg).get("aria-label"))


def test_a_peak_beyond_the_scale_is_cut_and_labelled() -> None:
    assert "↑ 20k/s" in texts(draw(report(20_000)))


def test_a_run_without_an_outage_has_no_recovery() -> None:
    found = texts(draw(report(10, outages=False)))
    assert "outage" not in found
    assert not any("recovered" in text for text in found)


def test_a_day_is_drawn_with_at_most_600_points() -> None:
    svg = draw(report(10, seconds=86_400))
    line = ET.fromstring(svg).find("{http://www.w3.org/2000/svg}polyline")
    assert line is not None
    assert len(str(line.get("points")).split()) == 600


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (950, "950"), (1500, "1.5k"), (2_400_000, "2.4M")])
def test_counts_are_short(value: float, text: str) -> None:
    assert short_count(value) == text
