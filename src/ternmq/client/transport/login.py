"""Who a client is: the user of its url, with the password that was given, filed or in the
environment, or the certificate that it shows. A password goes nowhere but into `UserLogin`."""

from collections.abc import Mapping

from ternmq.client.config import ClientConfig
from ternmq.core.errors import BadConfig
from ternmq.discovery.url import read_url
from ternmq.discovery.url_user import split_user
from ternmq.rpc.guarded.certificate_login import CertificateLogin
from ternmq.rpc.guarded.user_login import Login, UserLogin
from ternmq.security.access.secret import find_password


def find_login(
    url: str, config: ClientConfig, environment: Mapping[str, str]
) -> tuple[Login | None, str]:
    """The login, None without a user; and the url without it."""
    user, plain = split_user(url)
    if not user:
        if config.password is not None or config.password_file is not None:
            raise BadConfig("there is a password and no user; write tern://USER@HOST")
        return None, plain
    password = find_password(config.password, config.password_file, environment)
    if password is not None:
        return UserLogin(user, password), plain
    if _shows_certificate(plain, config):
        return CertificateLogin(user), plain
    raise BadConfig(
        f"the user {user!r} needs a password: password=, password_file=, or TERN_PASSWORD or "
        "TERN_PASSWORD_FILE in the environment; or a certificate of its name "
        "(terns://…?cert=FILE&key=FILE)"
    )


def _shows_certificate(url: str, config: ClientConfig) -> bool:
    files = read_url(url).tls
    return bool(config.tls_certificate) or (files is not None and files.certificate is not None)
