"""Answers to challenges: the RFCs' own examples, the strongest wins, nonsense is not answered."""

from __future__ import annotations

import re
from hashlib import md5, sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.fetch.auth import authorization, parse

URL = "http://www.example.org/dir/index.html"
CNONCE = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ"  # RFC 7616 §3.9.1
RFC = (
    'Digest realm="http-auth@example.org", qop="auth, auth-int", algorithm={}, '
    'nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"'
)


def answer(*values: str, user: str = "Mufasa", password: str = "Circle of Life", url: str = URL) -> str | None:
    return authorization(values, user, password, "GET", url, cnonce=CNONCE)


def fields(header: str | None) -> dict[str, str]:
    assert header is not None and header.startswith("Digest ")
    found = re.findall(r'(\w+)=(?:"((?:[^"\\]|\\.)*)"|([^,]+))', header)
    return {name: quoted or bare for name, quoted, bare in found}


@pytest.mark.parametrize(
    ("algorithm", "response"),
    [
        ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
        ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
    ],
)
def test_the_examples_of_rfc_7616(algorithm: str, response: str) -> None:
    got = fields(answer(RFC.format(algorithm)))
    assert got == {
        "username": "Mufasa", "realm": "http-auth@example.org", "uri": "/dir/index.html", "algorithm": algorithm,
        "nonce": "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", "nc": "00000001", "cnonce": CNONCE, "qop": "auth",
        "response": response, "opaque": "FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS",
    }  # fmt: skip


def test_the_example_of_rfc_7617() -> None:
    assert answer('Basic realm="WallyWorld"', user="Aladdin", password="open sesame") == (
        "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
    )
    assert answer('Basic realm="foo", charset="UTF-8"', user="test", password="123£") == "Basic dGVzdDoxMjPCow=="


def test_without_qop_as_in_rfc_2069() -> None:
    got = fields(answer('Digest realm="r", nonce="n"', user="u", password="p"))
    a1, a2 = md5(b"u:r:p").hexdigest(), md5(b"GET:/dir/index.html").hexdigest()
    assert got["response"] == md5(f"{a1}:n:{a2}".encode()).hexdigest()
    assert "qop" not in got and "nc" not in got and "opaque" not in got and "algorithm" not in got


@pytest.mark.parametrize(("algorithm", "digest"), [("MD5-sess", md5), ("sha-256-SESS", sha256)])
def test_sessions(algorithm: str, digest: type) -> None:
    def hashed(text: str) -> str:
        return str(digest(text.encode()).hexdigest())

    header = f'Digest realm="r", nonce="n", qop=auth, algorithm={algorithm}'
    got = fields(answer(header, user="u", password="p"))
    a1 = hashed(f"{hashed('u:r:p')}:n:{CNONCE}")
    assert got["response"] == hashed(f"{a1}:n:00000001:{CNONCE}:auth:{hashed('GET:/dir/index.html')}")
    assert got["algorithm"] == algorithm


@pytest.mark.parametrize(
    ("offered", "taken"),
    [
        (["Basic realm=x", RFC.format("MD5")], "algorithm=MD5"),
        ([RFC.format("MD5"), RFC.format("SHA-256"), "Basic realm=x"], "algorithm=SHA-256"),
        (["Basic realm=x, " + RFC.format("SHA-256") + ", Negotiate"], "algorithm=SHA-256"),
        ([RFC.format("SHA-512-256"), 'Basic realm="x"'], "Basic "),
        (["Negotiate YWJj==, NTLM, Basic realm=x"], "Basic "),
        (['Digest realm="x", nonce="n", qop="auth-int"', "Basic realm=x"], "Basic "),
        (["Digest realm=x", "Basic"], "Basic "),
    ],
)
def test_the_strongest_that_is_understood_wins(offered: list[str], taken: str) -> None:
    assert taken in (answer(*offered) or "")


@pytest.mark.parametrize(
    "values", [[], [""], ["Bearer realm=x"], ["Digest"], ["Negotiate"], [",,,"], ['Digest nonce="n", algorithm=foo']]
)
def test_what_is_not_understood_is_not_answered(values: list[str]) -> None:
    assert answer(*values) is None


def test_challenges_in_one_line_are_distinguished() -> None:
    line = 'Newauth realm="apps, and more", type=1, title="Login to \\"apps\\"", Basic realm="simple", Negotiate a+/b='
    assert [(c.scheme, c.params) for c in parse(line)] == [
        ("newauth", {"realm": "apps, and more", "type": "1", "title": 'Login to "apps"'}),
        ("basic", {"realm": "simple"}),
        ("negotiate", {}),
    ]


def test_quotes_cannot_be_broken_out_of() -> None:
    header = answer('Digest realm="a\\"b\\\\", nonce="n\r\nX: y", qop=auth', user='u"', password="p")
    assert header is not None and '"a\\"b\\\\"' in header and 'username="u\\""' in header
    assert "\r" not in header and "\n" not in header


@pytest.mark.parametrize(
    ("url", "uri"),
    [
        ("http://a.test", "/"),
        ("http://a.test?x=1", "/?x=1"),
        ("https://a.test:1/b?c=d%20e#f", "/b?c=d%20e"),
        ("http://a.test/?", "/?"),
    ],
)
def test_the_uri_is_the_target_that_is_asked_for(url: str, uri: str) -> None:
    assert fields(answer(RFC.format("MD5"), url=url))["uri"] == uri


def test_each_answer_has_its_own_cnonce() -> None:
    values = [RFC.format("MD5")]
    first, second = (authorization(values, "u", "p", "GET", URL) for _ in range(2))
    assert fields(first)["cnonce"] != fields(second)["cnonce"]


def test_a_later_answer_to_a_challenge_says_so_and_is_another() -> None:
    values = [RFC.format("MD5")]
    first, later = (fields(authorization(values, "u", "p", "GET", URL, count=n, cnonce=CNONCE)) for n in (1, 171))
    assert (first["nc"], later["nc"]) == ("00000001", "000000ab")
    assert first["response"] != later["response"]


@given(st.lists(st.sampled_from(["Digest ", "Basic ", 'realm="', "nonce=", '"', "\\", ",", "=", "x", " ", "a=b"])))
def test_any_challenge_can_be_read(pieces: list[str]) -> None:
    header = authorization(["".join(pieces)], "u", "p", "GET", URL)
    assert header is None or "\n" not in header


def test_a_long_challenge_is_read_in_good_time() -> None:
    assert answer('Digest realm="' + "\\" * 200_000) is None
    assert answer("Digest " + "a=" * 100_000) is None
    assert answer("a " * 100_000) is None
