"""RocketMQ clients that sign, on a cluster with security on: each is its user, and nothing more."""

import hashlib
import hmac
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from ternmq.core.errors import Forbidden
from ternmq.gateway.protocol.codes import Code
from ternmq.gateway.protocol.messages import message_class
from tests.integration.gateway.clients import (
    ClientFactory,
    ClientRefused,
    GatewayServer,
    make_gateway,
)
from tests.integration.gateway.test_raw_calls import UNARY, call
from tests.integration.node.test_access import ON, admin_of, admin_password, user_of, user_url
from tests.integration.processes import Node, NodeFactory, tern
from tests.waiting import wait_until

WHEN = "20261118T081446Z"


class SignedCluster:
    """A node with security on, and a gateway that knows access keys only."""

    def __init__(self, node: Node, folder: Path) -> None:
        self.node = node
        self.admin("user", "add", "gateway", "--password-file", str(self._password(folder)))
        self.admin("grant", "add", "gateway", "grant", "access-key:*")
        self.admin("topic", "create", "orders")
        self.admin("topic", "create", "secrets")
        by = {"TERN_PASSWORD_FILE": str(folder / "password")}
        self.gateway = make_gateway(user_url(node, "gateway"), folder, ["--access-keys"], by)

    @staticmethod
    def _password(folder: Path) -> Path:
        file = folder / "password"
        file.write_text("of-the-gateway-7781\n")
        file.chmod(0o600)
        return file

    def admin(self, *words: str) -> str:
        url, password = user_url(self.node, "admin"), admin_password(self.node)
        return tern(*words, url=url, password=password).out

    def user(self, name: str, *grants: str) -> tuple[str, str]:
        """A user with these rights, and its access key."""
        self.admin("user", "add", name, "--no-password")
        for line in grants:
            self.admin("grant", "add", name, *line.split())
        key, secret = self.admin("access-key", "create", name).split()
        return key, secret


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SignedCluster]:
    folder = tmp_path_factory.mktemp("signed")
    factory = NodeFactory(folder)
    try:
        cluster = SignedCluster(factory(environment=ON), folder)
        try:
            yield cluster
        finally:
            cluster.gateway.finish()
    finally:
        factory.finish()


def headers(key: str, secret: str) -> tuple[tuple[str, str], ...]:
    digest = hmac.new(secret.encode(), WHEN.encode(), hashlib.sha1).hexdigest()
    text = f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={digest}"
    return (
        ("x-mq-client-id", "raw"),
        ("x-mq-language", "JAVA"),
        ("x-mq-date-time", WHEN),
        ("authorization", text),
    )


def beat(gateway: GatewayServer, *signed_by: str) -> int:
    """How a heartbeat was answered."""
    with grpc.insecure_channel(gateway.endpoint) as channel:
        answer = call(channel, "Heartbeat", b"", headers(*signed_by))
    return int(message_class("HeartbeatResponse").FromString(answer).status.code)


def test_an_official_client_sends_and_receives_as_the_user_of_its_key(
    signed: SignedCluster, rocket: ClientFactory
) -> None:
    key = signed.user("shop", "publish orders", "subscribe orders")
    client = rocket(signed.gateway.endpoint, *key)
    client.do("producer", topics="orders")
    client.do("send", topic="orders", body="signed")
    client.do("simple", group="shop", topic="orders")

    def received() -> list[str]:
        found = client.messages("receive")
        return [each["body"] for each in found]

    assert wait_until(received, "it comes", seconds=60) == ["signed"]
    with pytest.raises(ClientRefused):
        client.do("producer", topics="secrets")
        client.do("send", topic="secrets", body="not for me")


@pytest.mark.parametrize("method", UNARY)
def test_every_call_that_is_not_signed_or_wrongly_is_refused(
    signed: SignedCluster, method: str
) -> None:
    unsigned = (("x-mq-client-id", "raw"), ("x-mq-language", "JAVA"))
    wrong = headers("AK" + "0" * 16, "x")
    with grpc.insecure_channel(signed.gateway.endpoint) as channel:
        for metadata in (unsigned, wrong):
            answer = call(channel, method, b"", metadata)
            status = message_class(f"{method}Response").FromString(answer).status
            assert status.code == Code.UNAUTHORIZED


def test_streams_are_refused_too(signed: SignedCluster) -> None:
    service = "/apache.rocketmq.v2.MessagingService/"
    unsigned: Any = (("x-mq-client-id", "raw"), ("x-mq-language", "JAVA"))
    with grpc.insecure_channel(signed.gateway.endpoint) as channel:
        polled = channel.unary_stream(f"{service}ReceiveMessage")(
            b"", metadata=unsigned, timeout=10
        )
        answers = [message_class("ReceiveMessageResponse").FromString(each) for each in polled]
        assert [each.status.code for each in answers] == [Code.UNAUTHORIZED]
        told = channel.stream_stream(f"{service}Telemetry")(
            iter([b""]), metadata=unsigned, timeout=10
        )
        with pytest.raises(grpc.RpcError) as refused:
            list(told)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_a_wrong_secret_and_another_users_key_open_nothing(signed: SignedCluster) -> None:
    key, secret = signed.user("careful", "publish orders")
    other_key, other_secret = signed.user("other", "publish orders")

    assert beat(signed.gateway, key, secret) == Code.OK
    assert beat(signed.gateway, key, other_secret) == Code.UNAUTHORIZED
    assert beat(signed.gateway, other_key, secret) == Code.UNAUTHORIZED


def test_a_removed_key_is_refused_within_a_second(signed: SignedCluster) -> None:
    key, secret = signed.user("leaver", "publish orders")
    assert beat(signed.gateway, key, secret) == Code.OK

    signed.admin("access-key", "remove", "leaver", key)
    began = time.monotonic()
    wait_until(
        lambda: beat(signed.gateway, key, secret) == Code.UNAUTHORIZED,
        "it is refused",
        seconds=20,
    )
    assert time.monotonic() - began < 4.0, "a second, and what a busy machine adds"
    assert key not in signed.admin("access-key", "list")


def test_secrets_of_access_keys_are_in_no_log_list_or_audit(signed: SignedCluster) -> None:
    _, secret = signed.user("quiet", "publish orders")

    assert secret not in signed.admin("access-key", "list", "--json")
    assert secret not in signed.admin("topic", "list", "--json")
    assert secret not in signed.node.stderr_text() + signed.gateway.stderr_text()
    for log in signed.node.data_dir.glob("audit-*.log"):
        assert secret not in log.read_text(encoding="utf-8")


async def test_who_may_not_read_access_keys_is_no_gateway(signed: SignedCluster) -> None:
    """Not even of one's own: who was given one knows it; others' are neither listed nor made."""
    key, _ = signed.user("owner", "publish orders")
    async with (
        admin_of(signed.node) as admin,
        user_of(signed.node, admin, "curious", "allow * orders", "allow read *") as curious,
    ):
        await curious.admin.create_access_key("curious")
        for asked in (
            curious.admin.open_access_key(key),
            curious.admin.access_keys("owner"),
            curious.admin.access_keys(),
            curious.admin.create_access_key("owner"),
            curious.admin.remove_access_key("owner", key),
        ):
            with pytest.raises(Forbidden):
                await asked
        [own] = await curious.admin.access_keys("curious")
        assert own.secret == ""
