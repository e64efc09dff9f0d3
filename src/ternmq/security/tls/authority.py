"""A certificate authority of one's own, in a folder: makes the CA, then certificates it signs.

The only module that needs `cryptography` (the extra `security`); servers and clients that have
their files do without. Keys are ECDSA P-256: a handshake with one costs a server a tenth of RSA's.
A file that exists is never written over, keys are for their owner only (0600), and the key of the
CA never leaves its folder: it is not needed to run anything.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ternmq.core.errors import AlreadyExists, BadConfig, BadRequest
from ternmq.security.private_files import replace_whole, write_new
from ternmq.security.tls.node_name import NodeName

CA_FILE = "ca.pem"
CA_KEY_FILE = "ca-key.pem"
CA_DAYS = 3_650
DAYS = 365
PRIVATE, PUBLIC, FOLDER = 0o600, 0o644, 0o700
SKEW = datetime.timedelta(minutes=5)
"""Certificates begin a little earlier: clocks differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateOrder:
    """What a new certificate shall say."""

    name: str
    """Common name, and of its files: NAME.pem, NAME-key.pem."""
    hosts: Sequence[str] = ()
    """By which it is reached: names and addresses. None: it is for a client only."""
    nodes: Sequence[NodeName] = ()
    """Which servers of the cluster it is."""
    days: int = DAYS


@dataclass(frozen=True, slots=True)
class CertificatePair:
    """Files that were made."""

    certificate: Path
    key: Path


class Authority:
    """The CA of one folder."""

    def __init__(
        self, folder: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
    ) -> None:
        self._folder = folder
        self._certificate = certificate
        self._key = key

    @property
    def file(self) -> Path:
        """What everybody needs to check the others."""
        return self._folder / CA_FILE

    @property
    def cluster(self) -> str:
        """Of which cluster it is."""
        found = self._certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        return str(found[0].value) if found else ""

    @classmethod
    def make(cls, folder: Path, cluster: str, *, days: int = CA_DAYS) -> "Authority":
        """A new one; raises `AlreadyExists` where there is one."""
        _check_free(folder / CA_FILE, folder / CA_KEY_FILE)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=FOLDER)
        except OSError as error:
            raise BadConfig(f"cannot make {folder}: {error.strerror}") from error
        key = ec.generate_private_key(ec.SECP256R1())
        name = _named(f"TernMQ CA of {cluster}", cluster)
        made = (
            _begun(name, key, days)
            .issuer_name(name)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, hashes.SHA256())
        )
        _write(folder / CA_KEY_FILE, _key_bytes(key), PRIVATE)
        _write(folder / CA_FILE, made.public_bytes(serialization.Encoding.PEM), PUBLIC)
        return cls(folder, made, key)

    @classmethod
    def open(cls, folder: Path) -> "Authority":
        """The one that is there."""
        try:
            certificate = x509.load_pem_x509_certificate((folder / CA_FILE).read_bytes())
            key = serialization.load_pem_private_key(
                (folder / CA_KEY_FILE).read_bytes(), password=None
            )
        except OSError as error:
            raise BadConfig(
                f"there is no CA in {folder} ({error.strerror}): {error.filename}; "
                "tern secure init makes one"
            ) from error
        except (ValueError, TypeError) as error:
            raise BadConfig(f"the CA in {folder} cannot be read: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise BadConfig(f"the key in {folder / CA_KEY_FILE} is not one of tern secure init")
        return cls(folder, certificate, key)

    def issue(
        self, order: CertificateOrder, *, into: Path | None = None, replace: bool = False
    ) -> CertificatePair:
        """Make a certificate and its key as files. Those that are there are left alone
        (`AlreadyExists`), or with `replace` give way to whole new ones: the key first, and a server
        that looks in between goes on with what it has."""
        folder = into or self._folder
        pair = CertificatePair(folder / f"{order.name}.pem", folder / f"{order.name}-key.pem")
        if not replace:
            _check_free(pair.certificate, pair.key)
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        usages += [ExtendedKeyUsageOID.SERVER_AUTH] if order.hosts else []
        unsigned = (
            _begun(_named(order.name), key, order.days)
            .issuer_name(self._certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        names = _alternative_names(order)
        if names:
            unsigned = unsigned.add_extension(x509.SubjectAlternativeName(names), critical=False)
        made = unsigned.sign(self._key, hashes.SHA256())
        put = _replace if replace else _write
        put(pair.key, _key_bytes(key), PRIVATE)
        put(pair.certificate, made.public_bytes(serialization.Encoding.PEM), PUBLIC)
        return pair


def _begun(name: x509.Name, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    until = now + datetime.timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, until) - SKEW)
        .not_valid_after(until)
    )


def _named(name: str, cluster: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, cluster[:64])] if cluster else []
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_names(order: CertificateOrder) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(order.hosts):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            try:
                names.append(x509.DNSName(host))
            except ValueError as error:
                raise BadRequest(f"{host!r} is neither a host name nor an address") from error
    names += [x509.UniformResourceIdentifier(node.uri) for node in order.nodes]
    return names


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _check_free(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise AlreadyExists(
                f"{path} is there already and is not replaced; take another folder or name, or "
                "move it away first"
            )


def _replace(path: Path, content: bytes, mode: int) -> None:
    try:
        replace_whole(path, content, mode)
    except OSError as error:
        raise BadConfig(f"cannot write {path}: {error.strerror}") from error


def _write(path: Path, content: bytes, mode: int) -> None:
    try:
        write_new(path, content, mode)
    except FileExistsError as error:
        raise AlreadyExists(f"{path} is there already and is not replaced") from error
    except OSError as error:
        raise BadConfig(f"cannot write {path}: {error.strerror}") from error
