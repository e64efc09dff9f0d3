"""Who a client is: by what was given, filed, or in the environment."""

from pathlib import Path

import pytest

from ternmq.client.config import ClientConfig
from ternmq.client.transport.certificate_login import CertificateLogin
from ternmq.client.transport.login import find_login
from ternmq.client.transport.token_login import TokenLogin
from ternmq.client.transport.user_login import UserLogin
from ternmq.core.errors import BadConfig
from ternmq.security.access.secret import Secret, find_password

URL = "tern://shop@127.0.0.1"
TLS_URL = "terns://shop@127.0.0.1?cert=/c.pem&key=/k.pem"


def token_of(config: ClientConfig, environment: dict[str, str] | None = None) -> str:
    login, _ = find_login(URL, config, environment or {})
    assert isinstance(login, TokenLogin)
    return login.read().reveal()


def test_a_token_is_given_asked_for_filed_or_in_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text("filed\n")
    assert token_of(ClientConfig(token="given")) == "given"
    assert token_of(ClientConfig(token=lambda: "asked")) == "asked"
    assert token_of(ClientConfig(token_file=file)) == "filed"
    assert token_of(ClientConfig(), {"TERN_TOKEN": "there"}) == "there"
    assert token_of(ClientConfig(), {"TERN_TOKEN_FILE": str(file)}) == "filed"
    assert token_of(ClientConfig(token="given"), {"TERN_TOKEN": "there"}) == "given"
    assert token_of(ClientConfig(), {"TERN_TOKEN": "t", "TERN_PASSWORD": "p"}) == "t"


def test_a_replaced_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text("first\n")
    login, _ = find_login(URL, ClientConfig(token_file=file), {})
    assert isinstance(login, TokenLogin)
    assert login.renews
    assert login.read().reveal() == "first"
    file.write_text("second\n")
    assert login.read().reveal() == "second"
    file.chmod(0o644)
    with pytest.raises(BadConfig, match="chmod 600"):
        login.read()


def test_what_is_given_goes_before_the_environment_and_a_certificate_is_last() -> None:
    environment = {"TERN_TOKEN": "t", "TERN_PASSWORD": "p"}
    assert isinstance(find_login(URL, ClientConfig(password="p"), environment)[0], UserLogin)
    assert isinstance(find_login(TLS_URL, ClientConfig(), environment)[0], TokenLogin)
    assert isinstance(find_login(TLS_URL, ClientConfig(), {"TERN_PASSWORD": "p"})[0], UserLogin)
    assert find_login(TLS_URL, ClientConfig(), {})[0] == CertificateLogin("shop")
    assert find_login("tern://127.0.0.1", ClientConfig(), environment)[0] is None


def test_a_mistake_is_said() -> None:
    with pytest.raises(BadConfig, match="one of them"):
        find_login(URL, ClientConfig(password="p", token="t"), {})
    with pytest.raises(BadConfig, match="token and no user"):
        find_login("tern://127.0.0.1", ClientConfig(token="t"), {})
    with pytest.raises(BadConfig, match=r"needs a password.*token_file=.*certificate"):
        find_login(URL, ClientConfig(), {})
    for empty in ({"password": ""}, {"password": Secret("")}, {"token": ""}):
        with pytest.raises(BadConfig, match="a text that is not empty"):
            ClientConfig(**empty)
    with pytest.raises(BadConfig, match="a text that is not empty"):
        find_password(Secret(""), None, {"TERN_PASSWORD": "not this one"})
    with pytest.raises(BadConfig, match="a text, or a function"):
        ClientConfig(token=7)  # type: ignore[arg-type]
    wrong = find_login(URL, ClientConfig(token=lambda: ""), {})[0]
    assert isinstance(wrong, TokenLogin)
    with pytest.raises(BadConfig, match="return a text"):
        wrong.read()
    assert "canary" not in repr(ClientConfig(token="canary"))
