"""How long schemas take to follow, and how that grows: `python bench/scale_schemas.py [SUBJECTS...]`.

Two real registries and two brokers of the sandbox; each subject has 5 Avro versions. Measured are the first run, which
copies all, and the second, which finds nothing to do; goals are 3 minutes and 20 s for 2,000 subjects. Cost should grow
with the number of subjects, not faster.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from isthmus.config import Config, Registry
from isthmus.control.registry import RegistryClient, path
from isthmus.control.resources import apply_link
from isthmus.sandbox import Sandbox

VERSIONS = 5


def schema(subject: str, version: int) -> str:
    fields = [{"name": f"f{n}", "type": "int", "default": 0} for n in range(version)]
    return json.dumps({"type": "record", "name": subject.replace("-", "_"), "fields": fields})


def fill(client: RegistryClient, subjects: list[str]) -> None:
    def one(subject: str) -> None:
        for version in range(1, VERSIONS + 1):
            client.post(path("subjects", subject, "versions"), {"schema": schema(subject, version)})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, subjects))


def main(counts: list[int]) -> None:
    rows = []
    for count in counts:
        with Sandbox() as box:
            registries = [box.registry(name, wait=False) for name in ("east", "west")]
            sites = box.start_all(["east", "west"])
            for registry in registries:
                registry.wait()
            source = RegistryClient(Registry(url=registries[0].url), "east")
            started = time.monotonic()
            fill(source, [f"subject-{number}" for number in range(count)])
            filled = time.monotonic() - started
            source.close()
            document = {
                "sites": {
                    site.name: {**site.site_yaml(), "registry": {"url": registry.url}}
                    for site, registry in zip(sites, registries, strict=True)
                },
                "links": {"bench": {"from": "east", "to": "west", "topics": ["none"], "sync": {"schemas": "on"}}},
            }
            config = Config.model_validate(document)
            seconds = []
            for _ in range(2):
                started = time.monotonic()
                said, outcomes = apply_link(config, config.link("bench"), only=["schemas"])
                seconds.append(time.monotonic() - started)
                assert all(outcome.done for outcome in outcomes), outcomes[0].error
                assert not [change for change in said if change.action == "blocked"]
            rows.append((count, count * VERSIONS, filled, *seconds))
            print(json.dumps(dict(zip(HEAD, rows[-1], strict=True))), flush=True)
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD))
    for row in rows:
        print("| " + " | ".join(f"{cell:,.1f}" if isinstance(cell, float) else f"{cell:,}" for cell in row) + " |")


HEAD = ("subjects", "versions", "filling the source, s", "first run, s", "second run, s")

if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [500, 1000, 2000])
