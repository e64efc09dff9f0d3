"""Nodes for the attack: the fixtures of the integration tests."""

from tests.integration.conftest import interruptible, node, node_factory

__all__ = ["interruptible", "node", "node_factory"]
