"""Meta servers are tried on every registry that the contract suite knows."""

from tests.unit.meta.conftest import opener as opener
