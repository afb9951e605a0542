"""The certificates of the parts of one embedded platform, and their kubeconfigs."""

import ipaddress
import shutil
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeAlias, cast

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.output import write_private
from gpu_tenancy.base.texts import base64_of
from gpu_tenancy.embedded.parts import LOOPBACK, Places, Ports, read_ports
from gpu_tenancy.model.kubeconfig import kubeconfig
from gpu_tenancy.model.names import EMBEDDED_CONTEXT

_Key: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
_Subject: TypeAlias = dict[x509.ObjectIdentifier, str]

_VALIDITY: Final = timedelta(days=3650)
# Certificates that expire within this time are issued again when the platform starts.
_RENEWED: Final = timedelta(days=1)
_LONGEST: Final = 64  # characters of a common name: ub-common-name in RFC 5280
_SKEW: Final = timedelta(hours=1)  # certificates stay valid if the clock is set back a little
_UNUSED: Final = (
    *("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("crl_sign", "encipher_only", "decipher_only"),
)

# Names as in Kubernetes' bootstrap RBAC; system:masters has all permissions:
# https://kubernetes.io/docs/setup/best-practices/certificates/
_CLUSTER: Final = {
    "serving": {NameOID.COMMON_NAME: "kube-apiserver"},
    "admin": {NameOID.COMMON_NAME: "gpu-tenancy-admin", NameOID.ORGANIZATION_NAME: "system:masters"},
    "controller-manager": {NameOID.COMMON_NAME: "system:kube-controller-manager"},
    "scheduler": {NameOID.COMMON_NAME: "system:kube-scheduler"},
    "kwok": {NameOID.COMMON_NAME: "gpu-tenancy-kwok"},
}
_ETCD: Final = {"etcd": {NameOID.COMMON_NAME: "etcd"}, "etcd-client": {NameOID.COMMON_NAME: "kube-apiserver"}}
# The API server's certificate for aggregated API servers, which then trust the user names that it sends.
_FRONT_PROXY: Final = {"front-proxy": {NameOID.COMMON_NAME: "front-proxy-client"}}

_ISSUER: Final = "authority"  # the CA of the API server's clients

_AUTHORITIES: Final = {
    _ISSUER: ("gpu-tenancy-embedded", _CLUSTER),
    "etcd-authority": ("gpu-tenancy-embedded-etcd", _ETCD),
    "front-proxy-authority": ("gpu-tenancy-embedded-front-proxy", _FRONT_PROXY),
}


def make_certificates(places: Places) -> None:
    """Writes three CAs, a certificate for each part, and the token key, if one of them does not exist or expires.

    etcd has its own CA, so that clients of the API server have no access to it. The API server has another one as a
    client of aggregated API servers, because its certificate speaks for every user. Only the key of the API server's
    own CA is kept, for certificates of people: it gives no more than the administrator's key beside it.
    """
    files = [*_AUTHORITIES, *(part for _, subjects in _AUTHORITIES.values() for part in subjects)]
    if all(_valid(Path(places.certificate(file))) for file in files):
        return
    folder = places.certificates.with_suffix(".new")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    for file, (name, subjects) in _AUTHORITIES.items():
        authority = _authority(name)
        write_private(folder / f"{file}.crt", authority.pem)
        if file == _ISSUER:
            write_private(folder / f"{file}.key", _key_pem(authority.key))
        for part, subject in subjects.items():
            key = _key()
            write_private(folder / f"{part}.key", _key_pem(key))
            write_private(folder / f"{part}.crt", authority.issue(subject, key))
    write_private(folder / "service-accounts.key", _key_pem(_key()))
    shutil.rmtree(places.certificates, ignore_errors=True)
    folder.rename(places.certificates)


def issue_client(places: Places, user: str, group: str | None, seconds: float) -> dict[str, str]:
    """A user's kubeconfig entry with a client certificate; raises ConsoleError if the name is too long for X.509."""
    signer = cast("_Key", load_pem_private_key(Path(places.key(_ISSUER)).read_bytes(), password=None))  # written above
    authority = _Authority(x509.load_pem_x509_certificate(Path(places.certificate(_ISSUER)).read_bytes()), signer)
    subject = {NameOID.COMMON_NAME: user, **({NameOID.ORGANIZATION_NAME: group} if group else {})}
    if too_long := [name for name in subject.values() if len(name) > _LONGEST]:
        what = f"--as: {too_long[0]} is longer than the {_LONGEST} characters of a name in a certificate"
        raise ConsoleError(what, "use the administrator's kubeconfig with kubectl --as and --as-group")
    key = _key()
    certificate = authority.issue(subject, key, validity=timedelta(seconds=seconds))
    texts = {"client-certificate-data": certificate, "client-key-data": _key_pem(key)}
    return {name: base64_of(text) for name, text in texts.items()}


def client_of_etcd(places: Places) -> ssl.SSLContext:
    """The TLS context of etcd's clients: the API server, and this program before the API server starts."""
    context = ssl.create_default_context(cafile=places.certificate("etcd-authority"))
    context.load_cert_chain(places.certificate("etcd-client"), places.key("etcd-client"))
    return context


def _valid(file: Path) -> bool:
    if not file.is_file():
        return False
    return x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc > datetime.now(UTC) + _RENEWED


def make_webhook_certificates(folder: Path, services: Sequence[str], authority: str) -> Mapping[str, str]:
    """A CA and a server certificate for webhooks on loopback, as files; made if they do not exist or expire.

    Unlike other keys, the CA's is kept: some operators check it before they use an existing certificate. Returns the
    contents of `ca.crt`, `ca.key`, `tls.crt` and `tls.key`. `services` are further DNS names of the server; `authority`
    is the DNS name of the CA, or empty.
    """
    if not _valid(folder / "tls.crt"):
        # The certificate rotator of Open Policy Agent, which operators use, reads RSA keys of CAs only.
        rsa_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        issuer = _authority(authority or "gpu-tenancy-webhooks", *filter(None, [authority]), key=rsa_key)
        key = _key()
        issued = issuer.issue({NameOID.COMMON_NAME: "webhooks"}, key, *services)
        contents = {"ca.crt": issuer.pem, "ca.key": _key_pem(issuer.key), "tls.key": _key_pem(key), "tls.crt": issued}
        for file, text in contents.items():  # tls.crt last, because it shows that all are there
            write_private(folder / file, text)
    return {file: (folder / file).read_text(encoding="utf-8") for file in ("ca.crt", "ca.key", "tls.crt", "tls.key")}


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: x509.Certificate
    key: _Key

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def issue(
        self, subject: _Subject, key: ec.EllipticCurvePrivateKey, *more: str, validity: timedelta | None = None
    ) -> str:
        """A certificate for server and client, because an etcd peer is both; for loopback and `more` names."""
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(LOOPBACK)), *map(x509.DNSName, more)]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        return (
            _builder(_name(subject), self.certificate.subject, key, validity or _VALIDITY, signs=False)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(identifier, critical=False)  # required by Python's strict verification
            .sign(self.key, hashes.SHA256())
            .public_bytes(Encoding.PEM)
            .decode()
        )


def _authority(name: str, *names: str, key: _Key | None = None) -> _Authority:
    key, subject = key or _key(), _name({NameOID.COMMON_NAME: name})
    builder = (
        _builder(subject, subject, key, _VALIDITY, signs=True)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(list(map(x509.DNSName, names))), critical=False)
    return _Authority(builder.sign(key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: _Key, validity: timedelta, *, signs: bool
) -> x509.CertificateBuilder:
    now, unused = datetime.now(UTC), dict.fromkeys(_UNUSED, False)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + validity)
        .add_extension(x509.KeyUsage(digital_signature=True, key_cert_sign=signs, **unused), critical=True)
    )


def _name(parts: _Subject) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in parts.items()])


def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _key_pem(key: _Key) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()


_PARTS: Final = ("controller-manager", "scheduler", "kwok")


def address(ports: Ports) -> str:
    """The address of the API server."""
    return f"https://{LOOPBACK}:{ports.api}"


def write_client_configs(places: Places, ports: Ports) -> None:
    """Writes the administrator's kubeconfig, and one for each part that is a client."""
    for client, file in {"admin": places.kubeconfig, **{part: places.client_config(part) for part in _PARTS}}.items():
        user = {
            "client-certificate-data": _data(places.certificate(client)),
            "client-key-data": _data(places.key(client)),
        }
        _write_kubeconfig(file, client, user, places, ports)


def write_account_config(places: Places, name: str, token: str) -> Path:
    """Writes the kubeconfig of a controller, with the token of its ServiceAccount; returns its path."""
    file = places.client_config(name)
    _write_kubeconfig(file, name, {"token": token}, places, read_ports(places))
    return file


def _write_kubeconfig(file: Path, client: str, user: Mapping[str, str], places: Places, ports: Ports) -> None:
    cluster = {"server": address(ports), "certificate-authority-data": _data(places.certificate("authority"))}
    write_private(file, yaml.safe_dump(kubeconfig(EMBEDDED_CONTEXT, cluster, client, user), sort_keys=False))


def _data(file: str) -> str:
    return base64_of(Path(file).read_text(encoding="ascii"))
