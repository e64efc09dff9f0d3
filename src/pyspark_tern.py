"""Found by Spark itself in installed packages: `format("tern")` works without registering."""

from ternmq.pipeline.source.source import TernSource as DefaultSource

__all__ = ["DefaultSource"]
