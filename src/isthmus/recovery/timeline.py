"""What happened when, and a picture of it: lanes, bars that last, marks that do not.

Invariants:
- no two texts of the picture overlap: whatever does not fit beside its neighbours goes to another row of its lane. States, of which a
  lane has one at a time, share its first row, and their names are cut to fit;
- every name in it is escaped: it may come from a configuration;
- it stands alone: no script, no font, no address, and it is readable on light and on dark ground.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from xml.sax.saxutils import escape, quoteattr

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isthmus.recovery.operation import Telling

Kind = Literal["good", "bad", "wait", "step", "traffic"]


@dataclass(slots=True)
class Bar:
    """Something that lasts. ``end`` is None while it does."""

    lane: str
    label: str
    kind: Kind
    start: float
    end: float | None = None


@dataclass(slots=True)
class Mark:
    """A moment."""

    lane: str
    label: str
    kind: Kind
    at: float


@dataclass(slots=True)
class Timeline:
    """Times are seconds since the epoch. Lanes are drawn in the order in which they are named."""

    lanes: list[str]
    began: float = field(default_factory=time.time)
    ended: float | None = None
    bars: list[Bar] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    _states: dict[str, Bar] = field(default_factory=dict, init=False, repr=False)

    def begin(self, lane: str, label: str, kind: Kind = "step") -> Bar:
        """A bar that begins now; give it to ``end``."""
        bar = Bar(lane, label, kind, time.time())
        self.bars.append(bar)
        return bar

    def end(self, bar: Bar) -> None:
        if bar.end is None:
            bar.end = time.time()

    @contextmanager
    def during(self, lane: str, label: str, kind: Kind = "step") -> Iterator[Bar]:
        bar = self.begin(lane, label, kind)
        try:
            yield bar
        finally:
            self.end(bar)

    def mark(self, lane: str, label: str, kind: Kind = "step", at: float | None = None) -> None:
        self.marks.append(Mark(lane, label, kind, time.time() if at is None else at))

    def state(self, lane: str, label: str, kind: Kind) -> None:
        """A lane has one state at a time: the one before it ends."""
        before = self._states.get(lane)
        if before is not None:
            if (before.label, before.kind) == (label, kind):
                return
            self.end(before)
        self._states[lane] = self.begin(lane, label, kind)

    def step(self, lane: str, telling: Telling, prefix: str = "") -> None:
        """A step of an operation that is done, as it was told."""
        if telling.state == "done":
            now = time.time()
            self.bars.append(Bar(lane, prefix + telling.step, "step", now - telling.seconds, now))

    def close(self) -> None:
        """The end: whatever still lasts lasts until now."""
        self.ended = time.time()
        for bar in self.bars:
            self.end(bar)

    def to_json(self) -> dict[str, Any]:
        return {
            "began": self.began,
            "ended": self.ended,
            "lanes": self.lanes,
            "bars": [asdict(bar) for bar in self.bars],
            "marks": [asdict(mark) for mark in self.marks],
        }


# -- the picture ---------------------------------------------------------------------------------------------

WIDTH = 1180.0
GUTTER = 130.0
MARGIN = 16.0
HEAD = 46.0
ROW = 21.0
BAR = 15.0
PAD = 7.0
FONT = 11.0
# Wider than what common fonts need on average, so that a text is never longer than the room that is kept for it.
LETTER = 0.62 * FONT
GAP = 5.0


@dataclass(slots=True)
class Placed:
    """Where a bar or a mark is drawn, with its text; ``left`` to ``right`` is the room that both take in their row."""

    thing: Bar | Mark
    row: int
    x: float
    width: float
    text_x: float
    text: str
    left: float
    right: float


def text_width(text: str) -> float:
    """The room that a text is given."""
    # Signs of other scripts may be as wide as they are high.
    return sum(LETTER if ord(letter) < 0x2E80 else FONT * 1.1 for letter in text)


def layout(timeline: Timeline) -> dict[str, list[Placed]]:
    """All bars and marks of each lane, in rows in which nothing touches."""
    end = _end(timeline)
    scale = (WIDTH - GUTTER - 2 * MARGIN) / max(end - timeline.began, 1e-3)
    edge = WIDTH - MARGIN
    placed: dict[str, list[Placed]] = {}
    for lane in _lanes(timeline):
        things: list[Bar | Mark] = [each for each in timeline.bars if each.lane == lane]
        things += [each for each in timeline.marks if each.lane == lane]
        # The first row is for states; marks come next, and then the rest.
        rows: list[list[tuple[float, float]]] = [[]] if any(map(_is_state, things)) else []
        first = len(rows)
        found = []
        for thing in sorted(things, key=_order):
            start = thing.start if isinstance(thing, Bar) else thing.at
            x = GUTTER + MARGIN + max(0.0, start - timeline.began) * scale
            width = 0.0
            if isinstance(thing, Bar):
                width = max(2.0, ((thing.end if thing.end is not None else end) - start) * scale)
            if _is_state(thing):
                width = max(1.0, width - 1.0)  # a line of ground between two of them
                text = _cut(thing.label, width - 2 * GAP)
                found.append(Placed(thing, 0, x, width, x + GAP if text else x, text, x, x + width))
                continue
            half = 0.0 if isinstance(thing, Bar) else 5.0
            # Inside, to the right, or to the left, but never among the names of the lanes. What fits nowhere is cut.
            after, before = edge - (x + width + half + GAP), x - half - GAP - GUTTER
            text = _cut(thing.label, max(width - 2 * GAP, after, before))
            wide = text_width(text)
            if isinstance(thing, Bar) and wide + 2 * GAP <= width:
                text_x, left, right = x + GAP, x, x + width
            elif wide <= after:
                text_x, left, right = x + width + half + GAP, x - half, x + width + half + GAP + wide
            else:
                text_x, left, right = x - half - GAP - wide, x - half - GAP - wide, x + width + half
            row = next((n for n in range(first, len(rows)) if _free(rows[n], left, right)), len(rows))
            if row == len(rows):
                rows.append([])
            rows[row].append((left, right))
            found.append(Placed(thing, row, x, width, text_x, text, left, right))
        placed[lane] = found
    return placed


def _is_state(thing: Bar | Mark) -> bool:
    return isinstance(thing, Bar) and thing.kind in ("good", "bad", "wait")


def _order(thing: Bar | Mark) -> tuple[int, float]:
    return (0, thing.at) if isinstance(thing, Mark) else (1, thing.start)


def _cut(text: str, room: float) -> str:
    """As much of a text as there is room for."""
    while text and text_width(text) > room:
        text = text[:-2].rstrip("… ") + "…" if len(text) > 3 else ""
    return text


def _free(taken: Sequence[tuple[float, float]], left: float, right: float) -> bool:
    return all(right + GAP <= other_left or other_right + GAP <= left for other_left, other_right in taken)


def _lanes(timeline: Timeline) -> list[str]:
    """The named ones, and whatever else something was put into."""
    used = [*(bar.lane for bar in timeline.bars), *(mark.lane for mark in timeline.marks)]
    return list(dict.fromkeys([*timeline.lanes, *used]))


def _end(timeline: Timeline) -> float:
    ends = [bar.end if bar.end is not None else bar.start for bar in timeline.bars]
    ends += [mark.at for mark in timeline.marks]
    return max([timeline.began + 1.0, *ends, *([timeline.ended] if timeline.ended else [])])


_COLOURS = {
    "light": {
        "ground": "#ffffff", "ink": "#1d2330", "quiet": "#5d6675", "line": "#dde1e8", "lane": "#f6f7f9",
        "good": "#bfe5c6", "bad": "#f3b8b2", "wait": "#f6dfa4", "step": "#c5d5f2", "traffic": "#dccdf0",
        "alarm": "#b3261e", "event": "#1f5fbf",
    },
    "dark": {
        "ground": "#14171d", "ink": "#e4e8ee", "quiet": "#9aa4b3", "line": "#343b47", "lane": "#1a1e26",
        "good": "#1f5a2c", "bad": "#7a2a24", "wait": "#6b5210", "step": "#2b4578", "traffic": "#52387a",
        "alarm": "#ff8a80", "event": "#8ab4f8",
    },
}  # fmt: skip


def _style() -> str:
    def rules(colours: dict[str, str]) -> str:
        fills = ["ground", "lane", "good", "bad", "wait", "step", "traffic", "alarm", "event"]
        return (
            "".join(f".tl-{name}{{fill:{colours[name]}}}" for name in fills)
            + f".tl-text{{fill:{colours['ink']}}}.tl-quiet{{fill:{colours['quiet']}}}.tl-grid{{stroke:{colours['line']}}}"
            + f".tl-cut{{stroke:{colours['alarm']}}}.tl-moment{{stroke:{colours['event']}}}"
        )

    return (
        f".tl{{font:{FONT:g}px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}}"
        ".tl-title{font-size:15px;font-weight:600}.tl-name{font-size:12px;font-weight:600}"
        ".tl-cut,.tl-moment{stroke-dasharray:3 3;stroke-opacity:.7}"
        + rules(_COLOURS["light"])
        + "@media (prefers-color-scheme: dark){"
        + rules(_COLOURS["dark"])
        + "}"
    )


def svg(timeline: Timeline, title: str) -> str:
    """The picture, as one SVG document that can also stand inside a page."""
    placed = layout(timeline)
    tops: dict[str, tuple[float, float]] = {}
    y = HEAD
    for lane, things in placed.items():
        height = max(1, 1 + max((each.row for each in things), default=0)) * ROW + 2 * PAD
        tops[lane] = (y, height)
        y += height
    bottom = y
    end = _end(timeline)
    scale = (WIDTH - GUTTER - 2 * MARGIN) / max(end - timeline.began, 1e-3)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tl" viewBox="0 0 {WIDTH:g} {bottom + 40:g}" width="100%" role="img" '
        f"aria-label={quoteattr(title)}>",
        f"<title>{escape(title)}</title>",
        f"<style>{_style()}</style>",
        f'<rect class="tl-ground" width="{WIDTH:g}" height="{bottom + 40:g}" rx="8"/>',
        f'<text class="tl-text tl-title" x="{MARGIN:g}" y="27">{escape(title)}</text>',
    ]
    for number, (lane, (top, height)) in enumerate(tops.items()):
        if number % 2 == 0:
            lines.append(f'<rect class="tl-lane" x="0" y="{top:g}" width="{WIDTH:g}" height="{height:g}"/>')
        room = int((GUTTER - 8) / (0.64 * 12))
        name = lane if len(lane) <= room else lane[: room - 1] + "…"
        lines.append(f'<text class="tl-text tl-name" x="{MARGIN:g}" y="{top + PAD + 12:g}">{escape(name)}</text>')
    lines += _axis(end - timeline.began, scale, bottom)
    # Lines of moments run through all lanes, below everything else; beginnings of operations are moments of their own lane only.
    for things in placed.values():
        for each in things:
            if isinstance(each.thing, Mark) and each.thing.kind != "step":
                css = "tl-cut" if each.thing.kind == "bad" else "tl-moment"
                lines.append(f'<path class="{css}" d="M{each.x:.1f} {HEAD:g}V{bottom:g}"/>')
    for lane, things in placed.items():
        for each in things:
            lines += _drawn(each, tops[lane][0] + PAD + each.row * ROW)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _drawn(each: Placed, top: float) -> list[str]:
    thing = each.thing
    if isinstance(thing, Bar):
        took = (thing.end or thing.start) - thing.start
        shape = (
            f'<rect class="tl-{thing.kind}" x="{each.x:.1f}" y="{top:g}" width="{each.width:.1f}" height="{BAR:g}" rx="3">'
            f"<title>{escape(thing.label)}: {took:.1f} s</title></rect>"
        )
    else:
        css = "tl-alarm" if thing.kind == "bad" else "tl-event"
        shape = (
            f'<path class="{css}" d="M{each.x - 5:.1f} {top + BAR / 2:g}l5 -5l5 5l-5 5z">'
            f"<title>{escape(thing.label)}</title></path>"
        )
    if not each.text:
        return [shape]
    return [shape, f'<text class="tl-text" x="{each.text_x:.1f}" y="{top + 11.3:g}">{escape(each.text)}</text>']


def _axis(seconds: float, scale: float, bottom: float) -> list[str]:
    """Ticks at round numbers of seconds, or of minutes where that is shorter."""
    wanted = seconds / 10
    power = 10 ** math.floor(math.log10(max(wanted, 1e-3)))
    steps = [power * factor for factor in (1, 2, 5, 10)]
    if wanted > 20:
        steps = [30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0, 43200.0]
    step = next((each for each in steps if each >= wanted), steps[-1])
    lines = []
    at = 0.0
    while at <= seconds:
        x = GUTTER + MARGIN + at * scale
        words = f"{at:g} s" if step < 30 else f"{at / 60:g} min"
        lines.append(f'<path class="tl-grid" d="M{x:.1f} {HEAD:g}V{bottom:g}"/>')
        lines.append(f'<text class="tl-quiet" x="{x:.1f}" y="{bottom + 16:g}" text-anchor="middle">{words}</text>')
        at += step
    return lines
