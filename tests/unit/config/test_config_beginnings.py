"""What the names begin with that an entry matches."""

from __future__ import annotations

from itertools import product

import pytest

from isthmus.config.beginnings import beginnings


@pytest.mark.parametrize(
    ("entry", "begin"),
    [
        ("orders", {"orders"}),
        (r"/orders\..*/", {"orders.*"}),
        ("/orders|payments-[0-9]+/", {"orders", "payments-*"}),
        ("/(eu|us)-orders/", {"eu-orders", "us-orders"}),
        ("/^orders$/", {"orders"}),
        ("/orders?/", {"order*"}),
        ("/(orders|orders.*)/", {"orders*"}),
        ("/.*/", {"*"}),
        ("/a|.*/", {"*"}),
        ("/(?i)orders/", {"*"}),
        ("/(?i:orders)-x/", {"*"}),
        ("/(aa|b)(aa|b)(aa|b)(aa|b)(aa|b)/", {"".join(p) + "*" for p in product(("aa", "b"), repeat=4)}),
    ],
)
def test_beginnings(entry: str, begin: set[str]) -> None:
    assert {each.text + ("" if each.whole else "*") for each in beginnings(entry)} == begin
