"""What was measured, beside what was aimed at."""

from dataclasses import asdict, dataclass
from typing import Optional


@dataclass
class Row:
    scenario: str
    name: str
    value: float
    unit: str
    # At most, or with `least` at least, this; None: only told.
    aim: Optional[float]
    least: bool
    note: str

    @property
    def met(self):
        if self.aim is None:
            return None
        return self.value >= self.aim if self.least else self.value <= self.aim

    def cells(self):
        aim = "" if self.aim is None else f"{'≥' if self.least else '≤'} {number(self.aim)}"
        met = {None: "", True: "yes", False: "NO"}[self.met]
        return [self.scenario, self.name, f"{number(self.value)} {self.unit}".strip(), aim, met,
                self.note]


class Results:
    def __init__(self):
        self.scenario = ""
        self.all = []

    def add(self, name, value, unit="", most=None, least=None, note=""):
        aim = most if least is None else least
        row = Row(self.scenario, name, value, unit, aim, least is not None, note)
        self.all.append(row)
        return row

    def missed(self):
        return [row for row in self.all if row.met is False]

    def rows(self):
        return [{**asdict(row), "met": row.met} for row in self.all]

    def table(self):
        if not self.all:
            return "nothing was measured"
        lines = [["scenario", "what", "measured", "aim", "met", ""]]
        lines += [row.cells() for row in self.all]
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        lines.insert(1, ["-" * width for width in widths])
        return "\n".join(
            "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |"
            for line in lines
        )


def number(value):
    """Three digits that matter, and no more zeros than that."""
    if abs(value) >= 100:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
