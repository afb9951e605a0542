"""The certificates of the parts of one embedded platform."""

import ipaddress
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gpu_tenancy.console.embedded.credentials import write_private
from gpu_tenancy.console.embedded.parts import LOOPBACK, Places

_VALIDITY: Final = timedelta(days=3650)
_SKEW: Final = timedelta(hours=1)
"""The certificates must stay valid if the clock is set back a little."""

# Names as in Kubernetes' bootstrap RBAC; system:masters has all permissions:
# https://kubernetes.io/docs/setup/best-practices/certificates/
_CLUSTER: Final = {
    "serving": {NameOID.COMMON_NAME: "kube-apiserver"},
    "admin": {NameOID.COMMON_NAME: "gpu-tenancy-admin", NameOID.ORGANIZATION_NAME: "system:masters"},
    "controller-manager": {NameOID.COMMON_NAME: "system:kube-controller-manager"},
    "scheduler": {NameOID.COMMON_NAME: "system:kube-scheduler"},
    "kwok": {NameOID.COMMON_NAME: "gpu-tenancy-kwok"},
}
_ETCD: Final = {
    "etcd": {NameOID.COMMON_NAME: "etcd"},
    "etcd-client": {NameOID.COMMON_NAME: "kube-apiserver"},
}


def make_certificates(places: Places) -> None:
    """Writes a CA for the cluster, a CA for etcd, a certificate for each part, and the token key, if they do not exist.

    etcd has its own CA, so that clients of the API server have no access to it. The keys of the CAs are never written,
    because all certificates of a platform are issued together. Only the owner can read the files.

    Raises:
        OSError: the folder is not writable.
    """
    if places.certificates.is_dir():
        return
    folder = places.certificates.with_suffix(".new")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    for file, name, subjects in (
        ("authority", "gpu-tenancy-embedded", _CLUSTER),
        ("etcd-authority", "gpu-tenancy-embedded-etcd", _ETCD),
    ):
        authority = _authority(name)
        write_private(folder / f"{file}.crt", authority.pem)
        for part, subject in subjects.items():
            key = _key()
            write_private(folder / f"{part}.key", _key_pem(key))
            write_private(folder / f"{part}.crt", authority.issue(subject, key))
    write_private(folder / "service-accounts.key", _key_pem(_key()))
    folder.rename(places.certificates)


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def issue(self, subject: dict[x509.ObjectIdentifier, str], key: ec.EllipticCurvePrivateKey) -> str:
        """A server certificate for loopback and client certificate, because an etcd peer is both."""
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(LOOPBACK))]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        return (
            _builder(_name(subject), self.certificate.subject, key)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(identifier, critical=False)  # required by Python's strict verification
            .sign(self.key, hashes.SHA256())
            .public_bytes(Encoding.PEM)
            .decode()
        )


def _authority(name: str) -> _Authority:
    key, subject = _key(), _name({NameOID.COMMON_NAME: name})
    certificate = (
        _builder(subject, subject, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _Authority(certificate, key)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _VALIDITY)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(parts: dict[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in parts.items()])


def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
