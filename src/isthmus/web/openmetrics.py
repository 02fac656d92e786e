"""The OpenMetrics text format: families of samples -> text.

Invariant: what is written is valid whatever stands in labels: names are ours, values of labels are escaped, a counter's
sample ends in ``_total``, and the text ends with ``# EOF``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Labels = Mapping[str, str]


@dataclass(slots=True)
class Family:
    """One metric with its samples. A summary's samples are pairs: how many, and their sum."""

    name: str
    kind: Literal["gauge", "counter", "summary"]
    help: str
    samples: list[tuple[Labels, float | tuple[int, float]]] = field(default_factory=list)

    def add(self, value: float | tuple[int, float], **labels: str) -> Family:
        self.samples.append((labels, value))
        return self


def render(families: Iterable[Family]) -> str:
    lines: list[str] = []
    for family in families:
        if not family.samples:
            continue
        lines += [f"# TYPE {family.name} {family.kind}", f"# HELP {family.name} {_escaped(family.help)}"]
        for labels, value in family.samples:
            if isinstance(value, tuple):
                lines.append(f"{family.name}_count{_labels(labels)} {value[0]}")
                lines.append(f"{family.name}_sum{_labels(labels)} {_number(value[1])}")
            else:
                suffix = "_total" if family.kind == "counter" else ""
                lines.append(f"{family.name}{suffix}{_labels(labels)} {_number(value)}")
    return "\n".join([*lines, "# EOF", ""])


def _labels(labels: Labels) -> str:
    inside = ",".join(f'{name}="{_escaped(value, quotes=True)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def _escaped(text: str, quotes: bool = False) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quotes else text


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if float(value).is_integer() else repr(float(value))
