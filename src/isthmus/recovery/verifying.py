"""Comparing several links in one go, as the last step of an operation: proof instead of trust."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from isthmus.config import Config, Link
from isthmus.engine.session import Spark, cores
from isthmus.errors import Damaged
from isthmus.recovery.journal import Found
from isthmus.recovery.verify import verify


def verify_links(config: Config, links: Sequence[Link], note: Callable[[str], None]) -> Found:
    """Compare each link's two sides in one Spark; raises if anything is wrong."""
    found: Found = {}
    spark = Spark(config.spark, cores())
    try:
        with_links = config.model_copy(update={"links": {**config.links, **{link.name: link for link in links}}})
        for link in links:
            report = verify(with_links, link.name, spark=spark)
            note(f"link {link.name}: {report.verdict}")
            for words in report.not_judged_words:
                note(f"link {link.name}: {words}")
            found[link.name] = {
                "verdict": report.verdict,
                "totals": report.totals,
                "damage": report.damage,
                "not_judged": report.not_judged,
            }
            if not report.clean:
                words = "; ".join(each.words for each in report.offenders[:3])
                raise Damaged(f"link {link.name}: {report.verdict}. {words}")
    finally:
        spark.stop()
    return found
