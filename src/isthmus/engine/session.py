"""The Spark application that links run in: quiet, small, with the right interpreter, local unless told otherwise."""

from __future__ import annotations

import contextlib
import importlib.resources
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from isthmus.config.secret import Secret
from isthmus.config.spark import is_credential
from isthmus.engine.class_archive import java_options
from isthmus.errors import IsthmusError
from isthmus.private import make_private

# The driver's JVM schedules and does nothing else; records never enter it.
# Spark refuses less than 450 MiB; what is resident is about half of it.
DRIVER_MEMORY = "512m"
# Little garbage and little to compile: the simplest collector, the quick compiler, and a log that is quiet.
JAVA_OPTIONS = (
    f"-Dlog4j2.configurationFile={importlib.resources.files('isthmus.engine') / 'log4j2.properties'} "
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss512k"
)
# Attempts of a task before its query fails: a killed worker must not cost more than one hand-over.
TASK_ATTEMPTS = 4
OLDEST_JAVA = 17  # Spark 4 starts at this one


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def slots_for(links: int, tasks: int | None, parallelism: int) -> int:
    """Parallel tasks of one link. A lease holds a core for minutes, so all links together must fit."""
    if tasks is not None:
        return tasks
    return max(1, parallelism // max(1, links))


def local_master(master: str, needed: int) -> str:
    """``local[*]`` with room for every lease of every link, and with task retries, which plain local lacks."""
    if master in ("local", "local[*]"):
        return f"local[{max(cores(), needed)},{TASK_ATTEMPTS}]"
    if master.startswith("local[") and "," not in master:
        count = master[len("local[") : -1]
        if count.isdigit():
            return f"local[{max(int(count), needed)},{TASK_ATTEMPTS}]"
    return master


class Spark:
    """Spark, being started: what does not need it yet (reaching the sites, planning) goes on meanwhile."""

    def __init__(self, options: Mapping[str, str | Secret], needed: int) -> None:
        self._context: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._start, args=(options, needed), name="start of Spark", daemon=True)
        self._thread.start()

    def _start(self, options: Mapping[str, str | Secret], needed: int) -> None:
        try:
            self._context = build_context(options, needed)
        except BaseException as error:
            self._error = error

    def context(self) -> Any:
        """The Spark context, as soon as it is there. Raises why it could not be started."""
        self._thread.join()
        self.check()
        return self._context

    def check(self) -> None:
        """Raise why Spark could not be started, or that it has died since."""
        if self._error is not None:
            raise self._error
        if self._context is not None and self._context._gateway.proc.poll() is not None:
            raise IsthmusError("Spark's JVM has died; nothing is lost, and the next `isthmus run` goes on from there")

    def check_running(self) -> None:
        """Raise when Spark has given up: its cluster is gone, say."""
        self.check()
        if self._context is not None and self._context._jsc.sc().isStopped():
            raise IsthmusError("Spark has stopped, as when its cluster is gone; see its log, and start isthmus again")

    def stop(self) -> None:
        self._thread.join()
        if self._context is not None and self._context._gateway.proc.poll() is None:
            self._context.stop()


def check_java() -> None:
    """Raise what is needed and what was found, if Spark could not start its JVM. A Java that does not tell is tried."""
    home = os.environ.get("JAVA_HOME")
    found = os.path.join(home, "bin", "java") if home else shutil.which("java")
    mend = f"install JDK {OLDEST_JAVA} or newer, or set JAVA_HOME to one"
    if found is None or not os.access(found, os.X_OK):
        where = f"JAVA_HOME ({home}) holds no bin/java" if home else "there is no java on the PATH"
        raise IsthmusError(f"Spark needs Java {OLDEST_JAVA} or newer, and {where}: {mend}")
    try:
        # A JDK describes itself in a file, which spares starting it.
        told = (Path(found).resolve().parent.parent / "release").read_text(errors="replace")
    except OSError:
        told = ""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            told = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=20).stderr
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', told)
    if match is not None and int(match[1]) < OLDEST_JAVA:
        raise IsthmusError(f"Spark needs Java {OLDEST_JAVA} or newer, and {found} is Java {match[1]}: {mend}")


def build_context(options: Mapping[str, str | Secret], needed: int) -> Any:
    """Spark for ``needed`` parallel tasks."""
    check_java()
    from pyspark import SparkConf, SparkContext

    chosen = {key: value for key, value in options.items() if isinstance(value, str)}
    secrets = {key: value.reveal() for key, value in options.items() if isinstance(value, Secret)}
    master = local_master(chosen.pop("spark.master", "local[*]"), needed)
    settings: dict[str, str] = {
        "spark.app.name": "isthmus",
        "spark.ui.enabled": "false",
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.task.maxFailures": str(TASK_ATTEMPTS),
        "spark.pyspark.python": sys.executable,
        "spark.python.daemon.module": "isthmus.engine.daemon",
        # A lease is not idle work that another node could do faster.
        "spark.speculation": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.log.level": "ERROR",
        # Leases travel in the task's closure; Spark would write a large one to a file, and a lease holds secrets.
        "spark.broadcast.UDFCompressionThreshold": "1g",
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} {java_options()}".strip(),
    }
    if master.startswith("local") or "127.0.0.1" in master:
        settings["spark.driver.bindAddress"] = "127.0.0.1"
        settings["spark.driver.host"] = "127.0.0.1"
    settings.update(chosen)
    os.environ["PYSPARK_PYTHON"] = settings["spark.pyspark.python"]
    secrets |= {key: settings.pop(key) for key in list(settings) if is_credential(key)}
    log = _log()
    conf = SparkConf().setMaster(master).setAll(list(settings.items()))
    try:
        with _stderr_to_log(log), _own_interrupts(), _by_file(secrets):
            return SparkContext(conf=conf)
    except Exception as error:
        lines = [line.strip(" :") for line in str(error).splitlines() if line.strip()]
        reason = next((line for line in lines if "Exception" in line), lines[0] if lines else type(error).__name__)
        raise IsthmusError(
            f"Spark could not be started on {master}: {reason}; is a JDK 17+ on the PATH, and are the spark options right? "
            f"What Spark printed is in {log}"
        ) from error


@contextlib.contextmanager
def _by_file(secrets: Mapping[str, str]) -> Iterator[None]:
    """Options that hold credentials reach Spark by a file that only we can read: pyspark passes all others on the JVM's command line,
    which everybody on the machine can see. Spark reads the file once, when it starts."""
    if not secrets:
        yield
        return
    name, before = "PYSPARK_SUBMIT_ARGS", os.environ.get("PYSPARK_SUBMIT_ARGS")
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="isthmus-", suffix=".conf") as file:  # mode 0600
        for key, value in secrets.items():
            escaped = value.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")
            file.write(f"{key}={escaped}\n")
        file.flush()
        os.environ[name] = f"--properties-file {file.name} --load-spark-defaults {before or 'pyspark-shell'}"
        try:
            yield
        finally:
            os.environ.pop(name)
            if before is not None:
                os.environ[name] = before


@contextlib.contextmanager
def _own_interrupts() -> Iterator[None]:
    """Spark takes Ctrl-C over, to cancel every job in the middle of what it does; ours ends at a commit."""
    kept = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, kept)


def _log() -> str:
    """Where what Spark prints is kept: in a directory of our own, or, where others have one of that name, in a new one."""
    home = Path(tempfile.gettempdir()) / f"isthmus-{os.getuid()}"
    return str((Path(tempfile.mkdtemp(prefix="isthmus-")) if make_private(home) else home) / "spark.log")


@contextlib.contextmanager
def _stderr_to_log(path: str) -> Iterator[None]:
    """The JVM that is started inside writes its own remarks to a log file and not between our lines."""
    if os.environ.get("ISTHMUS_DEBUG"):
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.dup2(log, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(log)
