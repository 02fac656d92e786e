"""Each mistake that a site can have, with its exact place."""

from __future__ import annotations

import pytest

PEM = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"


def test_a_full_site(good, tmp_path):
    for name in ("ca.pem", "client.pem", "client.key"):
        (tmp_path / name).write_text(PEM)
    (tmp_path / "password").write_text("hunter2\n")
    site = good("""\
        sites:
          east:
            bootstrap: [k1:9092, "[::1]:9093"]
            tls:
              ca: ca.pem
              certificate: client.pem
              key: ./client.key
              key_password: plain
            sasl: {mechanism: SCRAM-SHA-512, username: 0123, password: {file: password}}
            cluster_id: abc
            request_timeout: 1m
        """).sites["east"]
    assert site.name == "east"
    assert site.bootstrap == ["k1:9092", "[::1]:9093"]
    assert site.tls is not None
    assert site.tls.ca == str(tmp_path / "ca.pem")
    assert site.tls.key == str(tmp_path / "client.key")
    assert site.tls.key_password is not None
    assert site.tls.key_password.reveal() == "plain"
    assert site.tls.verify_hostname is True
    assert site.sasl is not None
    assert site.sasl.username == "0123"
    assert site.sasl.password is not None
    assert site.sasl.password.reveal() == "hunter2"
    assert site.request_timeout == 60


def test_defaults(good):
    site = good("sites:\n  a:\n    bootstrap: k1:1, k2:2\n").sites["a"]
    assert site.bootstrap == ["k1:1", "k2:2"]
    assert (site.tls, site.sasl, site.cluster_id, site.request_timeout) == (None, None, None, 30.0)


@pytest.mark.parametrize(("text", "is_on"), [("true", 1), ("yes", 1), ("on", 1), ("false", 0), ("off", 0), ("", 0)])
def test_tls_as_a_switch(good, text, is_on):
    assert (good(f"sites:\n  a:\n    bootstrap: a:1\n    tls: {text}\n").sites["a"].tls is not None) == bool(is_on)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("tls: true", ["2:3 sites.a.bootstrap: missing"]),
        ("bootstrap: []", ["3:16 sites.a.bootstrap: expected at least one host:port"]),
        ("bootstrap:", ["3:5 sites.a.bootstrap: expected a list of host:port, found nothing"]),
        ("bootstrap: {a: 1}", ["3:16 sites.a.bootstrap: expected a list of host:port, found a mapping"]),
        (
            "bootstrap: kafka",
            ['3:16 sites.a.bootstrap: expected host:port, found "kafka"; add the port, often 9092 or 9093'],
        ),
        (
            "bootstrap:\n  - a:1\n  - b:70000",
            ['5:9 sites.a.bootstrap[1]: expected host:port, found "b:70000"; a port is between 1 and 65535'],
        ),
        (
            "bootstrap: [SASL_SSL://a:1]",
            [
                '3:17 sites.a.bootstrap[0]: expected host:port, found "SASL_SSL://a:1"; '
                "leave the scheme out; TLS and SASL have keys of their own"
            ],
        ),
        (
            "bootstrap: ['::1:9092']",
            [
                '3:17 sites.a.bootstrap[0]: expected host:port, found "::1:9092"; '
                "write an IPv6 address in brackets: [::1]:9092"
            ],
        ),
        ("bootstrap: a:1,", ['3:16 sites.a.bootstrap: expected host:port, found "a:1,"']),
        ("bootstrap: [[a]]", ["3:17 sites.a.bootstrap[0]: expected host:port, found a list"]),
        (
            "bootstrap_servers: a:1",
            ['3:5 sites.a.bootstrap_servers: unknown key; did you mean "bootstrap"?'],
        ),
        ("brokers: a:1", ['3:5 sites.a.brokers: unknown key; did you mean "bootstrap"?']),
        (
            "bootstrap: a:1\nssl: true\nxyz: 1",
            [
                '4:5 sites.a.ssl: unknown key; did you mean "tls"?',
                "5:5 sites.a.xyz: unknown key",
            ],
        ),
        (
            "bootstrap: a:1\nrequest_timeout: -5s",
            ['4:22 sites.a.request_timeout: must be more than 0, found "-5s"'],
        ),
        (
            "bootstrap: a:1\nrequest_timeout: 30",
            [
                "4:22 sites.a.request_timeout: expected a duration such as 500ms, 30s, 5m or 1h30m, found "
                '"30"; name the unit, as in "30s" or "500ms"'
            ],
        ),
        ("bootstrap: a:1\ncluster_id: ''", ["4:17 sites.a.cluster_id: must not be empty"]),
        ("bootstrap: a:1\ncluster_id: [x]", ["4:17 sites.a.cluster_id: expected text, found a list"]),
        ("bootstrap: a:1\ntls: please", ["4:10 sites.a.tls: expected a mapping, found text"]),
        (
            "bootstrap: a:1\ntls:\n  verify_hostname: maybe",
            ['5:24 sites.a.tls.verify_hostname: expected true or false, found "maybe"'],
        ),
        (
            "bootstrap: a:1\ntls:\n  certficate: x",
            ['5:7 sites.a.tls.certficate: unknown key; did you mean "certificate"?'],
        ),
        ("bootstrap: a:1\nsasl: []", ["4:11 sites.a.sasl: expected a mapping, found a list"]),
        ("bootstrap: a:1\nsasl: {}", ["4:5 sites.a.sasl.mechanism: missing"]),
        (
            "bootstrap: a:1\nsasl: {mechanism: scram-sha-512}",
            [
                "4:23 sites.a.sasl.mechanism: expected PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER, found "
                '"scram-sha-512"; did you mean "SCRAM-SHA-512"?'
            ],
        ),
        (
            "bootstrap: a:1\nsasl: {mechanism: GSSAPI}",
            [
                "4:23 sites.a.sasl.mechanism: expected PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER, found "
                '"GSSAPI"'
            ],
        ),
        (
            "bootstrap: a:1\nsasl: {mechanism: PLAIN, username: u}",
            ["4:5 sites.a.sasl.password: missing; PLAIN needs username and password"],
        ),
        (
            "bootstrap: a:1\nsasl: {mechanism: OAUTHBEARER, username: u, password: p}",
            [
                "4:5 sites.a.sasl.token: missing; OAUTHBEARER needs token",
                "4:46 sites.a.sasl.username: OAUTHBEARER does not take this; it takes token",
                "4:59 sites.a.sasl.password: OAUTHBEARER does not take this; it takes token",
            ],
        ),
        (
            "bootstrap: a:1\nsasl:\n  mechanism: PLAIN\n  username: ''\n  password: ''",
            [
                "6:17 sites.a.sasl.username: must not be empty",
                "7:17 sites.a.sasl.password: the secret is empty",
            ],
        ),
    ],
)
def test_mistakes(site, body, expected):
    assert site(body) == expected


def test_certificates(site, tmp_path):
    (tmp_path / "good.pem").write_text(PEM)
    (tmp_path / "store.jks").write_bytes(b"\xfe\xed\xfe\xed")
    assert site("bootstrap: a:1\ntls:\n  ca: no.pem\n  certificate: store.jks\n  key: good.pem\n") == [
        f"5:11 sites.a.tls.ca: cannot read {tmp_path}/no.pem: no such file or directory",
        f"6:20 sites.a.tls.certificate: {tmp_path}/store.jks is not a PEM file; "
        "Java keystores convert with keytool and openssl pkcs12",
    ]
    assert site("bootstrap: a:1\ntls:\n  key: good.pem\n") == [
        '5:12 sites.a.tls.key: a key needs its certificate; set "certificate" too'
    ]
    assert site("bootstrap: a:1\ntls:\n  key_password: x\n") == [
        '5:21 sites.a.tls.key_password: there is no key to open; set "certificate" and "key"'
    ]
    assert site("bootstrap: a:1\ntls:\n  ca: [x]\n") == [
        "5:11 sites.a.tls.ca: expected the path of a PEM file, found a list"
    ]


@pytest.mark.parametrize("name", ["a b", "-a", "_a", "ä", "a.b", "x" * 62, "", "a/b"])
def test_bad_names(lines, name):
    (found,) = lines(f"sites:\n  '{name}': {{bootstrap: 'a:1'}}\n")
    assert found.startswith("2:3 sites.")
    assert 'bad name: use letters, digits, "-" and "_", at most 61' in found


@pytest.mark.parametrize("name", ["a", "9", "A-b_c", "x" * 61, "no"])
def test_good_names(good, name):
    assert good(f"sites:\n  {name}: {{bootstrap: 'a:1'}}\n").sites[name].name == name


def test_two_sites_with_one_address(lines):
    text = "sites:\n  a: {bootstrap: 'K1:1,k2:1'}\n  b:\n    bootstrap:\n      - k3:1\n      - k1:1\n"
    assert lines(text) == ['6:9 sites.b.bootstrap[1]: site "a" has this address too; two sites are two clusters']


def test_no_sites(lines):
    assert lines("sites: {}\n") == ["1:8 sites: must not be empty"]
    assert lines("sites:\n") == ["1:1 sites: must not be empty"]
    assert lines("links: {}\n") == ["1:1 sites: missing"]
    assert lines("sites: [a]\n") == ["1:8 sites: expected a mapping, found a list"]
    assert lines("sites:\n  a: k:1\n") == ["2:6 sites.a: expected a mapping, found text"]
    assert lines("sites:\n  a:\n") == ["2:3 sites.a: expected a mapping, found nothing"]


def test_unknown_key_at_the_top(lines):
    assert lines("site:\n  a: {}\n") == ['1:1 site: unknown key; did you mean "sites"?']


def test_a_name_inside_is_no_key_of_the_file(lines):
    assert lines("sites:\n  a: {bootstrap: 'a:1', name: b}\n") == [
        "2:25 sites.a.name: unknown key; the name is the key above"
    ]
