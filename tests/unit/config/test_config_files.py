"""Certificates that travel to other machines."""

from __future__ import annotations

import os
import pickle
import stat

import pytest

from isthmus.config import LocalFile, Tls, load
from isthmus.errors import ConfigError

PEM = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"


def test_relative_paths_are_relative_to_the_configuration(tmp_path, monkeypatch):
    folder = tmp_path / "etc"
    folder.mkdir()
    (folder / "ca.pem").write_text(PEM)
    (folder / "isthmus.yaml").write_text("sites:\n  a: {bootstrap: 'a:1', tls: {ca: ca.pem}}\n")
    monkeypatch.chdir(tmp_path)
    config = load("etc/isthmus.yaml")
    assert config.sites["a"].tls is not None
    assert config.sites["a"].tls.ca == str(folder / "ca.pem")


def test_home_directories(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "ca.pem").write_text(PEM)
    assert Tls(ca="~/ca.pem").ca == str(tmp_path / "ca.pem")


def test_a_file_that_is_here_stays_where_it_is(tmp_path):
    (tmp_path / "ca.pem").write_text(PEM)
    tls = Tls(ca=tmp_path / "ca.pem")
    assert pickle.loads(pickle.dumps(tls)) == tls


def test_a_file_that_is_not_here_lands_privately(tmp_path):
    path = tmp_path / "ca.pem"
    path.write_text(PEM)
    data = pickle.dumps(Tls(ca=path))
    path.unlink()
    first, second = pickle.loads(data), pickle.loads(data)
    assert first.ca == second.ca != str(path)
    with open(first.ca) as file:
        assert file.read() == PEM
    assert stat.S_IMODE(os.stat(first.ca).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(first.ca)).st_mode) == 0o700
    assert isinstance(first.ca, LocalFile)
    assert "BEGIN" not in repr(first) + first.model_dump_json()


def test_pickling_a_file_that_is_gone(tmp_path):
    path = tmp_path / "ca.pem"
    path.write_text(PEM)
    tls = Tls(ca=path)
    path.unlink()
    with pytest.raises(ConfigError, match="no such file"):
        pickle.dumps(tls)
