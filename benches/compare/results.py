"""The table of measurements and targets."""

from dataclasses import asdict, dataclass
from typing import Optional


@dataclass
class Row:
    scenario: str
    name: str
    value: float
    unit: str
    # The maximum, or with `least` the minimum; None without a target.
    target: Optional[float]
    least: bool
    note: str

    @property
    def met(self):
        if self.target is None:
            return None
        return self.value >= self.target if self.least else self.value <= self.target

    def cells(self):
        target = "" if self.target is None else f"{'≥' if self.least else '≤'} {number(self.target)}"
        met = {None: "", True: "yes", False: "NO"}[self.met]
        return [self.scenario, self.name, f"{number(self.value)} {self.unit}".strip(), target, met,
                self.note]


class Results:
    def __init__(self):
        self.scenario = ""
        self.all = []

    def add(self, name, value, unit="", most=None, least=None, note=""):
        target = most if least is None else least
        row = Row(self.scenario, name, value, unit, target, least is not None, note)
        self.all.append(row)
        return row

    def missed(self):
        return [row for row in self.all if row.met is False]

    def rows(self):
        return [{**asdict(row), "met": row.met} for row in self.all]

    def table(self):
        if not self.all:
            return "nothing was measured"
        lines = [["scenario", "what", "measured", "target", "met", ""]]
        lines += [row.cells() for row in self.all]
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        lines.insert(1, ["-" * width for width in widths])
        return "\n".join(
            "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |"
            for line in lines
        )


def number(value):
    """Formats three significant digits."""
    if abs(value) >= 100:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
