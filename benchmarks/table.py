"""A table, on the terminal and in Markdown."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    note: str = ""

    def text(self) -> str:
        widths = [max(len(row[n]) for row in [self.columns, *self.rows]) for n in range(len(self.columns))]
        lines = [self.title, self._line(self.columns, widths), self._line(tuple("-" * w for w in widths), widths)]
        lines += [self._line(row, widths) for row in self.rows]
        return "\n".join([*lines, *([self.note] if self.note else [])])

    def markdown(self) -> str:
        numbers = "|".join([" --- ", *(" ---: " for _ in self.columns[1:])])
        lines = [f"## {self.title}", "", self._row(self.columns), f"|{numbers}|", *map(self._row, self.rows)]
        return "\n".join([*lines, *(["", self.note] if self.note else [])])

    @staticmethod
    def _line(cells: tuple[str, ...], widths: list[int]) -> str:
        first, *rest = [(cell, width) for cell, width in zip(cells, widths, strict=True)]
        return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]).rstrip()

    @staticmethod
    def _row(cells: tuple[str, ...]) -> str:
        bold = cells[0].startswith("redrive")
        return "| " + " | ".join(f"**{c}**" if bold and c else c for c in cells) + " |"
