"""`tern topic` and `tern group` against a real node."""

from uuid import uuid4

import pytest

from tests.integration.processes import Node, NodeFactory, tern


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid4().hex[:12]}"


def test_a_topic_can_be_made_listed_shown_and_deleted(shared_node: Node, topic: str) -> None:
    url = shared_node.url
    made = tern("topic", "create", topic, "--body-size-max", "64KiB", "--json", url=url).json()
    tern("send", topic, "a", "b", url=url)

    listed = tern("topic", "list", "--json", url=url).json()
    shown = tern("topic", "show", topic, "--json", url=url).json()

    assert made["body_size_max"] == 65_536
    assert topic in [one["name"] for one in listed]
    assert topic in tern("topic", "list", url=url).out
    assert (shown["id"], shown["first"], shown["end"], shown["messages"]) == (made["id"], 0, 2, 2)
    assert "messages" in tern("topic", "show", topic, url=url).out

    assert tern("topic", "delete", topic, "--yes", "--json", url=url).json() == {"deleted": topic}
    gone = tern("topic", "show", topic, url=url, code=1)
    assert gone.err.startswith(f"error: there is no topic '{topic}'")


def test_making_a_topic_again_changes_nothing(shared_node: Node, topic: str) -> None:
    first = tern("topic", "create", topic, "--json", url=shared_node.url).json()
    second = tern("topic", "create", topic, "--json", url=shared_node.url).json()

    assert first == second


def test_a_deleted_topic_made_again_is_a_new_one(shared_node: Node, topic: str) -> None:
    url = shared_node.url
    tern("send", topic, "old", url=url)
    tern("consume", topic, "--group", "g", "--count", "1", url=url)
    old = tern("topic", "show", topic, "--json", url=url).json()
    tern("topic", "delete", topic, "--yes", url=url)
    tern("send", topic, "new", url=url)

    new = tern("topic", "show", topic, "--json", url=url).json()
    consumed = tern("consume", topic, "--group", "g", "--no-follow", url=url)

    assert new["id"] != old["id"]
    assert new["messages"] == 1
    assert consumed.out == "new\n"


def test_deleting_without_anybody_to_ask_needs_yes(shared_node: Node, topic: str) -> None:
    tern("topic", "create", topic, url=shared_node.url)

    refused = tern("topic", "delete", topic, url=shared_node.url, code=2)

    assert "--yes" in refused.err
    tern("topic", "show", topic, url=shared_node.url)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["topic", "create", "bad name"], "cannot be the name of a topic"),
        (["topic", "create", "%ours"], "'%' is reserved"),
        (["topic", "create", "x" * 128], "cannot be the name of a topic"),
        (["topic", "create", "t", "--body-size-max", "huge"], "is not a size"),
        (["topic", "create", "t", "--app", "shop"], "--closed"),
        (["group", "create", "t", "bad group"], "cannot be the name of a group"),
        (["group", "create", "t", "g", "--from", "noon"], "is not a place to start"),
        (["group", "reset", "t", "g", "--to", "somewhere"], "is not a place to start"),
    ],
)
def test_what_can_never_work_is_refused_with_a_reason(arguments: list[str], said: str) -> None:
    refused = tern(*arguments, url="tern://127.0.0.1:1", code=2)

    assert refused.out == ""
    assert refused.err.startswith("error: ")
    assert said in refused.err


def test_auto_creation_can_be_switched_off(node_factory: NodeFactory) -> None:
    node = node_factory(auto_create=False)

    refused = tern("send", "nobody-made-this", "x", url=node.url, code=1)
    tern("topic", "create", "made", url=node.url)
    tern("send", "made", "x", url=node.url)

    assert "nobody-made-this" in refused.err
    assert [one["name"] for one in tern("topic", "list", "--json", url=node.url).json()] == ["made"]


def test_a_group_can_be_made_listed_shown_and_deleted(shared_node: Node, topic: str) -> None:
    url = shared_node.url
    tern("send", topic, "a", "b", "c", url=url)
    made = tern("group", "create", topic, "g", "--from", "1", "--json", url=url).json()

    listed = tern("group", "list", topic, "--json", url=url).json()
    shown = tern("group", "show", topic, "g", "--json", url=url).json()

    assert made["ledger"]["start"] == 1
    assert [(one["topic"], one["name"]) for one in listed] == [(topic, "g")]
    assert (shown["ledger"]["total"], shown["ledger"]["ready"], shown["members"]) == (2, 2, [])
    assert "2 = 2 ready" in tern("group", "show", topic, "g", url=url).out
    assert tern("consume", topic, "--group", "g", "--no-follow", url=url).out == "b\nc\n"

    tern("group", "delete", topic, "g", "--yes", url=url)
    gone = tern("group", "show", topic, "g", url=url, code=1)
    assert "has no group 'g'" in gone.err


def test_a_reset_shows_what_it_would_do_before_it_does_it(shared_node: Node, topic: str) -> None:
    url = shared_node.url
    tern("send", topic, *"abcde", url=url)
    tern("consume", topic, "--group", "g", "--no-follow", url=url)

    preview = tern("group", "reset", topic, "g", "--to", "2", "--dry-run", "--json", url=url).json()
    untouched = tern("consume", topic, "--group", "g", "--no-follow", url=url)
    refused = tern("group", "reset", topic, "g", "--to", "2", url=url, code=2)
    done = tern("group", "reset", topic, "g", "--to", "2", "--yes", "--json", url=url).json()
    again = tern("consume", topic, "--group", "g", "--no-follow", url=url)

    assert (preview["to_sequence"], preview["again"], preview["dry_run"]) == (2, 3, True)
    assert untouched.out == ""
    assert "3 handed out (again)" in refused.err
    assert "--yes" in refused.err
    assert (done["again"], done["dry_run"]) == (3, False)
    assert again.out == "c\nd\ne\n"


def test_a_forward_reset_skips_and_the_ledger_says_so(shared_node: Node, topic: str) -> None:
    url = shared_node.url
    tern("send", topic, *"abcde", url=url)
    tern("group", "create", topic, "g", url=url)
    tern("group", "reset", topic, "g", "--to", "latest", "--yes", url=url)

    (line,) = tern("ledger", topic, "g", "--json", url=url).json()

    assert (line["total"], line["skipped"], line["ready"], line["sum"]) == (5, 5, 0, 5)
