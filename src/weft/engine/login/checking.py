"""Checks a crawl's login before the crawl begins: everything that can be refused is refused here.

The HTML parser, which reads the selectors of a login, is imported when there is one: most crawls log in nowhere.
"""

from __future__ import annotations

from weft.config import Config, LoginsSection
from weft.errors import BadInput
from weft.logins import FormLogin, filled_actions, filled_in, login_of


def checked_login(config: Config, named: LoginsSection | None = None) -> FormLogin | None:
    """The login of a crawl; BadInput if it cannot work, also for a variable that is not set. `named`: the logins that
    may be referred to by name, if not the crawl's own.
    """
    login = login_of(config.login.login, (named or config.logins).logins)
    if login is not None:
        from weft.engine.login.pages import check_login
        from weft.engine.transports.browsers import browser_trouble

        check_login(login)
        filled_in(login)
        filled_actions(login)
        by_hands = config.fetch.hands == "cluster"
        if login.actions and not by_hands and (trouble := browser_trouble(config.fetch)):
            raise BadInput(f"login: its actions need a browser: {trouble}")
    return login


def check_logins(section: LoginsSection) -> None:
    """Checks all logins that callers of a service may refer to by name."""
    if section.logins:
        from weft.engine.login.pages import check_login
    for name in section.logins:
        try:
            login = login_of({"name": name}, section.logins)
            assert login is not None
            check_login(login)
            filled_in(login)
            filled_actions(login)
        except BadInput as error:
            raise BadInput(f"logins: {name}: {error}") from None
