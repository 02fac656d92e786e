"""What Spark needs is checked before it is started, and said in words of what was found."""

from __future__ import annotations

import pytest

from isthmus.engine.session import check_java
from isthmus.errors import IsthmusError


@pytest.fixture
def java(tmp_path, monkeypatch):
    """A JDK that says of itself to be so old, or is not there."""

    def make(version):
        home = tmp_path / "jdk"
        (home / "bin").mkdir(parents=True)
        if version is not None:
            (home / "bin" / "java").write_text("#!/bin/sh\n")
            (home / "bin" / "java").chmod(0o755)
            (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
        monkeypatch.setenv("JAVA_HOME", str(home))
        return home

    return make


@pytest.mark.parametrize(("version", "told"), [("11.0.2", "is Java 11"), ("1.8.0_292", "is Java 8")])
def test_an_old_java(java, version, told):
    home = java(version)
    with pytest.raises(IsthmusError, match=r"needs Java 17 or newer") as caught:
        check_java()
    assert f"{home}/bin/java {told}" in caught.value.message


def test_no_java(java, monkeypatch, tmp_path):
    home = java(None)
    with pytest.raises(IsthmusError, match=f"needs Java 17 or newer, and JAVA_HOME .{home}. holds no bin/java"):
        check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(IsthmusError, match=r"there is no java on the PATH: install JDK 17"):
        check_java()


def test_a_java_that_will_do(java):
    java("21.0.1")
    check_java()
