"""A part of a link: a link of its own that copies some ranges of the source's logs, and nothing else.

Invariant: a part copies no record outside of ``within``, whatever its positions say and whatever is written, or appears, at the source
meanwhile. Only recovery makes one; no file can ask for it.
"""

from __future__ import annotations

from typing import Any

from isthmus.config.link import Link

# By source topic and partition: the first offset, and the one behind the last.
Within = dict[str, dict[int, tuple[int, int]]]
# By source topic, partition and place of birth (as origin headers name it): before which birth offset the destination has all of them.
Had = dict[str, dict[int, dict[str, int]]]
# The place of birth of records that have no origin header: where they lie.
OWN = ""


class Part(Link):
    """Leaves out what is not ``within`` (rules/ranges.py), and what the destination has by then (rules/had.py)."""

    within: Within
    had: Had = {}


def part(link: Link, within: Within, **changes: Any) -> Part:
    """These ranges of what a link copies."""
    return Part.model_construct(**{**link.__dict__, **changes, "within": within})
