"""A command of the operator's own sees what it needs of our environment, and no secret."""

from __future__ import annotations

import sys

import pytest

from isthmus.config import loads
from isthmus.recovery.fencing import run_hook

SHOW = "import os; print(sorted(os.environ))"


def test_a_hook_gets_no_variable_that_nobody_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KAFKA_PASSWORD", "CLOUD_PROFILE", "LC_ALL"):
        monkeypatch.setenv(name, "C.UTF-8")
    hooks = f'{{fence: ["{sys.executable}", "-c", "{SHOW}"], environment: [CLOUD_PROFILE, NOT_SET]}}'
    site = loads(f"sites: {{a: {{bootstrap: 'a:1', hooks: {hooks}}}}}").sites["a"]
    seen = set(eval(run_hook(site, "fence", "failover"), {"__builtins__": {}}))
    assert {"ISTHMUS_SITE", "ISTHMUS_OPERATION", "PATH", "CLOUD_PROFILE", "LC_ALL"} <= seen
    assert not {"KAFKA_PASSWORD", "NOT_SET"} & seen
