"""What runs with our rights lies where nobody else can write, whatever the umask."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus.private import make_private, why_not_private


@pytest.fixture
def open_umask() -> object:
    before = os.umask(0)
    yield
    os.umask(before)


def test_what_we_make_is_ours_alone(tmp_path: Path, open_umask: object) -> None:
    assert make_private(tmp_path / "a" / "b") == ""
    assert [stat.S_IMODE((tmp_path / each).stat().st_mode) for each in ("a", "a/b")] == [0o700, 0o700]
    assert make_private(tmp_path / "a" / "b") == ""


def test_what_others_can_write_or_replace_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert make_private(folder) == ""
    folder.chmod(0o770)
    assert f"chmod go-w {folder}" in make_private(folder)
    folder.chmod(0o700)
    folder.parent.chmod(0o777)
    assert f"chmod o-w {folder.parent}" in make_private(folder)
    folder.parent.chmod(0o1777)  # as /tmp
    assert make_private(folder) == ""
    (tmp_path / "link").symlink_to(folder)
    assert "is no directory" in why_not_private(tmp_path / "link")
    (tmp_path / "file").touch()
    assert make_private(tmp_path / "file" / "c")
    assert why_not_private(tmp_path / "none")
    if os.getuid() == 0:
        os.chown(folder, 12345, 12345)
        assert "belongs to somebody else" in make_private(folder)


def test_kernels_and_archives_of_others_are_not_loaded(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    code = (
        "from isthmus.records.kernels_cache import kernels_directory\n"
        "from isthmus.engine.class_archive import archive_path, java_options, make\n"
        "print(kernels_directory())\n"
        "path = archive_path()\n"
        "assert make() is None\n"
        "path.parent.mkdir(exist_ok=True); path.touch(); print(java_options() or 'none')\n"
    )
    env = {**os.environ, "ISTHMUS_CACHE": str(cache), "HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    kernels, options = done.stdout.split("\n")[:2]
    assert not kernels.startswith(str(cache)), done
    assert options == "none"
