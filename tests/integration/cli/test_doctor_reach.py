"""`tern doctor --from-client` against nodes with right and wrong advertised addresses (D7)."""

from ternmq.cli.servers.doctor_reach import examine
from ternmq.cli.servers.doctor_report import Level
from ternmq.testing import node
from ternmq.wire.messages.hello import Hello

HELLO = Hello(protocol=1, app="test", version="0", session=bytes(16))


async def test_a_node_with_a_wrong_advertised_name_is_found_out_and_a_right_one_passes() -> None:
    async with node() as url:
        found = await examine([url.removeprefix("tern://")], HELLO)
        assert {each.level for each in found} == {Level.OK}
        assert [each.what.split(" at ")[0] for each in found[2:]] == [
            "delay server main",
            "broker group main",
        ]
    async with node(advertised_host="no-such-host.invalid") as url:
        found = await examine([url.removeprefix("tern://")], HELLO)
        assert [each.level for each in found] == ["ok", "ok", "warn", "fail", "fail"]


async def test_mapped_ports_are_advertised_as_clients_see_them() -> None:
    async with node(advertised_ports=17700) as url:
        found = await examine([url.removeprefix("tern://")], HELLO)

    assert {each.what.rpartition(":")[2] for each in found[2:]} == {"17700", "17701", "17702"}
