"""The settings for TLS: all files or none, and never files without encryption."""

import pytest

from ternmq.core.errors import BadConfig
from ternmq.node.config import build

FILES = {"tls_certificate_file": "c", "tls_key_file": "k", "tls_ca_file": "a"}


def test_tls_needs_its_files_and_says_how_to_get_them() -> None:
    with pytest.raises(BadConfig, match=r"needs tls_key_file, tls_ca_file.*tern secure init"):
        build({"tls": "on", "tls_certificate_file": "c"})


def test_files_without_tls_do_not_start_in_the_clear() -> None:
    with pytest.raises(BadConfig, match="nothing would be encrypted"):
        build({"tls_ca_file": "ca.pem"})


def test_required_certificates_are_as_good_as_loopback() -> None:
    required = {"tls": True, "tls_client_certificates": "required", **FILES}
    assert not build({"host": "0.0.0.0", **required}).exposed
    with pytest.raises(BadConfig, match="tls_client_certificates"):
        build({"host": "0.0.0.0", "tls": True, **FILES})


def test_all_servers_of_a_cluster_speak_tls_or_none() -> None:
    plain, secured = build({}), build({"tls": True, **FILES})
    with pytest.raises(BadConfig, match="this server does not: set tls = true"):
        plain.joined_url("terns://a:1")
    with pytest.raises(BadConfig, match="in the clear: write terns://"):
        secured.joined_url("tern://a:1")
    assert secured.joined_url("terns://a:1") == "terns://a:1"
