"""Hours of random faults on real brokers: `make soak`, or `python tests/soak/soak.py --minutes 60 --seed 7`.

One episode after another: links one way, both ways or in a mesh, both delivery modes; kills, freezes, lost state and verbs at random
moments; judged by confluent-kafka all the time, and record by record when it is quiet. The first violation ends it, with the seed, the
episode and what was done; ``--episode N`` repeats one.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
for room in ("integration", "faults", ""):
    sys.path.insert(0, str(HERE.parent / room))

from episode import Episode  # noqa: E402

from isthmus.sandbox import Sandbox  # noqa: E402

ACTIONS = 12


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="start no episode after this long")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="repeat these choices"
    )
    parser.add_argument("--episode", type=int, help="only this one")
    parser.add_argument("--actions", type=int, default=ACTIONS, help="faults and verbs in an episode")
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    # Of the whole soak: the sites' own table is one for all episodes.
    secret = "the secret of a soak, which is long" if chosen.seed % 2 else None
    deadline = time.monotonic() + 60 * chosen.minutes
    counts: Counter[str] = Counter()
    directory = Path(tempfile.mkdtemp(prefix="isthmus-soak-"))
    failed = ""
    with Sandbox() as box:
        sites = box.start_all(["soak-a", "soak-b", "soak-c"])
        number = chosen.episode or 1
        while not failed and time.monotonic() < deadline:
            place = directory / f"episode-{number}"
            place.mkdir()
            episode = Episode(sites, place, f"s{number}", random.Random(f"{chosen.seed} {number}"), secret)
            print(f"episode {number}: {episode}", flush=True)
            try:
                episode.carry_out(chosen.actions)
            except AssertionError as violation:
                failed = f"episode {number} ({episode}) of seed {chosen.seed}:\n{violation}"
            counts.update(episode.counts)
            counts["episodes"] += 1
            if chosen.episode or failed:
                break
            number += 1
    print(json.dumps(dict(counts)), flush=True)
    if failed:
        print(f"FAILED: {failed}\nrepeat: make soak SEED={chosen.seed} EPISODE={number}\nlogs: {directory}")
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    print(f"nothing lost, doubled, reordered or misplaced (seed {chosen.seed})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
