"""``make bench``: our link and its peers, alternating, in one run; a table, JSON and a plot.

python -m bench            the whole comparison, three rounds (about 25 minutes)
python -m bench --quick    fewer records, one round (under 5 minutes)
python -m bench --scale    how our cost grows: partitions, sizes, codecs, rules, tasks, distance
python -m bench --verify   how fast both sides are compared
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import time
from pathlib import Path

from bench.compare import KEPT, ROOT, compare, console, ratios, save, show, summary
from bench.pages import write
from isthmus.records.warm import warm


def commit() -> str:
    try:
        return subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--scale", action="store_true")
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--only", nargs="*", help="with --scale: these sweeps")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    began = time.monotonic()
    warm()
    about = {"commit": commit(), "machine": platform.machine(), "python": platform.python_version()}
    if options.scale:
        from bench.scale import scale

        scale(about, options.only)
        write()
    elif options.verify:
        from bench.verify import measure

        measure(about)
    else:
        rows, details = compare(options.quick)
        # A quick run is for a glance; what is kept, and shown in docs/, is of a whole one.
        output = options.output or KEPT / ("quick.json" if options.quick else "latest.json")
        save(output, rows)
        table_rows = summary(rows)
        show(table_rows)
        for line in ratios(table_rows):
            console.print(line)
        if not options.quick:
            save(KEPT / "details.json", about | details | {"seconds": round(time.monotonic() - began)})
            write()
        console.print(f"rows are in {output}")
    console.print(f"took {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
