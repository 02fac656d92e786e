"""Finds the Java that runs the brokers.

Invariant: what ``find_java`` returns exists, is executable and is Java 17 or newer; everything else is
an error that says what to install. Only JAVA_HOME and PATH are looked at, in that order, because those
are the two places where a user can change the answer.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from isthmus.errors import SandboxError

OLDEST_JAVA = 17  # Kafka 4 brokers and Spark 4 both start at this one


@cache
def find_java() -> Path:
    """The ``java`` to run, checked once a process."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None or not os.access(found, os.X_OK):
        place = f"JAVA_HOME ({home}) holds no bin/java" if home else "there is no java on PATH"
        raise SandboxError(f"No Java: {place}. Install JDK {OLDEST_JAVA} or newer, or set JAVA_HOME to it.")
    java = Path(found)
    release = java_release(java)
    if release < OLDEST_JAVA:
        raise SandboxError(f"{java} is Java {release}; the sandbox needs {OLDEST_JAVA} or newer. Set JAVA_HOME to one.")
    return java


def java_release(java: Path) -> int:
    """The feature release of a Java, e.g. 17."""
    # A JDK describes itself in a file, which spares starting it.
    description = java.resolve().parent.parent / "release"
    try:
        text = description.read_text(errors="replace")
    except OSError:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
        text = answer.stderr + answer.stdout
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    if match is None:
        raise SandboxError(f"{java} does not tell its version. Set JAVA_HOME to a JDK {OLDEST_JAVA} or newer.")
    return int(match.group(1))
