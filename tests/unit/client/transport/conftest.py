"""Logins are tried on the guarded server that `rpc` is tested with."""

from tests.unit.rpc.guarded.conftest import server as server
