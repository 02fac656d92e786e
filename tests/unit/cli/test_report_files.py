"""Reports as files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from isthmus.cli.reports import write_report
from isthmus.errors import UsageError


def test_a_report_is_for_us_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        for name in ("a.html", "a.json"):
            write_report(tmp_path / name, lambda: "<p>", dict)
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    finally:
        os.umask(before)
    shared = tmp_path / "shared.json"
    shared.touch(0o644)
    shared.chmod(0o644)
    write_report(shared, lambda: "<p>", dict)
    assert (shared.read_text(), stat.S_IMODE(shared.stat().st_mode)) == ("{}\n", 0o644)
    with pytest.raises(UsageError, match="--report"):
        write_report(tmp_path / "none" / "a.json", lambda: "<p>", dict)
