"""Secrets: where they come from, and that they never print."""

from __future__ import annotations

import copy
import json
import logging
import os
import pickle
import subprocess
import sys
import traceback

import pytest
from pydantic import ValidationError

from isthmus.config import Config, Sasl, Secret, Site, load
from isthmus.errors import ConfigError

VALUE = "hunter2-äö"


@pytest.fixture
def secret_file(tmp_path):
    path = tmp_path / "secret"
    path.write_text(VALUE + "\n", encoding="utf-8")
    return path


@pytest.fixture(params=["text", "env", "file"])
def secret(request, monkeypatch, secret_file):
    monkeypatch.setenv("SECRET_VALUE", VALUE)
    if request.param == "text":
        return Secret(VALUE)
    return Secret.from_env("SECRET_VALUE") if request.param == "env" else Secret.from_file(secret_file)


def site(secret):
    return Site(
        name="a",
        bootstrap=["localhost:1"],
        sasl=Sasl(mechanism="PLAIN", username="u", password=secret),
        request_timeout=5,
    )


def test_reveal(secret):
    assert secret.reveal() == VALUE


def test_it_never_prints(secret, caplog):
    model = site(secret)
    config = Config(sites={"a": model})
    logging.getLogger("test").warning("%s %r %s", secret, secret, config)
    shown = [
        repr(secret), str(secret), f"{secret}", f"{secret:>20}", f"{secret!r}", "%s" % secret,  # noqa: UP031
        repr(model), str(model), repr(config), repr(model.sasl), str(vars(model.sasl)), caplog.text,
        str(model.model_dump()), model.model_dump_json(), str(config.model_dump(mode="json")),
        json.dumps(secret, default=str), json.dumps(config.model_dump(mode="json")), str([secret]), str({"a": secret}),
        str(dir(secret)),
    ]  # fmt: skip
    assert all("hunter2" not in text for text in shown)
    assert model.model_dump(mode="json")["sasl"]["password"] == "********"
    assert model.model_dump()["sasl"]["password"] == "********"
    with pytest.raises(TypeError):
        json.dumps(secret)


def test_a_validation_error_does_not_print_its_input():
    for attempt in (
        lambda: Sasl(mechanism="PLAIN", password=VALUE),
        lambda: Sasl(mechanism=VALUE, password=VALUE, colour=VALUE),
        lambda: Site(name="a", bootstrap=["a:1"], sasl={"mechanism": "PLAIN", "password": VALUE}),
        lambda: Site(name="a", bootstrap=["a:1"], sasl=VALUE),
        lambda: Sasl(mechanism="PLAIN", username="u", password={"env": "a", "fiel": VALUE}),
    ):
        with pytest.raises(ValidationError) as caught:
            attempt()
        text = "".join(traceback.format_exception(caught.value))
        assert "hunter2" not in text.split("ValidationError", 1)[1]


@pytest.mark.parametrize(
    "body",
    [
        "sasl: hunter2",
        "tls: hunter2",
        "sasl: [hunter2]",
        "sasl: {mechanism: PLAIN, pasword: hunter2}",
        "sasl: {mechanism: PLAIN, password: [hunter2]}",
        "sasl: {mechanism: PLAIN, password: {hunter2: hunter2}}",
        "sasl: {mechanism: PLAIN, password: {env: hunter2}}",
        "sasl: {mechanism: PLAIN, password: {env: [hunter2]}}",
        "sasl: {mechanism: PLAIN, password: {env: X, file: hunter2}}",
        "sasl: {mechanism: OAUTHBEARER, password: hunter2}",
        "sasl: {mechanism: PLAIN, token: hunter2}",
        "tls: {key_password: hunter2}",
        "sasl: {mechanism: PLAIN, password: *hunter2}",
        "sasl: {mechanism: PLAIN, password: !hunter2 x}",
        "sasl: {mechanism: PLAIN, password: 'hunter2}",
        "sasl: {mechanism: PLAIN, password: hunter2, password: hunter2}",
        "sasl: {mechanism: PLAIN, password: 'hunter2 ${'}",
    ],
)
def test_no_mistake_shows_a_secret(write, body):
    path = write(f"sites:\n  a:\n    bootstrap: a:1\n    {body}\n")
    with pytest.raises(ConfigError) as caught:
        load(path)
    error = caught.value
    unknown_key = "{hunter2:" in body  # a key is not a secret
    shown = "".join(traceback.format_exception(error)) + repr(error) + json.dumps(error.to_json()) + str(error.fields)
    assert unknown_key or "hunter2" not in shown
    # Nothing hangs on to the validation error, which holds the input.
    assert error.__cause__ is None
    assert error.__context__ is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("{env: NO_SUCH}", "5:55 sites.a.sasl.password.env: variable NO_SUCH is not set"),
        ("{env: EMPTY}", "5:55 sites.a.sasl.password.env: variable EMPTY is empty"),
        ("{env: no-such}", "5:55 sites.a.sasl.password.env: the variable named here is not set"),
        ("{file: no}", "5:56 sites.a.sasl.password.file: cannot read {base}/no: no such file or directory"),
        ("{file: .}", "5:56 sites.a.sasl.password.file: cannot read {base}: is a directory"),
        ("{file: empty}", "5:56 sites.a.sasl.password.file: {base}/empty is empty"),
        ("{file: binary}", "5:56 sites.a.sasl.password.file: cannot read {base}/binary: not UTF-8 text"),
        ("{fiel: x}", '5:50 sites.a.sasl.password.fiel: unknown key; did you mean "file"?'),
        ("{}", "5:49 sites.a.sasl.password: expected one of {env: NAME} or {file: PATH}"),
        ("[x]", "5:49 sites.a.sasl.password: expected text, {env: NAME} or {file: PATH}"),
        ("{env: }", "5:50 sites.a.sasl.password.env: expected text, {env: NAME} or {file: PATH}"),
    ],
)
def test_mistakes(lines, tmp_path, monkeypatch, value, expected):
    monkeypatch.setenv("EMPTY", "")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    text = f"sites:\n  a:\n    bootstrap: localhost:1\n    sasl:\n      {{mechanism: PLAIN, username: u, password: {value}}}\n"
    assert lines(text) == [expected.replace("{base}", str(tmp_path))]


def test_a_file_is_read_at_each_reveal(secret_file):
    secret = Secret.from_file(secret_file)
    secret_file.write_text("rotated\r\n")
    assert secret.reveal() == "rotated"
    secret_file.unlink()
    with pytest.raises(ConfigError, match="no such file or directory"):
        secret.reveal()


def test_only_newlines_at_the_end_are_stripped(tmp_path):
    (tmp_path / "s").write_text(" a b \n\n")
    assert Secret.from_file(tmp_path / "s").reveal() == " a b "


def test_an_unset_variable_at_reveal(monkeypatch):
    secret = Secret.from_env("SECRET_VALUE")
    monkeypatch.delenv("SECRET_VALUE", raising=False)
    with pytest.raises(ConfigError, match="SECRET_VALUE is not set"):
        secret.reveal()


def test_pickling_takes_the_value_along(secret, monkeypatch, secret_file):
    data = pickle.dumps(site(secret))
    monkeypatch.delenv("SECRET_VALUE", raising=False)
    secret_file.unlink()
    arrived = pickle.loads(data)
    assert arrived.sasl.password.reveal() == VALUE
    assert "hunter2" not in repr(arrived)
    assert arrived == site(secret)
    assert pickle.loads(pickle.dumps(arrived)).sasl.password.reveal() == VALUE


def test_a_file_that_is_there_after_unpickling_is_read_anew(secret_file):
    arrived = pickle.loads(pickle.dumps(Secret.from_file(secret_file)))
    secret_file.write_text("rotated")
    assert arrived.reveal() == "rotated"


def test_pickling_to_another_process(secret, tmp_path):
    path = tmp_path / "pickled"
    path.write_bytes(pickle.dumps(secret))
    code = f"import pickle, pathlib; print(pickle.loads(pathlib.Path({str(path)!r}).read_bytes()).reveal())"
    environment = {k: v for k, v in os.environ.items() if k != "SECRET_VALUE"} | {"PYTHONIOENCODING": "utf-8"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", env=environment)
    assert done.stdout.strip() == VALUE


def test_copies_and_equality(secret, secret_file):
    assert copy.copy(secret) is secret
    assert copy.deepcopy({"a": secret})["a"] is secret
    assert secret == secret
    assert secret != Secret("other")
    assert secret != VALUE
    assert len({secret, copy.copy(secret)}) == 1
    secret_file.unlink()
    copy.deepcopy(secret)  # reads nothing


def test_file_names_the_file(secret_file):
    assert Secret.from_file(secret_file).file == str(secret_file)
    assert Secret("x").file is None


def test_masked_spark_options():
    options = {"spark.hadoop.fs.s3a.secret.key": VALUE, "spark.ssl.keyPassword": VALUE, "spark.x": "shown"}
    config = Config(sites={"a": Site(name="a", bootstrap=["a:1"])}, spark=options)
    assert config.spark["spark.ssl.keyPassword"] == VALUE
    assert "hunter2" not in repr(config) + str(config.model_dump()) + config.model_dump_json()
    assert config.model_dump()["spark"]["spark.x"] == "shown"
