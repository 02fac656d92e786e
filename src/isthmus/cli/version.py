"""``isthmus version``: what runs here.

Invariant: it answers at once. PySpark is asked for its version without being imported, and Java's is read
from the file beside it where there is one.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import typer

from isthmus import __version__
from isthmus.cli import JsonOption, examples, output


def register(app: typer.Typer) -> None:
    app.command("version", epilog=examples("isthmus version", "isthmus version --json"))(show)


def show(json: JsonOption = False) -> None:
    """Show versions of Isthmus and what it runs on."""
    found: dict[str, Any] = {
        "isthmus": __version__,
        "python": platform.python_version(),
        "pyspark": _installed("pyspark"),
        "java": find_java(),
    }
    if not json:
        java = found["java"]
        found["pyspark"] = found["pyspark"] or "not installed"
        found["java"] = f"{java['version'] or 'unknown version'} ({java['path']})" if java else "not found"
    output.emit(found, json)


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def find_java() -> dict[str, str | None] | None:
    """The Java that Spark would start: JAVA_HOME's, or the first on the PATH."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if path is None:
        return None
    return {"path": path, "version": _java_version(path)}


def _java_version(path: str) -> str | None:
    try:
        # <home>/release beside <home>/bin/java: reading it is much faster than starting a JVM.
        text = (Path(path).resolve().parent.parent / "release").read_text(encoding="utf-8")
        pattern = r'^JAVA_VERSION="([^"]+)"'
    except (OSError, UnicodeDecodeError):
        try:
            text = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=10).stderr
        except (OSError, subprocess.TimeoutExpired):
            return None
        pattern = r'version "([^"]+)"'
    match = re.search(pattern, text, re.MULTILINE)
    return match[1] if match else None
