"""docs/http-api.md: every curl of it is run, in its order, and answered well."""

import asyncio
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.console.conftest import seeded

PAGE = Path(__file__).resolve().parents[3] / "docs" / "http-api.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_every_curl_of_the_page_works() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    calls = [line for block in blocks for line in re.split(r"\n(?=curl )", block.strip())]
    calls = [call for call in calls if call.startswith("curl ")]
    assert len(calls) > 20
    async with seeded(listens=True, large=False) as console:
        ack_id = ""
        for call in calls:
            if "AN-ACK-ID" in call:
                assert ack_id, "the page settles before it pulls"
                call = call.replace("AN-ACK-ID", ack_id)
            ran = await asyncio.create_subprocess_exec(
                "sh",
                "-c",
                call.replace("curl -s", "curl -s -w '\\n%{http_code}'", 1),
                stdout=subprocess.PIPE,
                env={"API": f"{console.origin}/api/v1", "PATH": "/usr/bin:/bin:/usr/local/bin"},
            )
            out, _ = await ran.communicate()
            found = re.search(rb'"ack_id":"([^"]+)"', out)
            ack_id = found[1].decode() if found else ack_id

            assert out.decode().rpartition("\n")[2] in ("200", "202", "204"), (
                f"{call}\n{out.decode()}"
            )
