"""Which release this is: asked for at every connection, looked up once."""

from functools import cache
from importlib.metadata import version


@cache
def release() -> str:
    """As pip knows it. Reading the metadata of a package takes a millisecond."""
    return version("ternmq")
