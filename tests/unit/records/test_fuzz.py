"""A few seconds of the fuzzer in each run, with a seed of that run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FUZZER = Path(__file__).resolve().parents[2] / "fuzz_batches.py"


def test_damaged_batches_never_escape(seed: int) -> None:
    command = [sys.executable, FUZZER, "--count", "5000", "--seed", str(seed)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert found.returncode == 0, found.stdout + found.stderr
