"""A bar chart as SVG, drawn by hand: no plotting library for one picture."""

from __future__ import annotations

import math
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


def curve(
    points: list[tuple[float, float]], path: Path, title: str, x_name: str, y_name: str, logarithmic: bool = True
) -> None:
    """A line through a few points; the x axis is logarithmic unless told otherwise."""
    width, height, left, bottom, top = 640, 320, 80, 50, 40
    scaled = [math.log10(x) if logarithmic else x for x, _ in points]
    low, high = min(scaled), max(scaled)
    most = max(y for _, y in points) * 1.1 or 1.0
    parts, places = [], []
    for (x, y), at in zip(points, scaled, strict=True):
        across = left + (at - low) / ((high - low) or 1) * (width - left - 40)
        down = height - bottom - y / most * (height - bottom - top)
        places.append(f"{across:.0f},{down:.0f}")
        parts.append(f'<circle cx="{across:.0f}" cy="{down:.0f}" r="4" fill="#2563eb"/>')
        parts.append(f'<text x="{across:.0f}" y="{down - 9:.0f}" text-anchor="middle" font-size="11">{y:,.4g}</text>')
        parts.append(f'<text x="{across:.0f}" y="{height - bottom + 18}" text-anchor="middle">{x:,g}</text>')
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/><text x="10" y="22" font-size="15">{title}</text>'
        f'<line x1="{left}" y1="{height - bottom}" x2="{width - 20}" y2="{height - bottom}" stroke="#9ca3af"/>'
        f'<polyline points="{" ".join(places)}" fill="none" stroke="#2563eb" stroke-width="2"/>'
        f'<text x="{width / 2}" y="{height - 10}" text-anchor="middle">{x_name}</text>'
        f'<text x="14" y="{height / 2}" transform="rotate(-90 14 {height / 2})" text-anchor="middle">{y_name}</text>'
        + "".join(parts)
        + "</svg>\n"
    )
