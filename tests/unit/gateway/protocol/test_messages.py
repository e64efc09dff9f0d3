"""Our messages and those of the official client are the same bytes."""

import warnings
from typing import Any

import pytest

from ternmq.core.errors import BadRequest
from ternmq.gateway.protocol import messages

OTHER_NAMES = {"UserAgent": "UA"}
OUTSIDE = {"Duration", "Timestamp"}
"""Types of protobuf itself over there."""
INTEGER_LIKE = {5, 14}
"""int32 and enum are written alike."""


@pytest.fixture(scope="module")
def official() -> dict[str, Any]:
    """The descriptors of the official client, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from rocketmq.grpc_protocol import (  # type: ignore[import-untyped]
            definition_pb2,
            service_pb2,
        )
    return {
        **definition_pb2.DESCRIPTOR.message_types_by_name,
        **service_pb2.DESCRIPTOR.message_types_by_name,
    }


def ours() -> dict[str, Any]:
    file = messages.AckMessageRequest.DESCRIPTOR.file
    return dict(file.message_types_by_name)


def wire_type(field: Any) -> int:
    return 5 if field.type in INTEGER_LIKE else int(field.type)


def test_every_field_has_the_number_and_the_type_of_the_official_one(
    official: dict[str, Any],
) -> None:
    wrong = []
    for name, descriptor in ours().items():
        if name in OUTSIDE:
            continue
        theirs = official[OTHER_NAMES.get(name, name)].fields_by_number
        for field in descriptor.fields:
            other = theirs.get(field.number)
            same = (
                other is not None
                and other.name == field.name
                and wire_type(other) == wire_type(field)
                and other.is_repeated == field.is_repeated
                and other.has_presence == field.has_presence
            )
            if not same:
                wrong.append(f"{name}.{field.name} = {field.number}")

    assert not wrong


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(BadRequest, match="are not a QueryRouteRequest"):
        messages.parse(messages.QueryRouteRequest, b"\xff\xff\xff")


def test_fields_that_we_do_not_know_do_no_harm() -> None:
    request = messages.parse(messages.HeartbeatRequest, b"\x10\x01\xf8\x07\x05")

    assert request.client_type == 1
