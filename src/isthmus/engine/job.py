"""One run of one link: what the driver, the planner and the tasks all need. Plain data; it travels between processes."""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass, field

from isthmus.config import Link, Site


@dataclass(frozen=True, slots=True)
class Job:
    link: Link
    source: Site
    target: Site
    slots: int
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    host: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}")
    temporary: bool = False
    """A recovery operation runs the link, until it has caught up: whoever ran it before has it back then."""
