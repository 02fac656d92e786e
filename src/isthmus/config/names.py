"""What may be called how: sites and links, topics, header keys.

Invariant: a name that passes here is legal everywhere it ends up: in topic names, transactional ids,
file names and metric labels.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from isthmus.config.mistakes import wrong

NAME_PATTERN = r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,60}"
_NAME = re.compile(NAME_PATTERN)
_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
# Kafka's own limit for the length of a topic's name.
TOPIC_LENGTH = 249
# Kafka's internal topics, and ours at the destination: copying them would corrupt both clusters' state.
INTERNAL_PREFIXES = ("__", "_isthmus.")


def is_internal(topic: str) -> bool:
    """Whether a topic belongs to Kafka or to Isthmus itself."""
    return topic.startswith(INTERNAL_PREFIXES)


def is_loopback(host: str) -> bool:
    """Whether what is sent there stays on this machine, as far as the name tells."""
    name = host.strip("[]").casefold()
    return name in ("localhost", "::1") or re.fullmatch(r"127(\.[0-9]{1,3}){3}", name) is not None


def topic_problem(topic: str) -> str:
    """Why this cannot be the name of a topic that we write or read; empty if it can."""
    if topic in ("", ".", "..") or not _TOPIC.fullmatch(topic):
        return 'a topic\'s name has letters, digits, ".", "_" and "-" only'
    if len(topic) > TOPIC_LENGTH:
        return f"a topic's name has at most {TOPIC_LENGTH} characters"
    if is_internal(topic):
        return "internal topics (__* and _isthmus.*) are never replicated"
    return ""


def _name(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise wrong('bad name: use letters, digits, "-" and "_", at most 61, the first a letter or digit', found=False)
    return str(value)


Name = Annotated[str, BeforeValidator(_name), WithJsonSchema({"type": "string", "pattern": f"^{NAME_PATTERN}$"})]
