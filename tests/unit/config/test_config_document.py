"""The YAML itself: syntax, duplicates, aliases, tags, and the place of each."""

from __future__ import annotations

import pytest

from isthmus.config import load
from isthmus.errors import ConfigError

SITES = "sites:\n  a: {bootstrap: 'a:1'}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1:1 : the file is empty; isthmus init writes one to start from"),
        ("# only a comment\n", "1:1 : the file is empty; isthmus init writes one to start from"),
        (
            "sites:\n  a: b: c\n",
            '2:7 : not valid YAML: mapping values are not allowed here; quote a value that contains ": "',
        ),
        (
            "sites:\n  a: [1, 2\nlinks: {}\n",
            "3:6 : not valid YAML: while parsing a flow sequence: expected ',' or ']', but got ':'",
        ),
        (
            "a: 1\n---\nb: 2\n",
            "2:1 : not valid YAML: expected a single document in the stream: but found another document; "
            "one file holds one configuration; remove the ---",
        ),
        (
            "sites: \x07\n",
            "1:8 : not valid YAML: a character that YAML does not allow; remove control characters",
        ),
        ("a: 1\nb: 2\n c: 3\n", None),
        ("sites:\n\t- x\n", None),
    ],
)
def test_broken_syntax_is_one_mistake_with_its_place(lines, text, expected):
    found = lines(text)
    assert len(found) == 1
    assert "not valid YAML" in found[0] or "empty" in found[0]
    if expected:
        assert found == [expected]


@pytest.mark.parametrize(
    "value", ["*hunter2", "!hunter2 x", "!h!hunter2 x", '"hunter2', '"hunter2\\q"', "%hunter2", "@hunter2"]
)
def test_no_message_about_syntax_quotes_a_value(mistakes, value):
    found = mistakes(f"sites:\n  a:\n    bootstrap: a:1\n    sasl:\n      password: {value}\n")
    assert "hunter2" not in str([m | {"file": ""} for m in found])
    assert all("hunter" not in m["problem"] for m in found)


def test_variables_in_flow_style_get_a_hint(lines):
    assert lines("sites:\n  a: {bootstrap: ${HOSTS}}\n") == [
        "2:19 : not valid YAML: while parsing a flow mapping: expected ',' or '}', but got '{'; "
        'inside [ ] and { } write "${NAME}" in quotes'
    ]


def test_every_duplicate_key_is_reported(lines):
    text = SITES + "links: {}\nsites: {}\nlinks: {}\n"
    assert lines(text) == [
        "4:1 sites: duplicate key; it is already on line 1",
        "5:1 links: duplicate key; it is already on line 3",
    ]


def test_a_duplicate_deep_inside_has_its_own_place(lines):
    assert lines("sites:\n  a:\n    bootstrap: a:1\n    bootstrap: b:1\n") == [
        "4:5 sites.a.bootstrap: duplicate key; it is already on line 3"
    ]


def test_tags_are_refused_except_yaml_s_own(lines, good):
    assert lines("sites:\n  a: {bootstrap: !python/name:os.system x}\n") == [
        '2:18 sites.a.bootstrap: YAML tags are not supported; quote a value that begins with "!"'
    ]
    assert good("sites:\n  a: {bootstrap: 'a:1', cluster_id: !!str 12}\n").sites["a"].cluster_id == "12"


def test_anchors_aliases_and_merge_keys_work(good):
    config = good("""\
        sites:
          a: &common
            bootstrap: a:1
            request_timeout: 5s
          b:
            <<: *common
            bootstrap: b:1
        """)
    assert config.sites["b"].request_timeout == 5
    assert config.sites["b"].bootstrap == ["b:1"]


def test_the_first_of_several_merged_mappings_wins(good):
    config = good("""\
        sites:
          a: &a {bootstrap: "a:1", request_timeout: 5s}
          b: &b {bootstrap: "b:1", request_timeout: 6s, cluster_id: x}
          c: {<<: [*a, *b], bootstrap: "c:1"}
        """)
    assert (config.sites["c"].request_timeout, config.sites["c"].cluster_id) == (5, "x")


def test_a_mistake_in_a_merged_mapping_is_placed_where_it_is_written(lines):
    text = "sites:\n  a: &a\n    bootstrap: a:1\n    request_timeout: 5\n  b:\n    <<: *a\n    bootstrap: b:1\n"
    found = lines(text)
    assert [f.split(" ")[0] for f in found] == ["4:22", "4:22"]
    assert [f.split(" ")[1] for f in found] == ["sites.a.request_timeout:", "sites.b.request_timeout:"]


def test_merging_something_else_is_a_mistake(lines):
    assert lines("sites:\n  a:\n    <<: 3\n    bootstrap: a:1\n") == [
        '3:5 sites.a: only a mapping can be merged with "<<"'
    ]


def test_an_alias_to_its_own_collection_is_a_mistake(lines):
    assert "2:6 sites.a.tls: an alias refers to the collection that contains it" in lines(
        "sites:\n  a: &x {bootstrap: 'a:1', tls: *x}\n"
    )


def test_keys_must_be_text(lines):
    assert lines("sites:\n  a: {bootstrap: 'a:1'}\n  ? [x, y]\n  : 1\n") == ["3:5 sites: a key must be text"]


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path):
    from isthmus.config import load

    path = tmp_path / "isthmus.yaml"
    path.write_bytes(b"\xef\xbb\xbfsites:\r\n  a:\r\n    bootstrap: a:1\r\n")
    assert load(path).sites["a"].bootstrap == ["a:1"]


def test_a_file_that_is_not_text(tmp_path):
    from isthmus.config import load
    from isthmus.errors import ConfigError

    path = tmp_path / "isthmus.yaml"
    path.write_bytes(b"sites: \xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        load(path)


@pytest.mark.parametrize("text", ["3\n", "hello\n", "[a, b]\n"])
def test_a_file_that_is_no_mapping(lines, text):
    (found,) = lines(text)
    assert found.startswith("1:1 : expected a mapping, found ")


def test_a_directory_and_a_missing_file(tmp_path):
    from isthmus.config import load
    from isthmus.errors import ConfigError

    with pytest.raises(ConfigError, match="is a directory"):
        load(tmp_path)
    with pytest.raises(ConfigError, match="no such file or directory; isthmus init") as caught:
        load(tmp_path / "no.yaml")
    assert caught.value.mistakes[0]["line"] is None


def bomb() -> str:
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12))
    return f"sites:\n  a: {{bootstrap: 'a:1'}}\nl0: &l0 [x, x, x]\n{levels}\n"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (bomb(), 3, "with aliases followed, the file has more than 100000 values"),
        ("sites:\n  a: " + "[" * 20_000 + "]" * 20_000 + "\n", 2, "lists and mappings are more than 40 deep here"),
        ("sites:\n  a: " + "[" * 60 + "]" * 60 + "\n", 2, "lists and mappings are more than 40 deep here"),
        ("sites:\n" + "  # nothing\n" * 500_000, None, "the file has more than 1 MiB"),
    ],
    ids=["aliases", "brackets", "deep", "large"],
)
def test_what_would_take_for_ever_is_a_mistake(tmp_path, text, line, words):
    file = tmp_path / "isthmus.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file)
    (mistake,) = caught.value.mistakes
    assert (mistake["file"], mistake["line"], mistake["problem"]) == (str(file), line, words)
