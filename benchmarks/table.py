"""A table for the terminal and for Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass

WORDS = frozenset(("case", "page", "library", "statement", "verdict", "peers", "reason", "error"))
"""Left-aligned text columns. Number columns are right-aligned."""


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""

    def text(self) -> str:
        widths = [max(len(row[n]) for row in [self.columns, *self.rows]) for n in range(len(self.columns))]
        lines = [self.title, self._line(self.columns, widths), self._line(tuple("-" * w for w in widths), widths)]
        lines += [self._line(row, widths) for row in self.rows]
        return "\n".join([*lines, *([self.note] if self.note else [])])

    def markdown(self) -> str:
        rule = "|".join(" --- " if column in WORDS else " ---: " for column in self.columns)
        lines = [f"## {self.title}", "", self._row(self.columns), f"|{rule}|", *map(self._row, self.rows)]
        return "\n".join([*lines, *(["", self.note] if self.note else [])])

    def _line(self, cells: tuple[str, ...], widths: list[int]) -> str:
        aligned = zip(self.columns, cells, widths, strict=True)
        return "  ".join(c.ljust(w) if column in WORDS else c.rjust(w) for column, c, w in aligned).rstrip()

    @staticmethod
    def _row(cells: tuple[str, ...]) -> str:
        bold = cells[0].startswith("redrive")
        return "| " + " | ".join(f"**{c}**" if bold and c else c for c in cells) + " |"
