"""Encrypted topics by the command line: what is shown and erased, and keys that are nowhere."""

import json
import stat
from pathlib import Path

from ternmq.cli.access.key import STAYS
from ternmq.sync import connect
from tests.integration.processes import Node, tern

BODY = "c4n4ry-body"


def test_from_a_key_to_an_erased_message(node: Node, tmp_path: Path) -> None:
    file = tmp_path / "shop.key"
    tern("key", "make", str(file))
    key = file.read_text().strip()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "there is a" in tern("key", "make", str(file), code=2).err
    keys = f"shop=file:{file}"
    ran = [tern("topic", "create", "orders", "--master-key", "shop", url=node.url)]
    ran.append(tern("send", "orders", BODY, url=node.url, keys=keys))
    with connect(node.url, keys=keys) as mq:
        mq.send("orders", BODY.encode(), key="ada", subject="ada")

    ran.append(tern("send", "orders", "x", url=node.url, code=1))
    assert "no master key 'shop'" in ran[-1].err and "Traceback" not in ran[-1].err
    ran.append(tern("browse", "orders", url=node.url, keys=keys))
    assert ran[-1].out.count(BODY) == 2
    ran.append(tern("browse", "orders", url=node.url))
    assert ran[-1].out.count("no key for it here") == 2 and BODY not in ran[-1].out
    ran.append(tern("topic", "show", "orders", url=node.url))
    assert "encrypted under shop" in ran[-1].out and "stay readable" in ran[-1].out
    ran.append(tern("key", "list", "orders", "--json", url=node.url))
    assert sorted(one["label"][0] for one in json.loads(ran[-1].out)) == ["p", "s"]
    ran.append(tern("erase", "--subject", "ada", url=node.url, code=None))
    assert ran[-1].code != 0, "asked first"
    ran.append(tern("erase", "--subject", "ada", "--yes", url=node.url))
    assert "erased in 1 topic(s): orders" in ran[-1].out
    assert all(line in ran[-1].err for line in STAYS)
    ran.append(tern("erase", "--subject", "ada", "--yes", url=node.url))
    assert "nothing to erase" in ran[-1].out
    ran.append(tern("browse", "orders", "--json", url=node.url, keys=keys))
    shown = [json.loads(line) for line in ran[-1].out.splitlines()]
    assert [(one.get("body"), one.get("erased")) for one in shown] == [(BODY, None), (None, True)]
    ran.append(tern("export", "orders", url=node.url, keys=keys))
    assert "1 erased messages are left out" in ran[-1].err
    ran.append(tern("status", "--json", url=node.url, keys=keys))
    ran.append(tern("topic", "list", "--json", url=node.url, keys=keys))
    assert "%key" not in ran[-1].out

    assert key not in "".join(one.out + one.err for one in ran)
    node.stop()
    for path in [*node.data_dir.rglob("*"), *node.output_dir.glob("*")]:
        if path.is_file():
            content = path.read_bytes()
            assert key.encode() not in content, path
            assert bytes.fromhex(key) not in content, path
            assert BODY.encode() not in content, path
