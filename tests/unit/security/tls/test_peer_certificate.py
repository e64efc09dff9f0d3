"""For which hosts a certificate is."""

from pathlib import Path

import pytest

from ternmq.security.tls.server_tls import ServerTls
from tests.tls_files import TlsFiles


@pytest.mark.parametrize(
    ("host", "fits"),
    [
        ("mq.example", True),
        ("MQ.example", True),
        ("a.wide.example", True),
        ("a.b.wide.example", False),
        ("wide.example", False),
        ("10.0.0.5", True),
        ("10.0.0.6", False),
        ("::1", True),
        ("0:0:0:0:0:0:0:1", True),
        ("other.example", False),
    ],
)
def test_a_certificate_is_for_the_hosts_in_it(tmp_path: Path, host: str, fits: bool) -> None:
    files = TlsFiles(tmp_path / "ca")
    served = files.server(hosts=["mq.example", "*.wide.example", "10.0.0.5", "::1"])

    assert ServerTls(served).certificate.is_for(host) is fits
