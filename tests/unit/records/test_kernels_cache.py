"""Kernels are compiled once, in a place that survives."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.records import kernels_cache
from isthmus.records.kernels_cache import kernels_directory

SCRIPT = """
from isthmus.records.warm import warm, warmed
before = warmed()
print(before, warm(), warmed())
"""


def start(cache: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "ISTHMUS_CACHE": str(cache)}
    return subprocess.Popen([sys.executable, "-c", SCRIPT], env=environment, stdout=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> tuple[bool, float, bool]:
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 0
    before, seconds, after = output.split()
    return before == "True", float(seconds), after == "True"


def test_the_second_start_only_loads_and_first_starts_may_race(tmp_path: Path) -> None:
    racing = [start(tmp_path), start(tmp_path)]
    for process in racing:
        assert answer(process)[2]
    compiled = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.nb?")}
    assert len(compiled) >= 14  # an index and code for each kernel
    before, seconds, after = answer(start(tmp_path))
    assert before
    assert after
    assert seconds < 10  # 0.4 s on a quiet machine; compiling takes some 7
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.nb?")} == compiled


@pytest.fixture
def fresh() -> Iterator[None]:
    kernels_directory.cache_clear()
    yield
    kernels_directory.cache_clear()


@pytest.mark.usefixtures("fresh")
def test_the_directory_is_chosen_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ISTHMUS_CACHE", str(tmp_path / "here"))
    assert kernels_directory().parent == tmp_path / "here" / "kernels"
    kernels_directory.cache_clear()
    monkeypatch.delenv("ISTHMUS_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert kernels_directory().parent == tmp_path / ".cache" / "isthmus" / "kernels"


@pytest.mark.usefixtures("fresh")
def test_a_home_that_cannot_be_written_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ISTHMUS_CACHE", raising=False)
    monkeypatch.setenv("HOME", "/proc/nowhere")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = kernels_directory()
    assert folder.is_relative_to(tmp_path)
    assert folder.is_dir()


@pytest.mark.usefixtures("fresh")
def test_other_sources_get_another_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ISTHMUS_CACHE", str(tmp_path))
    one = kernels_directory()
    kernels_directory.cache_clear()
    monkeypatch.setattr(kernels_cache, "_sources_digest", lambda: "other")
    assert kernels_directory() != one


def test_numba_keeps_its_own_cache_for_others() -> None:
    from numba.core import config

    import isthmus.records.scan  # noqa: F401

    assert os.environ.get("NUMBA_CACHE_DIR", "") == config.CACHE_DIR


@pytest.mark.usefixtures("fresh")
def test_a_folder_that_others_may_write_is_not_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ISTHMUS_CACHE", raising=False)
    monkeypatch.setenv("HOME", "/proc/nowhere")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    planted = tmp_path / f"isthmus-{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    assert not kernels_directory().is_relative_to(planted)
