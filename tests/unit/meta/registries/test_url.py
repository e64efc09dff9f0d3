"""Which registry is meant; and that a password in a url is shown to nobody."""

import pytest

from ternmq.core.errors import BadConfig
from ternmq.meta.registries.url import open_registry, redacted

CANARY = "c4n4ry"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("postgresql://tern@db/tern", "postgresql://***@db/tern"),
        (f"postgresql://tern:{CANARY}@db/tern", "postgresql://***@db/tern"),
        (f"mysql://tern:{CANARY}@x@db/tern", "mysql://***@db/tern"),
        (f"postgresql://db/tern?password={CANARY}", "postgresql://db/tern"),
        (f"tern:{CANARY}@db", "***@db"),
        ("sqlite:////var/lib/tern.db", "sqlite:////var/lib/tern.db"),
    ],
)
def test_what_could_be_a_password_is_left_out(written: str, shown: str) -> None:
    assert redacted(written) == shown


@pytest.mark.parametrize(
    "written",
    [
        f"postgresq://tern:{CANARY}@db/tern",
        f"postgresql//tern:{CANARY}@db/tern",
        f"postgresql://tern:{CANARY}@db:port/tern",
        f"postgresql://tern:{CANARY}@db",
        f"oracle://tern:{CANARY}@db/tern",
        f"zookeeper://tern:{CANARY}@zk/path",
        f"zookeeper:/tern:{CANARY}@zk",
        f"sqlite://tern:{CANARY}@/",
    ],
)
def test_a_mistyped_url_is_refused_without_its_password(written: str) -> None:
    """Finding M4: it was printed whole."""
    with pytest.raises(BadConfig) as refused:
        open_registry(written)

    assert CANARY not in str(refused.value)
    error: BaseException | None = refused.value
    while error is not None:
        assert CANARY not in str(error)
        error = None if error.__suppress_context__ else error.__cause__ or error.__context__
