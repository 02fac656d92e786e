"""Writes the hashes of the sandbox's jars, as they are in the cache, into the project. Look at what changed before you commit it.

python tools/pin_jars.py kafka-4.3.1 kafka-3.9.2 apicurio-2.6.13.Final
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from isthmus.private import cache_directory
from isthmus.sandbox.jars import MANIFEST, PINNED

FILE = Path(__file__).parent.parent / "src" / "isthmus" / "sandbox" / PINNED


def main(names: list[str]) -> int:
    found = {}
    for name in sorted(names):
        manifest = json.loads((cache_directory() / "jars" / name / MANIFEST).read_text())
        found[name] = {file: about["sha256"] for file, about in sorted(manifest["files"].items())}
    FILE.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{FILE}: {sum(map(len, found.values()))} files of {len(found)} sets")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
