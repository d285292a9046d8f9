#!/usr/bin/env python3
"""Draw docs/quality.svg from the tables of docs/quality.md: MAP and recall@10 against bytes per vector.

    python3 scripts/plot_quality.py            # write docs/quality.svg
    python3 scripts/plot_quality.py --check    # exit code 1 if it is not what the tables give

Needs Python 3.9 or later and nothing else. Each point lies at the bytes that a method stores for a vector,
factors included. These can be fewer than its column of the table says; the cell then gives them in brackets.
"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import NamedTuple, Optional

DOCS = Path(__file__).resolve().parent.parent / "docs"
SOURCE, TARGET = DOCS / "quality.md", DOCS / "quality.svg"
# Sets as the tables call them, and as the picture does.
SETS = {
    "mnist": "MNIST",
    "cifar10-gist512": "CIFAR-10 GIST",
    "debian-minilm384": "MiniLM",
    "glove100": "GloVe",
    "bigann10k-sift128": "SIFT",
}
MEASURES = ["MAP (nearest 2 %)", "recall@10, no re-ranking"]


class Line(NamedTuple):
    """A method: its row in the tables, its name in the legend, and how it is drawn."""

    row: str
    name: str
    style: str
    dash: str = ""
    square: bool = False


# The last ones are drawn on top.
LINES = [
    Line("FAISS RaBitQ, qb 0", "FAISS RaBitQ", "rabitq", "", True),
    Line("FAISS PQ", "FAISS PQ", "pq", "6 3", True),
    Line("FAISS OPQ,PQ", "FAISS OPQ+PQ", "opq", "", True),
    Line("FAISS RQ", "FAISS RQ", "rq", "2 3", True),
    Line("FROSH refined, Hamming", "frosh bits, Hamming", "hamming", "2 3"),
    Line("FROSH refined, estimated", "frosh bits, estimated", "estimated", "6 3"),
    Line("FROSH quantiser", "frosh quantiser", "quantiser"),
]
# Colour on a light and on a dark page, and width.
STYLES = {
    "quantiser": ("#0064b4", "#5db4ff", 3.2),
    "estimated": ("#2a8fd6", "#7cc4ff", 2.0),
    "hamming": ("#12897a", "#4fd1bd", 2.0),
    "opq": ("#c4480a", "#ff8c4a", 2.4),
    "rq": ("#b3261e", "#ff7b72", 2.0),
    "pq": ("#d98324", "#f5b460", 2.0),
    "rabitq": ("#8a3a9c", "#d68fe8", 2.0),
}
# Light and dark: page, plot area, text, fainter text, grid.
PAGE = [("#ffffff", "#f6f8fa", "#1f2328", "#59636e", "#d9dee3"),
        ("#0d1117", "#161b22", "#e6edf3", "#9aa4af", "#30363d")]

WIDTH, LEFT, TOP, GAP = 1080, 58, 92, 16
PANEL_WIDTH = (WIDTH - LEFT - 14 - GAP * (len(SETS) - 1)) / len(SETS)
PANEL_HEIGHT, BETWEEN, MARGIN = 190, 44, 12
HEIGHT = TOP + 2 * PANEL_HEIGHT + BETWEEN + 106


class Cell(NamedTuple):
    """What was measured of a method at a size."""

    bytes: int
    values: tuple[float, float]
    seconds: Optional[float]


class Table(NamedTuple):
    """What was measured on a set."""

    shape: str
    cells: dict[str, list[Cell]]


def read_tables(text: str) -> dict[str, Table]:
    """The tables of the page, by set: four columns for each size."""
    tables: dict[str, Table] = {}
    # Other sections have tables of their own.
    for part in re.split(r"^### ", re.split(r"^## ", text, flags=re.M)[0], flags=re.M)[1:]:
        name, shape = re.match(r"(\S+): (.+)", part).groups()
        rows = [[cell.strip() for cell in line.strip("| ").split("|")]
                for line in part.splitlines() if line.startswith("|")]
        sizes = [int(size) for size in re.findall(r"(\d+) bytes: MAP", part)]
        if not sizes:
            raise SystemExit(f"{SOURCE}: the table of {name} has no sizes")
        cells: dict[str, list[Cell]] = {}
        for row in rows[2:]:
            groups = [row[1 + 4 * i:5 + 4 * i] for i in range(len(sizes))]
            found = [cell(size, group) for size, group in zip(sizes, groups)]
            # A method that has no use for more bytes says the same twice.
            distinct = {c.bytes: c for c in reversed(found) if c}
            cells[row[0]] = [distinct[size] for size in sorted(distinct)]
        tables[name] = Table(shape, cells)
    return tables


def cell(size: int, group: list[str]) -> Optional[Cell]:
    """One size of one method; none where it was not measured."""
    if group[0] == "-":
        return None
    value, stored = re.match(r"([\d.]+)(?: \((\d+) B\))?$", group[0]).groups()
    return Cell(int(stored or size), (float(value), float(group[1])), None if group[3] == "-" else float(group[3]))


def seconds(tables: dict[str, Table], rows: list[str]) -> str:
    """The least and the most that training took."""
    all_of = [c.seconds for table in tables.values() for row in rows for c in table.cells[row] if c.seconds is not None]
    return f"{min(all_of):.2g} to {max(all_of):.3g} s"


def style() -> str:
    """Colours for light pages, and for dark ones where the viewer asks for them."""
    def rules(dark: int) -> str:
        page, area, text, faint, grid = PAGE[dark]
        lines = [f".page{{fill:{page}}} .area{{fill:{area}}} text{{fill:{text}}} .faint{{fill:{faint}}}",
                 f".grid{{stroke:{grid}}}"]
        for name, colours in STYLES.items():
            lines.append(f".{name}{{stroke:{colours[dark]}}} .{name}-mark{{fill:{colours[dark]};stroke:{page}}}")
        return "\n".join(lines)

    widths = " ".join(f".{name}{{stroke-width:{w}}}" for name, (_, _, w) in STYLES.items())
    return (f"<style>\ntext{{font-family:system-ui,'Segoe UI','DejaVu Sans',sans-serif;font-size:14px}}\n"
            f".title{{font-size:19px;font-weight:600}} .set{{font-size:15px;font-weight:600}}\n"
            f".line{{fill:none}} {widths}\n{rules(0)}\n"
            f"@media (prefers-color-scheme: dark){{\n{rules(1)}\n}}\n</style>")


def mark(line: Line, x: float, y: float) -> str:
    """A point: squares are FAISS's, circles frosh's."""
    if line.square:
        return f'<rect class="{line.style}-mark" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>'
    return f'<circle class="{line.style}-mark" cx="{x:.1f}" cy="{y:.1f}" r="4.6"/>'


def path(line: Line, points: list[tuple[float, float]]) -> str:
    """The line through the points."""
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = f' stroke-dasharray="{line.dash}"' if line.dash else ""
    return f'<polyline class="line {line.style}" points="{places}"{dash}/>'


def panel(table: Table, measure: int, left: float, top: float, first: bool) -> list[str]:
    """One set and one measure."""
    def x_of(size: float) -> float:
        return left + MARGIN + math.log2(size / 8) / 2 * (PANEL_WIDTH - 2 * MARGIN)

    def y_of(value: float) -> float:
        return top + PANEL_HEIGHT * (1 - value)

    out = [f'<rect class="area" x="{left:.1f}" y="{top}" width="{PANEL_WIDTH:.1f}" height="{PANEL_HEIGHT}"/>']
    for i in range(6):
        value = i / 5
        y = y_of(value)
        out.append(f'<line class="grid" x1="{left:.1f}" x2="{left + PANEL_WIDTH:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        if first:
            out.append(f'<text class="faint" x="{left - 8:.1f}" y="{y + 5:.1f}" text-anchor="end">{value:.1f}</text>')
    for size in (8, 16, 32):
        out.append(f'<text class="faint" x="{x_of(size):.1f}" y="{top + PANEL_HEIGHT + 17}" '
                   f'text-anchor="middle">{size}</text>')
    for line in LINES:
        points = [(x_of(c.bytes), y_of(c.values[measure])) for c in table.cells[line.row]]
        out.append(path(line, points))
        out += [mark(line, x, y) for x, y in points]
    return out


def draw(tables: dict[str, Table]) -> str:
    """The whole picture."""
    bits = seconds(tables, ["FROSH refined, Hamming", "FROSH refined, estimated"])
    ours = seconds(tables, ["FROSH quantiser"])
    theirs = seconds(tables, ["FAISS PQ", "FAISS OPQ,PQ"])
    summary = (f"Training, one thread: frosh quantiser {ours}, bits {bits}; FAISS PQ and OPQ+PQ {theirs} (65,536 rows)")
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
           f'aria-label="MAP and recall@10 against bytes per vector, frosh and FAISS, five data sets">',
           style(), f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>',
           f'<text class="title" x="{LEFT}" y="28">Quality against bytes per vector: frosh and FAISS</text>',
           f'<text class="faint" x="{LEFT}" y="50">{summary}</text>']
    for measure, name in enumerate(MEASURES):
        top = TOP + measure * (PANEL_HEIGHT + BETWEEN)
        middle = top + PANEL_HEIGHT / 2
        out.append(f'<text x="18" y="{middle}" text-anchor="middle" transform="rotate(-90 18 {middle})">{name}</text>')
        for i, (key, title) in enumerate(SETS.items()):
            left = LEFT + i * (PANEL_WIDTH + GAP)
            if measure == 0:
                dim = re.search(r"rows of (\d+)", tables[key].shape).group(1)
                out.append(f'<text x="{left + PANEL_WIDTH / 2:.1f}" y="{TOP - 10}" text-anchor="middle">'
                           f'<tspan class="set">{title}</tspan> <tspan class="faint">{dim}-d</tspan></text>')
            out += panel(tables[key], measure, left, top, i == 0)
    bottom = TOP + 2 * PANEL_HEIGHT + BETWEEN
    out.append(f'<text class="faint" x="{LEFT + (WIDTH - LEFT) / 2}" y="{bottom + 37}" text-anchor="middle">'
               f'bytes per vector, all included</text>')
    out.append(f'<text class="faint" x="{WIDTH - 14}" y="{bottom + 67}" text-anchor="end">'
               f'lines end where one bit per dimension is used up</text>')
    # Two rows: ours, then FAISS's, the best first.
    for row, square in enumerate((False, True)):
        for i, line in enumerate(l for l in reversed(LINES) if l.square == square):
            x, y = LEFT + i * 215, bottom + 62 + 26 * row
            out += [path(line, [(x, y), (x + 34, y)]), mark(line, x + 17, y),
                    f'<text x="{x + 42}" y="{y + 5}">{line.name}</text>']
    return "\n".join([*out, "</svg>", ""])


def main() -> None:
    picture = draw(read_tables(SOURCE.read_text(encoding="utf-8")))
    if sys.argv[1:] == ["--check"]:
        if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != picture:
            raise SystemExit(f"{TARGET} is not what {SOURCE} gives: run scripts/plot_quality.py")
    elif sys.argv[1:]:
        raise SystemExit(__doc__)
    else:
        TARGET.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
