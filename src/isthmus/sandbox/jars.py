"""Fetches jars through Ivy and keeps them, checksummed, in the cache.

Invariant: a jar set's directory appears by one rename, complete and with a manifest of every file's
SHA-256, or not at all. A set that no longer matches its manifest is fetched again. However many processes
ask at once, one fetches and the others wait for it.

The jars of the versions that are tested are pinned: their hashes are a part of the project (``pinned.json``, made by tools/pin_jars.py), and a set with another file in it is refused. Of
other versions only the registry's own checksums are known.

Ivy ships with pyspark, checks what it downloads against the registry's own checksums and knows the
registry's address, so no build tool, no container and no address is needed here. ``ISTHMUS_IVY_SETTINGS``
may name an Ivy settings file for networks that have a registry of their own.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import importlib.util
import json
import os
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from isthmus.errors import SandboxError
from isthmus.sandbox.cache import cache_directory, locked
from isthmus.sandbox.java import find_java
from isthmus.sandbox.process import KeptProcess

MANIFEST = "manifest.json"
PINNED = "pinned.json"
DEFAULT_REGISTRY = "2.6.13.Final"
FETCH_SECONDS = 900.0  # a slow link needs minutes for 45 MB, a dead one must not hang a test run

# Brokers log through slf4j, but the published modules leave the choice of a backend to the distribution.
# This one writes lines to a stream, needs no configuration file and starts fastest.
LOGGING_BACKEND = ("org.slf4j", "slf4j-simple", "1.7.36")


@dataclass(frozen=True)
class JarSet:
    """Modules that run together: ``name`` is the directory, each module is (organisation, name, revision)."""

    name: str
    modules: tuple[tuple[str, str, str], ...]
    # The module is published as one archive that holds it with all that it needs, under this classifier.
    packed_as: str | None = None

    @property
    def directory(self) -> Path:
        return cache_directory() / "jars" / self.name


@dataclass(frozen=True)
class Jars:
    """A jar set that is there."""

    directory: Path

    @property
    def class_path(self) -> str:
        # Spelled out and sorted: a wildcard expands in directory order, and a class archive only fits
        # the class path that it was made with.
        return os.pathsep.join(str(path) for path in sorted((self.directory / "lib").glob("*.jar")))


def kafka_jars(version: str) -> JarSet:
    """Apache Kafka's broker and tools."""
    return JarSet(f"kafka-{version}", (("org.apache.kafka", "kafka_2.13", version), LOGGING_BACKEND))


def registry_jars(version: str = DEFAULT_REGISTRY) -> JarSet:
    """Apicurio, a schema registry."""
    return JarSet(f"apicurio-{version}", (("io.apicurio", "apicurio-registry-app", version),), packed_as="all")


def fetch(wanted: JarSet, verify: bool = False) -> Jars:
    """The jars, from the cache if they are whole there; ``verify`` reads every byte to be sure."""
    if damage(wanted.directory, verify) is None:
        return Jars(wanted.directory)
    # One lock for all sets, because Ivy's own cache is shared by all and is not made for two writers.
    with locked(cache_directory() / "jars" / "fetch.lock"):
        if damage(wanted.directory, verify) is not None:
            _fetch_into_place(wanted)
    return Jars(wanted.directory)


def damage(directory: Path, verify: bool = False) -> str | None:
    """What is wrong with a fetched set, or None.

    Names and sizes are always compared. Hashes are compared where a file's modification time is not the
    recorded one, which is what an edit or a copied cache looks like, and everywhere if ``verify``.
    """
    try:
        recorded = json.loads((directory / MANIFEST).read_text())["files"]
        known = pinned().get(directory.name)
        if known is not None and known != {name: about["sha256"] for name, about in recorded.items()}:
            return "not the files that are pinned"
    except FileNotFoundError:
        return "not fetched yet"
    except (OSError, ValueError, KeyError, TypeError):
        return "the manifest is unreadable"
    library = directory / "lib"
    present = {path.name for path in library.glob("*")}
    if present != set(recorded):
        return f"files missing or extra: {', '.join(sorted(present ^ set(recorded)))}"
    for name, expected in recorded.items():
        status = (library / name).stat()
        if status.st_size != expected["size"]:
            return f"{name} has the wrong size"
        touched = status.st_mtime_ns != expected["modified"]
        if (verify or touched) and _sha256(library / name) != expected["sha256"]:
            return f"{name} has the wrong checksum"
    return None


def _fetch_into_place(wanted: JarSet) -> None:
    target = wanted.directory
    for abandoned in target.parent.glob(f"{wanted.name}.partial-*"):  # by a process that was killed
        shutil.rmtree(abandoned, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{wanted.name}.partial-", dir=target.parent))
    try:
        _retrieve(wanted, scratch)
        refuse_others(wanted.name, scratch / "lib")
        _write_manifest(wanted, scratch)
        if target.exists():
            shutil.rmtree(target)
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def pinned() -> dict[str, dict[str, str]]:
    """The SHA-256 of each file of the sets that are pinned."""
    found: dict[str, dict[str, str]] = json.loads(
        importlib.resources.files("isthmus.sandbox").joinpath(PINNED).read_text()
    )
    return found


def refuse_others(name: str, library: Path) -> None:
    """Raise if a set that is pinned holds anything else."""
    wanted = pinned().get(name)
    if wanted is None:
        return
    found = {path.name: _sha256(path) for path in library.iterdir()}
    odd = sorted(file for file in wanted.keys() | found.keys() if wanted.get(file) != found.get(file))
    if odd:
        raise SandboxError(
            f"What was fetched as {name} is not what this version of Isthmus was tested with: {', '.join(odd[:5])}. Nothing of it is used. "
            "Somebody in between may have changed it; fetch it over another network, or ask your registry's keepers"
        )


def _retrieve(wanted: JarSet, scratch: Path) -> None:
    # ``runtime`` alone would bring what a module depends on but leave out the module's own jar.
    packed = wanted.packed_as
    dependencies = "".join(
        f'<dependency org="{organisation}" name="{name}" rev="{revision}" conf="run->runtime,master"/>'
        if packed is None
        else f'<dependency org="{organisation}" name="{name}" rev="{revision}" conf="run->master" transitive="false">'
        f'<artifact name="{name}" type="tar.gz" ext="tar.gz" m:classifier="{packed}"/></dependency>'
        for organisation, name, revision in wanted.modules
    )
    description = scratch / "ivy.xml"
    description.write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven"><info organisation="isthmus" module="sandbox"/>'
        f'<configurations><conf name="run"/></configurations><dependencies>{dependencies}</dependencies>'
        "</ivy-module>"
    )
    command = [str(find_java()), "-cp", str(_ivy_jar()), "org.apache.ivy.Main"]
    settings = os.environ.get("ISTHMUS_IVY_SETTINGS")
    if settings:
        command += ["-settings", settings]
    command += ["-ivy", str(description), "-confs", "run"]
    command += ["-retrieve", f"{scratch}/lib/[artifact]-[revision](-[classifier]).[ext]"]
    ivy = KeptProcess("Ivy", command, scratch / "ivy.log")
    try:
        if not ivy.await_stop(FETCH_SECONDS):
            raise SandboxError(
                f"Fetching {wanted.name} took more than {FETCH_SECONDS:.0f} s. Check the network and try again."
            )
    finally:
        ivy.kill()
    status = ivy.wait()
    for archive in (scratch / "lib").glob("*.tar.gz"):
        _unpack(archive)
    if status != 0 or not any((scratch / "lib").glob("*.jar")):
        raise SandboxError(
            f"Ivy could not fetch {wanted.name}. Check the version and the network; "
            f"ISTHMUS_IVY_SETTINGS can name an Ivy settings file. It said:\n{ivy.log_excerpt()}"
        )
    description.unlink()
    ivy.log_path.unlink()


def _unpack(archive: Path) -> None:
    """Put the jars of an archive, whatever folder they stand in, beside it, and remove it."""
    with tarfile.open(archive) as members:
        for member in members:
            content = members.extractfile(member) if member.name.endswith(".jar") else None
            if content is not None:
                with (archive.parent / Path(member.name).name).open("wb") as jar:
                    shutil.copyfileobj(content, jar)
    archive.unlink()


def _write_manifest(wanted: JarSet, scratch: Path) -> None:
    files = {}
    for path in sorted((scratch / "lib").iterdir()):
        status = path.stat()
        files[path.name] = {
            "size": status.st_size,
            "modified": status.st_mtime_ns,
            "sha256": _sha256(path),
        }
    manifest = {"modules": [":".join(module) for module in wanted.modules], "files": files}
    (scratch / MANIFEST).write_text(json.dumps(manifest, indent=1))


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def pyspark_directory() -> Path:
    """Where the pyspark package lies; found without importing it, which takes a second."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SandboxError("pyspark is not installed. Install Isthmus with its dependencies.")
    return Path(spec.origin).parent


def _ivy_jar() -> Path:
    found = sorted((pyspark_directory() / "jars").glob("ivy-*.jar"))
    if not found:
        raise SandboxError("pyspark holds no Ivy jar; reinstall pyspark.")
    return found[-1]
