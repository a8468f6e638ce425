"""Labels above the columns of a calendar."""

from __future__ import annotations

from datetime import date

from redrive.cli.commands.partitions.calendar import bands


def test_day_labels_do_not_touch() -> None:
    (band,) = bands(date(2026, 9, 20), date(2026, 10, 4), 60, "day")
    assert band.bottom == "20        28", "21 would touch 20, of the week of one day before it"
