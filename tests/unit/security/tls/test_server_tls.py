"""New files in place of old ones while a server runs; bad ones change nothing."""

import asyncio
import os
from pathlib import Path

import pytest

from ternmq.core.errors import BadConfig
from ternmq.core.lifecycle import background
from ternmq.metrics.samples import Samples
from ternmq.security.tls.certificate_files import CertificateFiles
from ternmq.security.tls.client_tls import ClientTls
from ternmq.security.tls.node_name import NodeName
from ternmq.security.tls.server_tls import ServerTls, TlsWatch
from tests.tls_files import TlsFiles
from tests.waiting import until


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path / "ca")


def test_files_that_are_the_same_are_not_read_again(files: TlsFiles) -> None:
    tls = files.serving()
    before = tls.now.incoming
    tls.look()

    assert tls.now.incoming is before and tls.swaps == 0


def test_new_files_are_taken_in_one_step(files: TlsFiles) -> None:
    tls = files.serving()
    before, old = tls.certificate, (tls.now.incoming, tls.context())
    files.server(replace=True)
    tls.look()

    assert tls.certificate != before
    assert tls.swaps == 1 and not tls.trouble
    assert tls.now.incoming is not old[0] and tls.context() is not old[1]


def spoil(files: CertificateFiles, how: str) -> None:
    assert files.certificate is not None and files.key is not None and files.ca is not None
    match how:
        case "no PEM":
            files.certificate.write_text("nonsense")
        case "another key":
            files.key.write_bytes((files.key.parent / "ca-key.pem").read_bytes())
        case "gone":
            files.certificate.unlink()
        case "a key for all":
            files.key.chmod(0o644)
            os.utime(files.key, (1, 1))
        case "an empty CA":
            files.ca.write_bytes(b"")


BAD = ("no PEM", "another key", "gone", "a key for all", "an empty CA")


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_file_leaves_the_old_ones_in_use_until_it_is_good(files: TlsFiles, bad: str) -> None:
    ca = files.ca.read_bytes()
    tls = files.serving()
    before = tls.now.incoming
    spoil(tls.files, bad)
    tls.look()

    assert tls.now.incoming is before
    assert tls.trouble and tls.swaps == 0
    files.ca.write_bytes(ca)
    files.server(replace=True)
    tls.look()
    assert tls.now.incoming is not before
    assert not tls.trouble and tls.swaps == 1


def test_an_expired_certificate_is_not_taken(files: TlsFiles) -> None:
    tls = files.serving()
    before = tls.certificate
    files.server(days=-1, replace=True)
    tls.look()

    assert tls.certificate == before
    assert "expired" in tls.trouble


def test_a_running_server_does_not_become_another_one(files: TlsFiles) -> None:
    tls = files.serving()
    files.server(nodes=[NodeName("shop", "realtime", "east")], replace=True)
    tls.look()

    assert "is not for tern://shop/meta" in tls.trouble
    assert tls.speaks_for("realtime", "main") and not tls.speaks_for("realtime", "east")


def test_a_server_does_not_start_with_files_of_no_use(files: TlsFiles, tmp_path: Path) -> None:
    good = files.server()
    assert good.key is not None
    with pytest.raises(BadConfig, match="cannot read the CA file"):
        ServerTls(CertificateFiles(certificate=good.certificate, key=good.key, ca=tmp_path / "no"))
    with pytest.raises(BadConfig, match="expired"):
        ServerTls(files.server("old", days=-1))
    other = TlsFiles(tmp_path / "other")
    with pytest.raises(BadConfig, match="of no use with the CA file"):
        ServerTls(CertificateFiles(certificate=good.certificate, key=good.key, ca=other.ca))
    good.key.chmod(0o604)
    with pytest.raises(BadConfig, match=r"others.*chmod 600"):
        ServerTls(good)


async def test_the_watch_looks_by_itself_and_when_it_is_woken(files: TlsFiles) -> None:
    tls = files.serving()
    async with background(watch=TlsWatch(tls, interval_s=0.01).run):
        files.server(replace=True)
        await until(lambda: tls.swaps == 1)
    woken = TlsWatch(tls, interval_s=1e6)
    async with background(watch=woken.run):
        files.server(replace=True)
        await asyncio.sleep(0)
        woken.wake()
        await until(lambda: tls.swaps == 2)


async def test_figures_say_until_when_and_whether_files_are_refused(files: TlsFiles) -> None:
    tls, out = files.serving(), Samples()
    spoil(tls.files, "no PEM")
    tls.look()
    await tls.figures(out)

    assert out.values["tern_tls_files_refused"] == {(): 1.0}
    assert out.values["tern_tls_certificate_expires_at_seconds"] == {(): tls.certificate.not_after}


def test_a_client_takes_new_files_with_its_next_connection(files: TlsFiles) -> None:
    tls = files.asking()
    before = tls.context()
    ca = files.ca.read_bytes()
    files.ca.write_bytes(b"nonsense")

    assert tls.context() is before
    files.ca.write_bytes(ca)
    assert tls.context() is not before


def test_a_client_with_files_of_no_use_is_told_at_once(files: TlsFiles, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="cannot read the CA file"):
        ClientTls(CertificateFiles(ca=tmp_path / "none.pem"))
    with pytest.raises(BadConfig, match="belong together"):
        CertificateFiles(certificate=tmp_path / "alone.pem")
