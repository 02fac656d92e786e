"""The picture of a timeline: valid, escaped, and nothing on top of anything else."""

from __future__ import annotations

import itertools
from xml.etree import ElementTree

from isthmus.recovery.operation import Telling
from isthmus.recovery.timeline import GUTTER, WIDTH, Bar, Mark, Timeline, layout, svg, text_width

SVG = "{http://www.w3.org/2000/svg}"


def a_disaster() -> Timeline:
    """Crowded: steps of a tenth of a second, long names, marks at one moment, things at both edges."""
    made = Timeline(["east", "west", "a-link-with-a-rather-long-name", "operation"], began=1000.0)
    made.bars += [
        Bar("east", "in service", "good", 1000.0, 1020.0),
        Bar("east", "dead", "bad", 1020.0, 1060.0),
        Bar("east", "writer east-1", "traffic", 1001.0, 1020.5),
        Bar("west", "standby", "wait", 1000.0, 1119.0),
        Bar("west", "the last moment, told in many words", "good", 1119.5, 1120.0),
        Bar("operation", 'of <all> & "everything"', "step", 1030.0, 1030.1),
    ]
    made.bars += [Bar("operation", f"step-{n}", "step", 1020.0 + n / 10, 1020.0 + (n + 1) / 10) for n in range(12)]
    made.marks += [Mark("east", f"east killed {n}", "bad", 1020.0) for n in range(3)]
    made.marks += [Mark("west", "west in service", "good", 1120.0), Mark("new lane", "?", "step", 1000.0)]
    made.ended = 1120.0
    return made


def test_valid_xml_with_every_name_in_it() -> None:
    made = a_disaster()
    root = ElementTree.fromstring(svg(made, 'A <drill> & "more"'))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    told = [title.text or "" for title in root.iter(f"{SVG}title")]
    for thing in (*made.bars, *made.marks):
        assert any(words.startswith(thing.label) for words in told)
        if isinstance(thing, Mark) or thing.kind in ("step", "traffic"):
            assert thing.label in texts
    assert 'A <drill> & "more"' in texts
    assert {"east", "west", "operation", "new lane"} <= set(texts)
    assert "script" not in svg(made, "t")


def test_nothing_overlaps() -> None:
    for lane, things in layout(a_disaster()).items():
        for one, other in itertools.combinations(things, 2):
            if one.row == other.row:
                assert one.right <= other.left or other.right <= one.left, (lane, one, other)
        for each in things:
            assert each.left <= each.text_x
            assert each.text_x + text_width(each.text) <= each.right + 0.01
            assert each.left >= 0
            assert each.right <= WIDTH


def test_states_share_one_row_and_are_cut_to_fit() -> None:
    placed = layout(a_disaster())
    states = [each for things in placed.values() for each in things if each.thing.kind in ("good", "bad", "wait")]
    bars = [each for each in states if isinstance(each.thing, Bar)]
    assert {each.row for each in bars} == {0}
    assert [each.text for each in placed["east"] if each.row == 0] == ["in service", "dead"]
    assert next(each.text for each in placed["west"] if each.thing.label.startswith("the last")) == ""


def test_lane_names_stay_left_of_the_bars() -> None:
    root = ElementTree.fromstring(svg(a_disaster(), "t"))
    names = [t for t in root.iter(f"{SVG}text") if "tl-name" in t.attrib["class"]]
    assert names
    assert all(float(t.attrib["x"]) + len(t.text or "") * 0.64 * 12 <= GUTTER + 16 for t in names)


def test_a_text_that_is_longer_than_the_picture_is_cut() -> None:
    made = Timeline(["a"], began=0.0, ended=10.0)
    made.marks.append(Mark("a", "x" * 1000, "step", 5.0))
    ((only,),) = layout(made).values()
    assert only.text.endswith("…")
    assert only.left >= 0


def test_states_follow_each_other_and_end() -> None:
    made = Timeline(["east"])
    made.state("east", "in service", "good")
    made.state("east", "in service", "good")
    made.state("east", "dead", "bad")
    with made.during("east", "copy"):
        pass
    made.step("operation", Telling("drain", "done", "wait", 0.5))
    made.step("operation", Telling("drain", "begins", "wait"))
    made.close()
    assert [bar.label for bar in made.bars] == ["in service", "dead", "copy", "drain"]
    assert made.bars[0].end is not None
    assert made.bars[0].end <= made.bars[1].start
    assert all(bar.end is not None for bar in made.bars)
    assert made.to_json()["lanes"] == ["east"]


def test_an_empty_one_is_a_picture_too() -> None:
    ElementTree.fromstring(svg(Timeline([]), "nothing"))
