"""Secrets in files: what is refused, in one line that never shows a part of a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.config import load, load_service
from weft.errors import BadConfig, BadInput, Damaged
from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.keys import Keyring
from weft.jobs.api.access.listed_keys import digest_of
from weft.secret_files import read_secret

KEY = "a-key-of-an-operator-0123456789"


def secret(folder: Path, text: str | bytes, mode: int = 0o600) -> Path:
    path = folder / "secret"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(mode)
    return path


def test_a_secret_is_the_text_of_its_file(tmp_path: Path) -> None:
    path = secret(tmp_path, "geheim\n", 0o440)
    assert load(environment={"WEFT_REDIS_PASSWORD_FILE": str(path)}).config.redis.password == "geheim"
    assert load_service(environment={"WEFT_REDIS_PASSWORD_FILE": str(path)}).services.redis_password == "geheim"


def test_a_list_of_secrets_may_be_in_a_file(tmp_path: Path) -> None:
    path = secret(tmp_path, "redis://:p@10.0.0.7:6379,redis://:p@10.0.0.7:6380\n")
    pods = load(environment={"WEFT_PODS_FILE": str(path)}).config.pods.pods
    assert [pod.redis_url for pod in pods] == ["redis://:p@10.0.0.7:6379", "redis://:p@10.0.0.7:6380"]


@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [
        ("geheim", 0o644, "every user can read"),
        ("\n", 0o600, "is empty"),
        (b"\xff\xfe", 0o600, "is not UTF-8"),
        ("a\0b", 0o600, "NUL"),
    ],
)
def test_a_file_that_holds_no_secret_is_refused(content: str | bytes, mode: int, message: str, tmp_path: Path) -> None:
    path = secret(tmp_path, content, mode)
    with pytest.raises(BadConfig) as refused:
        load(environment={"WEFT_REDIS_PASSWORD_FILE": str(path)})
    (line,) = refused.value.problems
    assert line.startswith("WEFT_REDIS_PASSWORD_FILE: ") and message in line and "geheim" not in line


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "none", "No such file"), (tmp_path, "is a folder")):
        with pytest.raises(BadInput, match=message):
            read_secret(path, "WEFT_X_FILE")


def test_a_value_and_a_file_for_it_are_one_too_many(tmp_path: Path) -> None:
    path = secret(tmp_path, "geheim")
    with pytest.raises(BadConfig, match="the same setting"):
        load(environment={"WEFT_REDIS_PASSWORD_FILE": str(path), "WEFT_REDIS_PASSWORD": "x"})


def test_only_settings_with_secrets_have_a_file() -> None:
    with pytest.raises(BadConfig, match="WEFT_MAX_DEPTH_FILE names no key"):
        load(environment={"WEFT_MAX_DEPTH_FILE": "/nowhere"})


def ring(folder: Path, text: str, mode: int = 0o600) -> Keyring:
    return Keyring(folder / "api-keys.json", listed=secret(folder, text, mode))


def test_listed_keys_are_texts_or_digests_with_names_and_scopes(tmp_path: Path) -> None:
    digest = digest_of("another-key-0123456789-0123")
    keys = ring(tmp_path, f"# for the crawler\n{KEY} crawler submit,read\n\nsha256:{digest}\n")
    found = keys.check(KEY)
    assert found is not None and (found.name, found.scopes) == ("crawler", (KeyScope.SUBMIT, KeyScope.READ))
    other = keys.check("another-key-0123456789-0123")
    assert other is not None and keys.find(other.id) == other
    assert keys.check(KEY + "x") is None and keys.check(digest) is None
    assert not keys.is_empty


def test_keys_of_both_kinds_are_valid_together_and_a_changed_file_counts_at_once(tmp_path: Path) -> None:
    keys = ring(tmp_path, KEY)
    text, _ = keys.create("made")
    assert keys.check(text) is not None and keys.check(KEY) is not None
    secret(tmp_path, "the-key-of-tomorrow-0123456789")
    assert keys.check(KEY) is None and keys.check("the-key-of-tomorrow-0123456789") is not None
    with pytest.raises(BadInput, match="delete its line there"):
        keys.revoke(keys.all()[0].name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no key in it"),
        ("short", "24 characters"),
        ("sha256:12", "64 hexadecimal digits"),
        (f"{KEY} name everything", "no scope 'everything'"),
        (f"{KEY} a read more", "more than a key"),
        (f"{KEY}\n{KEY}", "listed above"),
    ],
)
def test_a_list_that_is_wrong_lets_nobody_in(text: str, message: str, tmp_path: Path) -> None:
    keys = ring(tmp_path, text)
    assert keys.check(KEY) is None and not keys.is_empty
    assert isinstance(keys.problem, Damaged) and message in str(keys.problem)
    assert KEY not in str(keys.problem)
