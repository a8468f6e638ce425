"""Tables fit the width of the terminal."""

from __future__ import annotations

from typing import NamedTuple

from rich.console import Console

from redrive.cli.render.table import Column, natural_width, responsive_table


class Row(NamedTuple):
    """A row of the table."""

    id: int
    kind: str
    when: str
    error: str | None


COLUMNS: list[Column[Row]] = [
    Column("id", lambda row: str(row.id), is_number=True),
    Column("kind", lambda row: row.kind, min_width=8),
    Column("when", lambda row: row.when, drop_order=2),
    Column("error", lambda row: row.error, min_width=8, max_width=20, truncate=True, drop_order=1),
]
ROWS = [
    Row(7, "crm.sync", "5 min ago", "TimeoutError: read timed out after ten seconds"),
    Row(12, "reports.nightly.summary", "now", None),
]


def draw(width: int) -> list[str]:
    out = Console(width=width, color_system=None)
    with out.capture() as captured:
        out.print(responsive_table(COLUMNS, ROWS, width))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_a_wide_terminal_shows_every_cell_in_full() -> None:
    assert draw(100)[1] == " 7  crm.sync                 5 min ago  TimeoutError: read timed out after ten seconds"


def test_a_column_with_a_maximum_leaves_room_for_others() -> None:
    assert natural_width(COLUMNS, ROWS) == 2 + 2 + 23 + 2 + 9 + 2 + 20
    assert draw(70) == [
        "id  kind                     when       error",
        " 7  crm.sync                 5 min ago  TimeoutError: read …",
        "12  reports.nightly.summary  now        –",
    ]


def test_columns_shrink_before_they_are_dropped() -> None:
    assert draw(40) == [
        "id  kind             when       error",
        " 7  crm.sync         5 min ago  Timeout…",
        "12  reports.nightly  now        –",
        "    .summary",
    ]
    assert draw(30)[0].split() == ["id", "kind", "error"]
    assert draw(14)[0].split() == ["id", "kind"]
    for width in range(12, 80):
        assert max(map(len, draw(width))) <= width
