"""The CA in a folder: what it makes, for whom it is readable, what it never replaces."""

import stat
from pathlib import Path

import pytest

from ternmq.core.errors import AlreadyExists, BadConfig, BadRequest
from ternmq.security.tls.authority import Authority, CertificateOrder
from tests.tls_files import TlsFiles


def test_keys_are_for_their_owner_only(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path / "ca")
    files.server()
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode) for path in files.folder.glob("*-key.pem")
    }

    assert modes == {"ca-key.pem": 0o600, "node-key.pem": 0o600}
    assert stat.S_IMODE(files.folder.stat().st_mode) == 0o700


def test_nothing_is_replaced_unless_asked(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path / "ca")
    key = files.server().key
    assert key is not None
    before = key.read_bytes(), files.ca.read_bytes()
    with pytest.raises(AlreadyExists, match="not replaced"):
        files.server()
    with pytest.raises(AlreadyExists, match="not replaced"):
        Authority.make(files.folder, "shop")

    assert (key.read_bytes(), files.ca.read_bytes()) == before
    files.server(replace=True)
    assert key.read_bytes() != before[0]
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_a_ca_that_was_made_is_opened_again_with_its_cluster(tmp_path: Path) -> None:
    TlsFiles(tmp_path / "ca", "shop")
    assert Authority.open(tmp_path / "ca").cluster == "shop"


def test_a_folder_without_a_ca_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="tern secure init makes one"):
        Authority.open(tmp_path)


def test_a_host_that_is_none_is_refused(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path / "ca")
    with pytest.raises(BadRequest, match="neither a host name"):
        files.authority.issue(CertificateOrder(name="x", hosts=["büro"]))
