"""How servers prove who they are: what counts as a proof, and everything that does not."""

import hmac

import msgspec
import pytest
from structlog.testing import capture_logs

from ternmq.core.errors import BadConfig, BadName, ProtocolError, Unauthorized
from ternmq.rpc.node_proof import (
    REFUSED_LOGGED_S,
    Challenged,
    NodeCredential,
    NodeGate,
    NodeGreeting,
    NodeIdentity,
    NodeSecret,
)
from ternmq.wire.messages.hello import (
    DISPATCHER,
    PROTOCOL_VERSION,
    Auth,
    Challenge,
    Hello,
    NodeClaim,
    Welcome,
)
from ternmq.wire.record import pack, unpack
from tests.node_greeting import SECRET, greeting

OTHER = NodeSecret("the secret of another cluster altogether", "elsewhere")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def gate(secret: NodeSecret | None = SECRET, clock: Clock | None = None) -> NodeGate:
    return NodeGate(secret, "broker", "main", now=clock or Clock())


def conversation(who: NodeGreeting, at: NodeGate) -> tuple[Challenged, Auth, bool]:
    """(what was asked, the answer, does the one who connects believe the other)."""
    opening = who.begin()
    challenged = at.challenge(opening.hello, unpack(opening.hello, Hello))
    auth, wrong = opening.answer(pack(challenged.challenge), "there:1")
    return challenged, auth, wrong is None


def test_who_knows_the_secret_is_let_in_as_what_it_says() -> None:
    at = gate()
    challenged, auth, believed = conversation(greeting("east", "delay"), at)

    assert believed
    assert at.prove(challenged, auth, "here:1") == NodeIdentity("delay", "east")


def test_the_secret_is_in_nothing_that_is_sent_or_shown() -> None:
    opening = greeting().begin()
    challenged = gate().challenge(opening.hello, unpack(opening.hello, Hello))
    auth, _ = opening.answer(pack(challenged.challenge), "there:1")
    text = "what all servers of these tests know"

    for seen in (opening.hello, pack(challenged.challenge), pack(auth)):
        assert text.encode() not in seen
    assert text not in repr(SECRET) + repr(greeting()) + repr(challenged)


def test_with_another_secret_neither_believes_the_other() -> None:
    at = gate()
    challenged, auth, believed = conversation(greeting(secret=OTHER), at)

    assert not believed and auth.proof == b"", "no proof for a server that has none"
    with pytest.raises(Unauthorized, match="different node secrets"):
        at.prove(challenged, auth, "here:1")
    forged = Auth(proof=OTHER.proof("tern node 1: asks", b"", challenged.challenge))
    with pytest.raises(Unauthorized):
        at.prove(challenged, forged, "here:1")


def test_what_is_wrong_names_the_file_and_what_to_do() -> None:
    opening = greeting(secret=OTHER).begin()
    challenged = gate().challenge(opening.hello, unpack(opening.hello, Hello))
    _, wrong = opening.answer(pack(challenged.challenge), "there:1")

    assert isinstance(wrong, Unauthorized)
    assert all(word in wrong.message for word in ("there:1", "elsewhere", "node_secret_file"))


def test_a_proof_that_was_heard_is_of_no_use_again() -> None:
    at = gate()
    opening = greeting().begin()
    hello = unpack(opening.hello, Hello)
    first = at.challenge(opening.hello, hello)
    heard, _ = opening.answer(pack(first.challenge), "there:1")
    again = at.challenge(opening.hello, hello)  # The same HELLO, word for word.

    with pytest.raises(Unauthorized):
        at.prove(again, heard, "here:1")


def test_a_server_s_own_proof_sent_back_to_it_is_none() -> None:
    at = gate()
    opening = greeting().begin()
    challenged = at.challenge(opening.hello, unpack(opening.hello, Hello))

    with pytest.raises(Unauthorized):
        at.prove(challenged, Auth(proof=challenged.challenge.proof), "here:1")


def test_nobody_can_say_to_be_another_server_on_the_way() -> None:
    """What is said of oneself is part of the proof, on both sides."""
    at = gate()
    opening = greeting("east").begin()
    hello = unpack(opening.hello, Hello)
    claim = unpack(hello.proof, NodeClaim)
    changed = Hello(
        **{
            **{name: getattr(hello, name) for name in hello.__struct_fields__},
            "proof": pack(NodeClaim(nonce=claim.nonce, kind="realtime", broker_group="west")),
        }
    )
    challenged = at.challenge(pack(changed), changed)
    _, wrong = opening.answer(pack(challenged.challenge), "there:1")
    assert wrong is not None

    challenged = at.challenge(opening.hello, hello)
    said = challenged.challenge
    elsewhere = Challenge(nonce=said.nonce, proof=said.proof, role="meta", broker_group="main")
    _, wrong = opening.answer(pack(elsewhere), "there:1")
    assert wrong is not None


def test_what_is_not_a_claim_is_refused() -> None:
    at = gate()
    hello = greeting().hello

    def said(**other: object) -> Hello:
        fields = {name: getattr(hello, name) for name in hello.__struct_fields__}
        return Hello(**{**fields, "method": "node", **other})

    short = NodeClaim(nonce=b"x", kind="realtime", broker_group="main")
    odd = NodeClaim(nonce=bytes(32), kind="realtime", broker_group="a\x1b[2J")
    with pytest.raises(ProtocolError):
        at.challenge(b"", said(proof=b"\xc1"))
    with pytest.raises(ProtocolError, match="32 bytes"):
        at.challenge(b"", said(proof=pack(short)))
    with pytest.raises(ProtocolError, match="name of ours"):
        at.challenge(b"", said(proof=hello.proof or greeting_proof(), app="shop"))
    with pytest.raises(BadName):
        at.challenge(b"", said(proof=pack(odd)))
    with pytest.raises(Unauthorized, match="'magic' is not known") as refused:
        at.challenge(b"", said(method="magic"))
    assert refused.value.details == {"methods": ["node"]}
    with pytest.raises(Unauthorized, match="no node secret"):
        gate(None).challenge(b"", said(proof=greeting_proof()))


def greeting_proof() -> bytes:
    return unpack(greeting().begin().hello, Hello).proof


def test_a_server_of_an_earlier_release_is_named_as_such() -> None:
    welcome = Welcome(protocol=1, version="0.1", role="meta", node="n")

    with pytest.raises(ProtocolError, match="earlier release"):
        greeting().begin().answer(pack(welcome), "there:1")


def test_a_server_that_is_refused_all_the_time_is_one_line_in_ten_seconds() -> None:
    clock = Clock()
    at = gate(clock=clock)
    with capture_logs() as lines:
        for _ in range(500):
            challenged, auth, _ = conversation(greeting("east", secret=OTHER), at)
            with pytest.raises(Unauthorized):
                at.prove(challenged, auth, "10.0.0.9:4000")
        clock.now += REFUSED_LOGGED_S
        with pytest.raises(Unauthorized):
            at.prove(challenged, auth, "10.0.0.9:4000")

    assert at.refused == 501
    assert [line["left_out"] for line in lines] == [0, 499]
    said = lines[0]
    assert (said["peer"], said["broker_group"]) == ("10.0.0.9:4000", "east")
    assert said["secret_file"] == "a test"


def test_a_secret_that_could_be_guessed_is_refused() -> None:
    with pytest.raises(BadConfig, match=r"/etc/tern.secret has 8 characters.*openssl rand"):
        NodeSecret("password\n", "/etc/tern.secret")


def test_white_space_around_a_secret_does_not_count() -> None:
    said = Challenge(nonce=b"n", proof=b"", role="meta")
    one, other = NodeSecret("a" * 40, "x"), NodeSecret(f"  {'a' * 40}\n", "y")

    assert hmac.compare_digest(one.proof("l", b"h", said), other.proof("l", b"h", said))


def test_a_server_speaks_for_its_own_broker_group_only() -> None:
    identity = NodeIdentity("realtime", "east")
    identity.check_group("realtime", "east")

    for kind, group in (("delay", "east"), ("realtime", "west")):
        with pytest.raises(Unauthorized, match="does not speak for"):
            identity.check_group(kind, group)


def test_servers_of_an_earlier_release_are_believed_only_while_proofs_are_waived() -> None:
    """Decision 0027: both ways, for brokers and delay servers, and for no other name."""
    waived = [False]
    secret = NodeSecret("what all servers of these tests know", "a test", lambda: waived[0])
    at = gate(secret)
    hello = greeting().hello
    delay = msgspec.structs.replace(hello, app=DISPATCHER)
    shop = msgspec.structs.replace(hello, app="shop")
    welcome = pack(Welcome(protocol=PROTOCOL_VERSION, version="0.1.0", role="broker", node="n"))
    opening = NodeGreeting(hello, NodeCredential(secret, NodeIdentity("realtime", "east"))).begin()
    for earlier in (hello, delay):
        with pytest.raises(Unauthorized, match="unproven_servers_until"):
            at.unproven(earlier, "there:1")
    with pytest.raises(ProtocolError, match="unproven_servers_until"):
        opening.answer(welcome, "there:1")
    assert opening.let_in(welcome) is None and at.unproven(shop, "there:1") is None

    waived[0] = True
    broker = at.unproven(hello, "there:1")
    assert broker is not None and at.unproven(shop, "there:1") is None
    broker.check_group("realtime", "any")
    with pytest.raises(Unauthorized):
        broker.check_group("delay", "any")
    later = at.unproven(delay, "there:1")
    assert later is not None and later.kind == "delay"
    with pytest.raises(Unauthorized):
        at.unproven(msgspec.structs.replace(hello, app="%admin"), "there:1")
    assert opening.let_in(welcome) == unpack(welcome, Welcome)
    challenged = at.challenge(opening.hello, unpack(opening.hello, Hello))
    assert opening.let_in(pack(challenged.challenge)) is None, "who can prove it has to"
