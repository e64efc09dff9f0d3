"""Names of RocketMQ clients and of TernMQ."""

from typing import Any

import pytest

from ternmq.core.errors import BadConfig
from ternmq.gateway.protocol.codes import Code, Refused
from ternmq.gateway.protocol.messages import message_class
from ternmq.gateway.protocol.names import GatewayNames


def resource(name: str, namespace: str = "") -> Any:
    return message_class("Resource")(name=name, resource_namespace=namespace)


def test_a_name_is_a_name_unless_it_has_an_alias() -> None:
    names = GatewayNames({"order_paid": "order.paid"}, {"b": "billing.eu"})

    assert names.topic(resource("plain")) == "plain"
    assert names.topic(resource("order_paid")) == "order.paid"
    assert names.group(resource("b")) == "billing.eu"


def test_a_namespace_stands_before_the_name() -> None:
    names = GatewayNames()

    assert names.topic(resource("t", "n")) == "n.t"
    assert names.topic(resource("t"), "header") == "header.t"
    assert names.group(resource("g", "n"), "header") == "n.g"


def test_what_cannot_be_a_name_is_refused_with_its_code() -> None:
    names = GatewayNames()

    with pytest.raises(Refused) as refused:
        names.topic(resource("a b"))
    assert refused.value.code == Code.ILLEGAL_TOPIC
    with pytest.raises(Refused) as refused:
        names.group(resource(""))
    assert refused.value.code == Code.ILLEGAL_CONSUMER_GROUP
    with pytest.raises(Refused, match="tern dead"):
        names.topic(resource("%DLQ%billing"))


def test_aliases_are_checked_at_the_start() -> None:
    with pytest.raises(BadConfig, match="cannot be an alias"):
        GatewayNames({"a.b": "x"})
    with pytest.raises(BadConfig, match="two aliases"):
        GatewayNames({"a": "x", "b": "x"})
