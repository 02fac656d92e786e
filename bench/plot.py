"""A bar chart as SVG, drawn by hand: no plotting library for one picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

COLOURS = {
    ("isthmus", "exactly-once"): "#2563eb",
    ("isthmus", "at-least-once"): "#93c5fd",
    ("mirrormaker2", "at-least-once"): "#f59e0b",
    ("mirrormaker2", "exactly-once"): "#b45309",
    ("redpanda-connect", "at-least-once"): "#dc2626",
}
BAR, GAP, LEFT, WIDTH = 18, 6, 250, 860


def bars(rows: list[dict[str, Any]], path: Path, title: str, value: str = "records/s") -> None:
    """One bar a row, grouped by payload and compression."""
    most = max(row[value] for row in rows)
    parts: list[str] = []
    y = 40
    group = None
    for row in sorted(rows, key=lambda r: (r["payload"], r["compression"])):
        if (row["payload"], row["compression"]) != group:
            group = (row["payload"], row["compression"])
            y += 14
            parts.append(f'<text x="10" y="{y}" font-weight="bold">{row["payload"]} B, {row["compression"]}</text>')
            y += 8
        length = max(1, round(row[value] / most * (WIDTH - LEFT - 110)))
        colour = COLOURS.get((row["system"], row["delivery"]), "#6b7280")
        parts.append(f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{row["system"]} {row["delivery"]}</text>')
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{length}" height="{BAR}" rx="2" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + length + 6}" y="{y + 13}">{row[value]:,}</text>')
        y += BAR + GAP
    y += 10
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" font-family="sans-serif" font-size="13">'
        f'<rect width="{WIDTH}" height="{y}" fill="#ffffff"/><text x="10" y="24" font-size="16">{title}</text>'
        + "".join(parts)
        + "</svg>\n"
    )
