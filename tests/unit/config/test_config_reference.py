"""The generated reference is current."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_generated_files_are_current():
    tool = ROOT / "tools" / "generate_reference.py"
    done = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, f"run {sys.executable} {tool}\n{done.stdout}{done.stderr}"
