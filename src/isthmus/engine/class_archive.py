"""A Java class archive for the driver: Spark's classes are mapped from a file instead of parsed from its jars.

Invariant: the archive is only ever a speed-up (it halves the CPU that starting Spark takes). Java checks that it fits and
goes on without it otherwise. It is made once for a Spark and a Java, by ``python -m isthmus.engine.class_archive``, which
``make setup`` runs; without it everything works and starts some seconds later.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from isthmus.private import cache_directory, make_private, why_not_private

TRAINING_SECONDS = 180


def archive_path() -> Path | None:
    """Where the archive for this Spark and this Java belongs; None when there is no Java to ask."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else shutil.which("java")
    spark = importlib.util.find_spec("pyspark")
    if not java or not Path(java).exists() or spark is None or spark.origin is None:
        return None
    real = Path(java).resolve()
    jars = Path(spark.origin).parent / "jars"
    identity = hashlib.sha256(f"{_TRAINING} {real} {real.stat().st_mtime_ns} {jars} {jars.stat().st_mtime_ns}".encode())
    return cache_directory() / "archives" / f"spark-{identity.hexdigest()[:16]}.jsa"


def java_options() -> str:
    """Options that use the archive, if it is there and nobody else can have put it there: a JVM runs what it holds."""
    path = archive_path()
    return (
        f"-XX:SharedArchiveFile={path} -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"
        if path and path.exists() and not why_not_private(path.parent)
        else ""
    )


def make() -> Path | None:
    """Run a few small jobs and keep the classes that it loaded. Any failure leaves things as they are."""
    path = archive_path()
    if path is None or path.exists():
        return path
    if make_private(path.parent):
        return None
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        made = Path(scratch, "spark.jsa")
        subprocess.run(
            [sys.executable, "-c", _TRAINING, str(made)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=TRAINING_SECONDS,
            check=False,
        )
        if made.exists():
            made.rename(path)
            return path
    return None


_TRAINING = """
import sys
from isthmus.engine.session import JAVA_OPTIONS, build_context

options = f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={sys.argv[1]} -Xlog:cds=off -Xlog:cds+dynamic=off"
context = build_context({"spark.driver.extraJavaOptions": options}, 2)
for _ in range(3):
    context.setJobGroup("training", "training", interruptOnCancel=True)
    context.parallelize(range(2), 2).mapPartitions(list).collect()
context.cancelJobGroup("training")
gateway = context._gateway
context.stop()
process = gateway.proc
gateway.shutdown()
process.stdin.close()
process.wait(120)
"""


if __name__ == "__main__":
    make()
