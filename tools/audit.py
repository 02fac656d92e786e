"""What we depend on: known vulnerabilities, age and licence of each locked package. `make audit`.

Vulnerabilities and ages come from the package index that pip is set up with, where it tells them; what cannot be had is said, and is not taken for "none". Ends with 1 if a
vulnerability is known, 2 if nobody could be asked.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

LOCK = Path(__file__).parent.parent / "requirements.lock"
SIMPLE = "application/vnd.pypi.simple.v1+json"
SECONDS = 20.0
OLD_DAYS = 3 * 365


class Package(NamedTuple):
    name: str
    version: str


def locked() -> list[Package]:
    found = re.findall(r"^([A-Za-z0-9_.-]+)==([^ ;\\]+)", LOCK.read_text(), re.MULTILINE)
    return [Package(*each) for each in found]


def configured(name: str) -> str:
    """A setting of pip; empty if there is none."""
    told = subprocess.run([sys.executable, "-m", "pip", "config", "get", name], capture_output=True, text=True)
    return os.environ.get(f"PIP_{name.rpartition('.')[2].replace('-', '_').upper()}") or told.stdout.strip()


def index() -> str:
    """Where pip looks for packages: as it is configured, else its own default."""
    from pip._internal.models.index import PyPI

    return (configured("global.index-url") or PyPI.simple_url).rstrip("/")


@cache
def trust() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=configured("global.cert") or None)


def ask(url: str, accept: str = "application/json") -> Any:
    """The document at an address of the index; None if it has none or does not answer."""
    request = urllib.request.Request(url, headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS, context=trust()) as answer:
            return json.loads(answer.read())
    except (urllib.error.URLError, TimeoutError, ValueError):
        return None


def uploaded(simple: str, package: Package) -> datetime | None:
    """When this version came to the index."""
    document = ask(f"{simple}/{package.name}/", SIMPLE) or {}
    stem = re.sub(r"[-_.]+", "[-_.]+", package.name)
    files = [
        f for f in document.get("files", []) if re.match(rf"(?i){stem}-{re.escape(package.version)}[-.]", f["filename"])
    ]
    times = [datetime.fromisoformat(file["upload-time"]) for file in files if file.get("upload-time")]
    return min(times, default=None)


def vulnerabilities(simple: str, package: Package) -> list[str] | None:
    """Ids of what is known of this version; None if the index does not tell."""
    document = ask(f"{simple.removesuffix('/simple')}/pypi/{package.name}/{package.version}/json")
    if not isinstance(document, dict) or "vulnerabilities" not in document:
        return None
    return [each["id"] for each in document["vulnerabilities"] if not each.get("withdrawn")]


def licence(package: Package) -> str:
    try:
        about = metadata.metadata(package.name)
    except metadata.PackageNotFoundError:
        return "not installed here"
    classifiers = [c.rpartition(" :: ")[2] for c in about.get_all("Classifier") or [] if c.startswith("License ::")]
    text = about.get("License-Expression") or ", ".join(classifiers) or (about.get("License") or "").strip()
    return text.splitlines()[0][:40] if text else "not told"


def changed() -> datetime:
    """When the lock was last renewed."""
    told = subprocess.run(
        ["git", "log", "-1", "--format=%cI", "--", LOCK.name], cwd=LOCK.parent, capture_output=True, text=True
    )
    if told.returncode == 0 and told.stdout.strip():
        return datetime.fromisoformat(told.stdout.strip())
    return datetime.fromtimestamp(LOCK.stat().st_mtime, UTC)


def main() -> int:
    simple, packages = index(), locked()
    with ThreadPoolExecutor(8) as pool:
        times = list(pool.map(lambda each: uploaded(simple, each), packages))
        known = list(pool.map(lambda each: vulnerabilities(simple, each), packages))
    now = datetime.now(UTC)
    for package, at, ids in zip(packages, times, known, strict=True):
        days = f"{(now - at).days} days" if at else "age unknown"
        old = " OLD" if at and (now - at).days > OLD_DAYS else ""
        told = "vulnerabilities not told" if ids is None else ", ".join(ids) or "no known vulnerability"
        print(f"{package.name:28} {package.version:14} {days + old:16} {licence(package):42} {told}")
    print(f"the lock was renewed {(now - changed()).days} days ago")
    bad, silent = sum(bool(ids) for ids in known), sum(ids is None for ids in known)
    print(f"{len(packages)} packages; {bad} with known vulnerabilities; {silent} of which nobody told")
    return 1 if bad else 2 if silent == len(packages) else 0


if __name__ == "__main__":
    sys.exit(main())
