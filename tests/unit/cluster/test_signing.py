"""What makes a message believed: its signature, kind and schema. Nothing of a refused one is acted on."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec
import pytest

from weft.cluster.key import ClusterKey, make_key, parse_key, read_key
from weft.cluster.signing import SCHEMA, RefusedMessage, Signer
from weft.errors import BadInput

KEY = ClusterKey(bytes(32))


def signed(**changes: object) -> str:
    signer = Signer(KEY)
    return signer.sign("fetch", {"url": "http://a.example/ü", **changes}, made_ms=1000, until_ms=2000, id_="one")


def test_a_message_comes_back_as_it_was_signed() -> None:
    message = Signer(KEY).verify(signed(), "fetch")
    assert (message.schema, message.kind, message.id, message.until_ms) == (SCHEMA, "fetch", "one", 2000)
    assert message.body == {"url": "http://a.example/ü"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "malformed"),
        ({"a": 1}, "malformed"),
        ("", "signature"),
        ("short", "signature"),
        ("\ud800" * 70, "signature"),
        (signed()[1:], "signature"),
        (signed() + " ", "signature"),
        (signed().replace("a.example", "b.example"), "signature"),
        ("0" * 64 + signed()[64:], "signature"),
        (Signer(ClusterKey(b"1" * 32)).sign("fetch", {}, made_ms=1, until_ms=2), "signature"),
        (Signer(KEY).sign("render", {}, made_ms=1, until_ms=2), "kind"),
        ("x" * ((32 << 20) + 1), "too_large"),
    ],
)
def test_what_is_not_signed_for_this_is_refused_with_its_reason(text: object, reason: str) -> None:
    with pytest.raises(RefusedMessage) as caught:
        Signer(KEY).verify(text, "fetch")
    assert caught.value.reason == reason


def test_a_message_of_another_schema_is_refused_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.cluster.signing.SCHEMA", SCHEMA + 1)
    newer = signed()
    monkeypatch.undo()
    with pytest.raises(RefusedMessage, match=f"schema is {SCHEMA + 1}, ours is {SCHEMA}"):
        Signer(KEY).verify(newer, "fetch")


def test_a_key_is_its_owners_alone_and_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "new" / "cluster.key"
    key = make_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_key(path) == key
    assert key.cluster_id in repr(key.cluster_id)
    assert key.secret.hex() not in repr(key)
    with pytest.raises(BadInput, match="is there already"):
        make_key(path)
    path.chmod(0o644)
    with pytest.raises(BadInput, match="every user can read"):
        read_key(path)


@pytest.mark.parametrize("text", ["", "weft-cluster-12", "weft-cluster-" + "g" * 64, "a" * 64])
def test_a_text_that_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is no cluster key"):
        parse_key(text, "cluster.key")


def test_two_keys_have_two_ids() -> None:
    assert KEY.cluster_id == ClusterKey(bytes(32)).cluster_id != ClusterKey(b"1" * 32).cluster_id


def test_the_signed_part_is_json_that_others_can_read() -> None:
    assert msgspec.json.decode(signed()[64:])["until_ms"] == 2000
