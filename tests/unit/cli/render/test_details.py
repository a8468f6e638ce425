"""Detail views: fields, sections, counts."""

from __future__ import annotations

from rich.console import Console, RenderableType

from redrive.cli.render import detail_view, fields, section, shorten, showing, top_counts


def draw(body: RenderableType) -> list[str]:
    out = Console(width=60, color_system=None)
    with out.capture() as captured:
        out.print(body)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_a_field_without_a_value_is_omitted() -> None:
    assert draw(fields({"state": "done", "error": None, "notes": []})) == ["state  done"]


def test_a_list_has_its_label_on_the_first_line() -> None:
    values = {"check": ["rows", "schema"]}
    assert draw(fields(values)) == ["check  rows", "       schema"]
    assert draw(fields(values, repeat_labels=True)) == ["check  rows", "check  schema"]


def test_a_view_has_a_heading_fields_and_sections() -> None:
    view = detail_view("Job 7", {"state": "done"}, *section("Result", "42"))
    assert draw(view) == ["Job 7", "  state  done", "", "Result", "  42"]


def test_counts_are_cut_after_the_most_frequent() -> None:
    assert top_counts({"a": 1, "b": 2000}) == "b ×2,000, a ×1"
    assert top_counts(dict.fromkeys("abcde", 1)) == "a ×1, b ×1, c ×1, d ×1, …"
    assert shorten(["a", "b", "c"], 2) == ["a", "b", "… 1 more"]


def test_a_note_shows_how_much_of_a_list_is_shown() -> None:
    assert showing(50) == "Showing the first 50; use --limit for more."
    assert showing(50, 60) == "Showing 50 of 60; use --limit for more."
    assert showing(50, 50) == "Showing all 50."
