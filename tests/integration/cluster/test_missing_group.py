"""J2: what a broker group that is away holds is said to be missing, by every command."""

import pytest

from ternmq.sync import connect
from ternmq.wire.messages.groups import Start
from tests.integration.processes import NodeFactory, tern


@pytest.mark.long
def test_commands_show_what_is_there_and_name_the_broker_group_that_is_missing(
    node_factory: NodeFactory, tmp_path: object
) -> None:
    """Sums that lack a part never look like the whole; what needs all of them is refused."""
    meta = node_factory.meta_server(f"sqlite:///{tmp_path}/registry.db")
    node_factory.broker_server(meta.url, "east")
    west = node_factory.broker_server(meta.url, "west")
    with connect(meta.url, app="shop") as mq:
        for number in range(10):
            mq.send("orders", b"%d" % number, key="k")
        mq.admin.create_group("orders", "g", Start())
    [whole] = tern("ledger", "orders", "g", "--json", url=meta.url).json()
    assert whole["total"] == whole["ready"] == 10
    parts = {part["broker_group"]: part["total"] for part in whole["broker_groups"]}
    assert sum(parts.values()) == 10 and parts["west"] > 0
    shown = tern("browse", "orders", "--json", url=meta.url).json_lines()
    assert sorted(line["body"] for line in shown) == [str(number) for number in range(10)]

    west.stop()

    for command in (
        ["group", "show", "orders", "g"],
        ["topic", "show", "orders"],
        ["browse", "orders"],
        ["dead", "list", "g"],
        ["find", "--key", "k"],
    ):
        ran = tern(*command, url=meta.url, code=1)
        assert "error: broker group west does not answer, its part is missing" in ran.err, command
    [line] = tern("ledger", "orders", "g", "--json", url=meta.url, code=1).json()
    assert line["total"] == 10 - parts["west"]
    paused = tern("group", "pause", "orders", "g", url=meta.url, code=1)
    assert "no answer of broker group 'west'" in paused.err
    reset = tern("group", "reset", "orders", "g", "--to", "1", "--yes", url=meta.url, code=2)
    assert "say which, by broker_group" in reset.err
