"""What grants come to: patterns, deny, what is one's own, and what a refusal says."""

import pytest

from ternmq.core.errors import BadRequest, Forbidden
from ternmq.security.access.rights import Rights, check_grant, covers, lost
from ternmq.security.access.token import TokenClaims
from ternmq.wire.actions import Action
from ternmq.wire.messages.limits import Grant


def rights(*lines: str, name: str = "shop", apps: tuple[str, ...] = ("shop",)) -> Rights:
    """`allow publish order.*`, `deny * *` …"""
    grants = []
    for line in lines:
        rule, action, resource = line.split()
        grants.append(check_grant(Grant(action=action, resource=resource, deny=rule == "deny")))
    return Rights(name, apps, tuple(grants))


@pytest.mark.parametrize(
    ("pattern", "name", "covered"),
    [
        ("order.new", "order.new", True),
        ("order.new", "order.news", False),
        ("order.*", "order.new", True),
        ("order.*", "order.", True),
        ("order.*", "order", False),
        ("order.*", "orders.new", False),
        ("*", "anything", True),
        ("*", "", True),
        ("order.*", "", False),
        ("", "", False),
    ],
)
def test_a_pattern_is_exact_a_prefix_or_everything(pattern: str, name: str, covered: bool) -> None:
    assert covers(pattern, name) is covered


def test_nothing_that_allows_means_no() -> None:
    nobody = rights()

    for action in Action:
        for kind in ("topic", "app", "cluster", "user"):
            assert not nobody.may(action, kind, "x")
            assert not nobody.may(action, kind, "")


def test_deny_wins_whatever_comes_first() -> None:
    for lines in (
        ("allow publish order.*", "deny publish order.secret"),
        ("deny publish order.secret", "allow publish order.*"),
        ("allow * *", "deny publish order.secret"),
    ):
        some = rights(*lines)
        assert some.may(Action.PUBLISH, "topic", "order.new")
        assert not some.may(Action.PUBLISH, "topic", "order.secret")


def test_a_line_is_about_its_action_and_kind_only() -> None:
    some = rights("allow publish order.*", "allow operate group:billing")

    assert not some.may(Action.SUBSCRIBE, "topic", "order.new")
    assert not some.may(Action.PUBLISH, "group", "order.new")
    assert some.may(Action.OPERATE, "group", "billing")
    assert not some.may(Action.OPERATE, "topic", "billing")
    assert not some.may(Action.PUBLISH, "topic", ""), "a prefix is not all of them"


def test_all_of_a_kind_is_covered_by_what_names_everything() -> None:
    assert rights("allow read *").may(Action.READ, "topic", "")
    assert rights("allow read topic:*").may(Action.READ, "topic", "")
    assert not rights("allow read topic:*").may(Action.READ, "group", "")


def test_an_own_group_needs_no_line_and_can_be_denied() -> None:
    own = rights("allow subscribe order.*")

    assert own.may(Action.SUBSCRIBE, "group", "shop")
    assert own.may(Action.SUBSCRIBE, "group", "shop.audit")
    assert not own.may(Action.SUBSCRIBE, "group", "shopping")
    assert not own.may(Action.SUBSCRIBE, "group", "billing")
    assert not own.may(Action.OPERATE, "group", "shop")
    assert not rights("deny subscribe group:shop").may(Action.SUBSCRIBE, "group", "shop")
    everybody = rights(apps=("*",))
    assert not everybody.may(Action.SUBSCRIBE, "group", "billing"), "a pattern owns no group"


def test_who_may_do_something_with_a_topic_may_see_it_unless_denied() -> None:
    assert rights("allow publish order.*").sees("order.new")
    assert not rights("allow publish order.*").sees("pay.in")
    assert not rights("allow publish order.*", "deny describe *").sees("order.new")
    assert rights("allow describe *").sees_all
    assert not rights("allow describe *", "deny describe pay.*").sees_all
    assert not rights("allow publish order.*").sees_all


def test_a_refusal_says_which_right_is_missing_and_how_it_is_given() -> None:
    with pytest.raises(Forbidden) as caught:
        rights().check(Action.PUBLISH, "topic", "pay.in")
    assert "tern grant add shop publish 'pay.in'" in caught.value.message
    with pytest.raises(Forbidden, match="tern grant add shop operate 'group:billing'"):
        rights().check(Action.OPERATE, "group", "billing")
    with pytest.raises(Forbidden, match=r"all topics.*read 'topic:\*'"):
        rights().check(Action.READ, "topic", "")


def test_the_command_that_a_refusal_names_is_enough() -> None:
    for action, kind, name in (
        (Action.PUBLISH, "topic", "pay.in"),
        (Action.READ, "topic", ""),
        (Action.OPERATE, "group", "g"),
        (Action.CLUSTER, "cluster", ""),
        (Action.GRANT, "user", "eve"),
        (Action.MANAGE, "app", "shop"),
    ):
        with pytest.raises(Forbidden) as caught:
            rights().check(action, kind, name)
        told = caught.value.details
        rights(f"allow {told['action']} {told['resource']}").check(action, kind, name)


def test_an_own_password_is_changed_by_its_owner_only() -> None:
    assert rights().may(Action.GRANT, "password", "shop")
    assert not rights().may(Action.GRANT, "password", "admin")
    assert rights("allow grant *").may(Action.GRANT, "password", "shop")


@pytest.mark.parametrize(
    ("action", "resource"),
    [
        ("fly", "*"),
        ("replicate", "*"),
        ("connect", "*"),
        ("publish", "planet:mars"),
        ("publish", "a*b"),
        ("publish", "**"),
        ("publish", "%dead.g"),
        ("publish", ""),
        ("publish", "topic:"),
    ],
)
def test_a_line_that_means_nothing_is_refused(action: str, resource: str) -> None:
    with pytest.raises(BadRequest):
        check_grant(Grant(action=action, resource=resource))


def test_what_is_lost_is_found() -> None:
    used = {(Action.SUBSCRIBE, "topic", "a"), (Action.READ, "topic", "b")}

    assert lost(used, rights("allow subscribe a", "allow read b")) is None
    assert lost(used, rights("allow subscribe a")) == (Action.READ, "topic", "b")


def by_token(*lines: str, narrow: tuple[str, ...] | None) -> Rights:
    lined = None if narrow is None else list(rights(*narrow).grants)
    claims = TokenClaims(iss="", sub="shop", aud="", jti="", iat=0, exp=1, narrow=lined)
    return Rights("shop", ("shop",), rights(*lines).grants, claims)


def test_a_token_is_its_user_and_what_its_lines_allow() -> None:
    held = by_token("allow publish *", "allow subscribe a", narrow=("allow * a*", "allow read b"))
    assert held.may(Action.PUBLISH, "topic", "a1")
    assert held.may(Action.SUBSCRIBE, "topic", "a")
    assert held.may(Action.SUBSCRIBE, "group", "shop.x"), "its own groups come along"
    assert not held.may(Action.PUBLISH, "topic", "b"), "not in the token"
    assert not held.may(Action.READ, "topic", "b"), "not of the user"
    assert held.sees("a1")
    assert not held.sees("c"), "no line of the token is about it"
    assert not held.sees_all
    assert not by_token("allow * *", narrow=("allow publish a",)).may(
        Action.SUBSCRIBE, "group", "shop"
    )


def test_a_token_that_only_describes_sees_and_does_nothing_else() -> None:
    held = by_token("allow publish *", narrow=("allow describe *",))
    assert held.sees("a")
    assert not held.may(Action.PUBLISH, "topic", "a")


def test_what_is_ones_own_is_not_by_a_token_and_others_need_grant_on_the_user() -> None:
    assert rights().may(Action.GRANT, "password", "shop")
    assert not by_token(narrow=None).may(Action.GRANT, "password", "shop")
    helper = rights("allow grant user:sh*", name="helper")
    assert helper.may(Action.GRANT, "password", "shop")
    assert not helper.may(Action.GRANT, "password", "bank")
    assert not helper.may(Action.GRANT, "password", "")
