"""The file of the node secret: made once, for its owner, and never guessed."""

import stat
from pathlib import Path

import pytest

from ternmq.core.errors import BadConfig
from ternmq.node.config import build
from ternmq.node.node_secret import own_node_secret, read_node_secret, shared_node_secret
from ternmq.testing.clock import TurnedClock
from ternmq.wire.messages.hello import Challenge

CLOCK = TurnedClock(1_800_000_000_000)
SAID = Challenge(nonce=b"n", proof=b"", role="meta")


def test_it_is_made_at_the_first_start_and_the_same_at_the_next(tmp_path: Path) -> None:
    config = build({"data_dir": tmp_path / "data"})
    first, again = own_node_secret(config, CLOCK), own_node_secret(config, CLOCK)
    path = tmp_path / "data" / "node-secret"

    assert first.proof("l", b"", SAID) == again.proof("l", b"", SAID)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(path.read_text(encoding="ascii").strip()) == 64
    assert [each.name for each in path.parent.iterdir()] == ["node-secret"]


def test_another_directory_has_another_one(tmp_path: Path) -> None:
    one, other = (own_node_secret(build({"data_dir": tmp_path / name}), CLOCK) for name in "ab")

    assert one.proof("l", b"", SAID) != other.proof("l", b"", SAID)


def test_one_that_is_named_is_read_and_never_made(tmp_path: Path) -> None:
    path = tmp_path / "shared"
    config = build({"data_dir": tmp_path / "data", "node_secret_file": str(path)})
    for read in (own_node_secret, shared_node_secret):
        with pytest.raises(BadConfig, match=f"no node secret at {path}.*openssl rand"):
            read(config, CLOCK)
    path.touch(mode=0o600)
    path.write_text("s" * 64)

    shared = shared_node_secret(config, CLOCK)
    assert shared is not None
    assert own_node_secret(config, CLOCK).source == shared.source == str(path)
    assert not (tmp_path / "data").exists()


def test_a_server_that_joins_others_is_told_to_bring_it(tmp_path: Path) -> None:
    config = build({"data_dir": tmp_path})
    with pytest.raises(BadConfig, match=r"--node-secret-file.*copy of the meta servers'"):
        shared_node_secret(config, CLOCK)
    own_node_secret(config, CLOCK)  # Copied to where it is looked for.

    copied = shared_node_secret(config, CLOCK)
    assert copied is not None and copied.source == str(tmp_path / "node-secret")


def test_over_tls_a_certificate_may_take_its_place(tmp_path: Path) -> None:
    files = {"tls_certificate_file": "c", "tls_key_file": "k", "tls_ca_file": "a"}
    assert shared_node_secret(build({"data_dir": tmp_path, "tls": True, **files}), CLOCK) is None


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o666])
def test_one_that_everybody_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    path.write_text("s" * 64)
    path.chmod(mode)

    with pytest.raises(BadConfig, match=f"mode {mode:o}.*chmod 600"):
        read_node_secret(path)


def test_what_is_no_secret_is_refused_without_showing_it(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    for content in (b"", b"canary", b"\xff" * 64):
        path.write_bytes(content)
        with pytest.raises(BadConfig, match=r"openssl rand") as refused:
            read_node_secret(path)
        assert "canary" not in str(refused.value)
    path.chmod(0o640)
    path.write_text("s" * 64)
    read_node_secret(path)  # Of a group, as orchestrators mount them.


def test_proofs_are_waived_until_the_time_of_the_setting_and_never_for_long(tmp_path: Path) -> None:
    clock = TurnedClock(1_800_000_000_000)  # 2027-01-15T08:00Z

    def until(text: str) -> bool:
        config = build({"data_dir": tmp_path, "unproven_servers_until": text})
        return own_node_secret(config, clock).waived()

    assert not until("") and not until("2027-01-15T07:59Z")
    assert until("2027-01-15T08:01Z") and until("2027-01-15T08:01"), "UTC where nothing is said"
    for wrong, told in {"2027-01-23T08:00Z": "7 days ahead", "tomorrow": "a time such as"}.items():
        with pytest.raises(BadConfig, match=told):
            until(wrong)
    config = build({"data_dir": tmp_path, "unproven_servers_until": "2027-01-15T09:00Z"})
    secret = own_node_secret(config, clock)
    clock.turn(3_599)
    assert secret.waived()
    clock.turn(1)
    assert not secret.waived(), "it ends by itself"
    with pytest.raises(BadConfig, match="upgrade all servers first"):
        build({"unproven_servers_until": "2027-01-15T09:00Z", "security": True})
