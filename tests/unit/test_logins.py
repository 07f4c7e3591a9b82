"""Logins as they are written down: what is accepted, where values come from, and that none is ever shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from weft.config import load
from weft.errors import BadConfig, BadInput
from weft.logins import FormLogin, SuccessCheck, absolute, filled_in, login_of

FIELDS = {"user": "anna", "password": "${env:SITE_PASSWORD}"}


def login(**more: Any) -> dict[str, Any]:
    return {"url": "https://example.com/login", "fields": FIELDS, **more}


@pytest.mark.parametrize(
    ("text", "check", "value"),
    [
        ("", SuccessCheck.FORM_GONE, ""),
        ("a.logout", SuccessCheck.SELECTOR, "a.logout"),
        ("sessionid", SuccessCheck.COOKIE, "sessionid"),
        ("/account/*", SuccessCheck.URL, "/account/*"),
        ("https://example.com/home", SuccessCheck.URL, "https://example.com/home"),
        ("cookie:connect.sid", SuccessCheck.COOKIE, "connect.sid"),
        ("css:nav", SuccessCheck.SELECTOR, "nav"),
    ],
)
def test_success_is_a_selector_a_cookie_or_a_url(text: str, check: SuccessCheck, value: str) -> None:
    assert FormLogin(**login(success=text)).checked_by == (check, value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (login(fields={"user": "anna", "password": "hunter2"}), "password is given as plain text"),
        (login(fields={"user": "anna", "password": "${en:X}"}), "write ${env:NAME} or ${file:PATH}"),
        (login(fields={}), "`fields` is empty"),
        (login(fields={"user": 3}), "Expected `str`"),
        (login(url="ftp://example.com/"), "use http or https"),
        (login(url="/login"), "`url`"),
        (login(sucess="a"), "unknown field `sucess`"),
        (login(success="cookie:"), "nothing follows cookie:"),
        ({"url": "https://example.com/"}, "`fields` is empty"),
        ([1], "a mapping, or a file that has one"),
        (42, "a mapping, or a file that has one"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_asked_for(given: object, message: str) -> None:
    with pytest.raises(BadConfig) as refused:
        load(environment={}, flags={"login": given})
    assert message in str(refused.value) and "hunter2" not in str(refused.value)


@pytest.mark.parametrize("more", [{"cookies": "off"}, {"pods": ["managed"]}])
def test_where_no_session_can_be_kept_there_is_no_login(more: dict[str, Any]) -> None:
    with pytest.raises(BadConfig, match="login"):
        load(environment={}, flags={"login": login(), **more})


def test_a_yaml_file_may_have_references_without_quotes_and_they_stay_references(tmp_path: Path) -> None:
    """`${VAR}` is filled in when a file is read; what `env:` and `file:` name is not."""
    (tmp_path / "weft.yaml").write_text(
        "login:\n  url: https://${HOST}/login\n  fields: {user: ${env:SITE_USER}, password: ${file:secret.txt}}\n"
    )
    found = load(tmp_path / "weft.yaml", {"HOST": "example.com", "SITE_USER": "anna"}).config.login.login
    assert found["url"] == "https://example.com/login"
    assert found["fields"] == {"user": "${env:SITE_USER}", "password": f"${{file:{Path.cwd() / 'secret.txt'}}}"}


def test_values_come_from_the_environment_and_from_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    made = FormLogin(url="http://h/", fields={"user": "${env:U}@h", "password": f"${{file:{tmp_path / 'secret'}}}"})
    assert filled_in(made, {"U": "anna"}) == {"user": "anna@h", "password": "s3cret"}
    with pytest.raises(BadInput, match="environment variable U is not set"):
        filled_in(made, {})
    (tmp_path / "secret").write_text("\n")
    with pytest.raises(BadInput, match="is empty"):
        filled_in(made, {"U": "anna"})
    (tmp_path / "secret").unlink()
    with pytest.raises(BadInput, match="cannot be read: No such file"):
        filled_in(made, {"U": "anna"})


def test_a_login_is_named_or_written_out_and_paths_are_made_absolute() -> None:
    logins = {"shop": login(), "other": {"name": "shop"}}
    assert login_of({}, logins) is None
    assert login_of({"name": "shop"}, logins) == FormLogin(**login())
    with pytest.raises(BadInput, match="no login 'nope' here; there are: other, shop"):
        login_of({"name": "nope"}, logins)
    with pytest.raises(BadInput, match="names another login"):
        login_of({"name": "other"}, logins)
    made = FormLogin(url="http://h/", fields={"password": "${file:a/b}"})
    assert absolute(made)["fields"] == {"password": f"${{file:{Path.cwd() / 'a/b'}}}"}
