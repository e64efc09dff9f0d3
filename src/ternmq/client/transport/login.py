"""Who a client is: the user of its url, by a password, a token or the certificate that it shows.

What is given goes before the environment, a token before a password, and a certificate proves who
has neither. Secrets go nowhere but into the login.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from ternmq.client.config import ClientConfig
from ternmq.client.transport.certificate_login import CertificateLogin
from ternmq.client.transport.token_login import TokenLogin
from ternmq.client.transport.user_login import Login, UserLogin
from ternmq.core.errors import BadConfig
from ternmq.discovery.url import read_url
from ternmq.discovery.url_user import split_user
from ternmq.security.access.secret import Secret, find_password, read_secret

TOKEN, TOKEN_FILE = "TERN_TOKEN", "TERN_TOKEN_FILE"


def find_login(
    url: str, config: ClientConfig, environment: Mapping[str, str]
) -> tuple[Login | None, str]:
    """The login, None without a user; and the url without it."""
    user, plain = split_user(url)
    by_password = config.password is not None or config.password_file is not None
    by_token = config.token is not None or config.token_file is not None
    if by_password and by_token:
        raise BadConfig("there is a password and a token; give one of them")
    if not user:
        if by_password or by_token:
            what = "password" if by_password else "token"
            raise BadConfig(f"there is a {what} and no user; write tern://USER@HOST")
        return None, plain
    token = None if by_password else _token_login(user, config, environment)
    if token is not None:
        return token, plain
    password = find_password(config.password, config.password_file, environment)
    if password is not None:
        return UserLogin(user, password), plain
    if _shows_certificate(plain, config):
        return CertificateLogin(user), plain
    raise BadConfig(
        f"the user {user!r} needs a password: password=, password_file=, or TERN_PASSWORD or "
        "TERN_PASSWORD_FILE in the environment; or a token (token=, token_file=, TERN_TOKEN, "
        "TERN_TOKEN_FILE), or a certificate of its name (terns://…?cert=FILE&key=FILE)"
    )


def _token_login(
    user: str, config: ClientConfig, environment: Mapping[str, str]
) -> TokenLogin | None:
    given, file = config.token, config.token_file
    if given is None and file is None:
        text = environment.get(TOKEN)
        given, file = (Secret(text) if text else None), environment.get(TOKEN_FILE)
    if isinstance(given, Secret):
        return TokenLogin(user, partial(_same, given), renews=False)
    if callable(given):
        return TokenLogin(user, lambda: _returned(given()), renews=True)
    if file:
        return TokenLogin(user, partial(read_secret, Path(file), "the token"), renews=True)
    return None


def _same(token: Secret) -> Secret:
    return token


def _returned(token: object) -> Secret:
    if isinstance(token, Secret):
        return token
    if not isinstance(token, str) or not token:
        raise BadConfig("the function given as token= has to return a text")
    return Secret(token)


def _shows_certificate(url: str, config: ClientConfig) -> bool:
    files = read_url(url).tls
    return bool(config.tls_certificate) or (files is not None and files.certificate is not None)
