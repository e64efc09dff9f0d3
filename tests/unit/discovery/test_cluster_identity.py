"""Which cluster a process is of."""

import pytest

from ternmq.discovery.cluster_identity import ClusterIdentity, all_have


def test_the_first_registry_that_is_met_is_the_one() -> None:
    known = ClusterIdentity()
    assert not known.is_foreign("a")
    known.take("a")

    assert not known.is_foreign("a")
    assert known.is_foreign("b")


def test_meta_servers_of_a_release_that_does_not_say_it_are_believed() -> None:
    known = ClusterIdentity()
    known.take("a")
    known.take("")

    assert not known.is_foreign("")
    assert known.id == "a"


def test_a_refusal_names_the_meta_server_and_both_clusters() -> None:
    known = ClusterIdentity()
    known.take("aaaa")

    said = known.refusal("h:7700", "bbbb").message
    assert all(word in said for word in ("h:7700", "aaaa", "bbbb", "registry"))


@pytest.mark.parametrize(
    ("others", "believed"),
    [([], True), (["b", "b"], True), (["a", "b"], False), ([None, "b"], False), ([""], False)],
)
def test_another_registry_is_believed_when_nobody_can_have_the_former_one(
    others: list[str | None], believed: bool
) -> None:
    assert all_have("b", others) is believed
