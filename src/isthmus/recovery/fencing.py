"""Keeping writers away from a site, and letting them in again: by its ACLs, or by the operator's own commands.

Invariant: what was taken is known before it is taken (it goes to the journal first), so that it can be given back whatever is killed.
Doing it again does no harm.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Literal

from isthmus.config import Site
from isthmus.errors import HookFailed

How = Literal["hook", "acls", "none"]
# Under which key a site's table remembers that a hook has fenced a site.
HOOK = "hook-fence/"
# What every command needs; anything else in our environment may be a secret.
PASSED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR")


def run_hook(site: Site, name: Literal["fence", "unfence"], operation: str) -> str:
    """Run a site's command; its last line of output. Raises when it fails or takes too long."""
    command: Sequence[str] | None = getattr(site.hooks, name, None) if site.hooks is not None else None
    if command is None:
        return ""
    assert site.hooks is not None
    handed_on = {*PASSED, *site.hooks.environment}
    environment = {key: value for key, value in os.environ.items() if key in handed_on or key.startswith("LC_")}
    environment |= {"ISTHMUS_SITE": site.name, "ISTHMUS_OPERATION": operation}
    where = f"sites.{site.name}.hooks.{name} ({command[0]})"
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=site.hooks.timeout, check=False
        )
    except FileNotFoundError:
        raise HookFailed(f"{where}: there is no such command") from None
    except PermissionError:
        raise HookFailed(f"{where}: it may not be run") from None
    except subprocess.TimeoutExpired:
        raise HookFailed(
            f"{where}: not done within {site.hooks.timeout:.0f} s; raise sites.{site.name}.hooks.timeout"
        ) from None
    lines = [line for line in (done.stdout + "\n" + done.stderr).splitlines() if line.strip()]
    if done.returncode != 0:
        raise HookFailed(f"{where}: ended with {done.returncode}: {lines[-1] if lines else 'without a word'}")
    return lines[-1] if lines else ""
