"""Master keys by reference: never shown, and what they wrap is bound to its use."""

from pathlib import Path

import pytest

from ternmq.core.errors import BadConfig, Corrupt, KeyNotFound, TernError
from ternmq.security.private_files import write_new
from ternmq.security.sealing.master_keys import context_of, find_master_keys, new_key_text

CANARY = "ab" * 32
CONTEXT = context_of("shop", "orders", "p1")


def key_file(folder: Path, text: str = CANARY, mode: int = 0o600) -> Path:
    path = folder / "shop.key"
    write_new(path, text.encode() + b"\n", mode)
    path.chmod(mode)
    return path


async def test_a_key_of_a_file_or_a_variable_wraps_and_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", CANARY)
    named = f"shop=file:{key_file(tmp_path)},other=env:SHOP_KEY"
    keys = find_master_keys(None, {"TERN_KEYS": named})

    wrapped = await keys.find("shop", "t").wrap(b"k" * 32, CONTEXT)

    assert await keys.find("other", "t").unwrap(wrapped, CONTEXT) == b"k" * 32
    assert wrapped != await keys.find("shop", "t").wrap(b"k" * 32, CONTEXT)


async def test_what_is_wrapped_for_one_use_opens_for_no_other(tmp_path: Path) -> None:
    key = find_master_keys({"shop": f"file:{key_file(tmp_path)}"}, {}).find("shop", "t")
    wrapped = await key.wrap(b"k" * 32, CONTEXT)

    for bytes_, context in [
        (wrapped, context_of("shop", "pay", "p1")),
        (wrapped, context_of("shop", "orders", "p2")),
        (wrapped[:-1], CONTEXT),
        (b"", CONTEXT),
        (b"\x02" + wrapped[1:], CONTEXT),
    ]:
        with pytest.raises(Corrupt, match=r"master key 'shop'.*does not open"):
            await key.unwrap(bytes_, context)


@pytest.mark.parametrize(
    "keys",
    [CANARY, f"shop={CANARY}", {"shop": CANARY}, {"shop": 5}, {5: "file:x"}, 5, {"a b": "x"}],
)
def test_a_mistake_is_told_without_what_may_be_the_key(keys: object) -> None:
    with pytest.raises(TernError) as refused:
        find_master_keys(keys, {})
    assert CANARY not in refused.value.message


async def test_a_key_that_others_may_read_or_that_is_none_is_refused(tmp_path: Path) -> None:
    loose = key_file(tmp_path, mode=0o644)
    with pytest.raises(BadConfig, match="others may read the master key 'shop'"):
        await find_master_keys(f"shop=file:{loose}", {}).find("shop", "t").wrap(b"", CONTEXT)
    loose.unlink()
    short = key_file(tmp_path, "5ec4e7")
    with pytest.raises(BadConfig, match=r"no key of 32 bytes.*tern key make") as refused:
        await find_master_keys(f"shop=file:{short}", {}).find("shop", "t").wrap(b"", CONTEXT)
    assert "5ec4e7" not in refused.value.message
    with pytest.raises(KeyNotFound, match="NOT_SET is not set"):
        await find_master_keys("shop=env:NOT_SET", {}).find("shop", "t").wrap(b"", CONTEXT)


def test_a_missing_key_says_where_to_name_it() -> None:
    with pytest.raises(KeyNotFound, match=r"topic 'orders'.*no master key 'shop'.*TERN_KEYS"):
        find_master_keys({}, {}).find("shop", "orders")


def test_a_new_key_is_one() -> None:
    assert len(bytes.fromhex(new_key_text())) == 32
