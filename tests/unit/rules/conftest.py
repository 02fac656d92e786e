"""Lets these tests use the batches of the records' tests, and the examples as a user would."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]

sys.path.insert(0, str(TESTS / "unit" / "records"))
sys.path.insert(0, str(TESTS.parent / "examples"))
