"""Machines that can be cut off from each other: network namespaces on one bridge. Needs root.

    with network("a", "b", "c") as net:
        node_factory.broker_server(url, "pair", place=net["a"])
        net["a"].stop_talking_to(net["b"])      # One way: what b sends still arrives at a.
        net.heal()

Each namespace has an address that the test's own processes reach too. Packets are dropped by
blackhole routes in the namespace that sends them, so a cut may be one-way; `unplug` takes a
namespace off the bridge, away from everybody. Everything goes when the block ends.
"""

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

_TURN = itertools.count()


def _ip(*arguments: str, check: bool = True) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0 or not check, f"ip {' '.join(arguments)}: {done.stderr}"


@dataclass(slots=True)
class Place:
    """One namespace: where a server can run."""

    name: str
    address: str
    _deaf_to: set[str] = field(default_factory=set)

    @property
    def prefix(self) -> tuple[str, ...]:
        """What runs a command in here."""
        return ("ip", "netns", "exec", self.name)

    def stop_talking_to(self, other: "Place") -> None:
        """Nothing that is sent from here arrives there."""
        if other.address not in self._deaf_to:
            self._deaf_to.add(other.address)
            _ip("-n", self.name, "route", "add", "blackhole", f"{other.address}/32")

    def unplug(self) -> None:
        _ip("-n", self.name, "link", "set", "eth0", "down")

    def heal(self) -> None:
        for address in self._deaf_to:
            _ip("-n", self.name, "route", "del", "blackhole", f"{address}/32")
        self._deaf_to.clear()
        _ip("-n", self.name, "link", "set", "eth0", "up")


@dataclass(slots=True)
class Network:
    """All places of a test."""

    places: dict[str, Place]

    def __getitem__(self, name: str) -> Place:
        return self.places[name]

    def others(self, place: Place) -> list[Place]:
        return [other for other in self.places.values() if other is not place]

    def heal(self) -> None:
        for place in self.places.values():
            place.heal()


@contextmanager
def network(*names: str) -> Iterator[Network]:
    """Namespaces of these names, joined, while the block runs."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    pid = os.getpid() * 10 + next(_TURN) % 10  # What one test left does not hinder the next.
    bridge, subnet = f"ternbr{pid % 1_000_000}", f"10.{100 + pid // 250 % 100}.{pid % 250}"
    places = {
        name: Place(f"tern-{pid}-{name}", f"{subnet}.{number}")
        for number, name in enumerate(names, start=1)
    }
    try:
        _ip("link", "add", bridge, "type", "bridge")
        _ip("address", "add", f"{subnet}.254/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for number, place in enumerate(places.values(), start=1):
            _join(place, bridge, f"tern{pid % 1_000_000}v{number}")
        yield Network(places)
    finally:
        for place in places.values():
            _ip("netns", "del", place.name, check=False)
        _ip("link", "del", bridge, check=False)
        for number in range(1, len(names) + 1):  # Servers that still run keep their namespace.
            _ip("link", "del", f"tern{pid % 1_000_000}v{number}", check=False)


def _join(place: Place, bridge: str, cable: str) -> None:
    _ip("netns", "add", place.name)
    _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", place.name)
    _ip("link", "set", cable, "master", bridge)
    _ip("link", "set", cable, "up")
    _ip("-n", place.name, "link", "set", "lo", "up")
    _ip("-n", place.name, "address", "add", f"{place.address}/24", "dev", "eth0")
    _ip("-n", place.name, "link", "set", "eth0", "up")
