"""Connections to the API server of a kubeconfig: its CA, its proxy, and why its certificate is not accepted."""

import re
import ssl
import tempfile
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from urllib3 import PoolManager, ProxyManager
from urllib3.exceptions import HTTPError, MaxRetryError, ReadTimeoutError
from urllib3.util import Retry

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.kube.contexts import Entry
from gpu_tenancy.kube.credentials import Certificate, content
from gpu_tenancy.kube.errors import UnreachableError
from gpu_tenancy.kube.request import CONNECTIONS

_CONNECTION: Final = re.compile(r"^(HTTPS?Connection(Pool)?\([^)]*\)|<[^>]*>): ")
"""How urllib3 names a connection before it says what is wrong with it; the server is named already."""
_TLS: Final = {
    "certificate has expired": "renew the server's certificate, and check the clock of this machine",
    "certificate is not yet valid": "check the clock of this machine",
}
_OTHER_TLS: Final = "the kubeconfig may be of another cluster; get it again from the owner of the cluster"


def connections(entry: Entry, certificate: Certificate | None, place: Path) -> PoolManager:
    """Connections to the server of a context; nothing is sent yet.

    Args:
        entry: the context.
        certificate: of the client.
        place: the kubeconfig, for messages.

    Raises:
        ConsoleError: a certificate cannot be read, or the proxy is of a kind that is not supported.
    """
    options: dict[str, Any] = {
        "maxsize": CONNECTIONS,
        "retries": Retry(0),  # `RetryBudget` decides
        "ssl_context": _context(entry, certificate, place) if entry.server.startswith("https") else None,
        "server_hostname": entry.cluster.get("tls-server-name"),
    }
    proxy = entry.cluster.get("proxy-url") or _proxy(entry.server)
    if not proxy:
        return PoolManager(**options)
    if not proxy.startswith("http"):
        raise ConsoleError(f"{place}: proxy {proxy} is not supported", "use a proxy with http:// or https://")
    return ProxyManager(proxy, **options)


def _context(entry: Entry, certificate: Certificate | None, place: Path) -> ssl.SSLContext:
    try:
        authority = content(entry.cluster, "certificate-authority", place).decode() or None
        context = ssl.create_default_context(cadata=authority)
    except (ssl.SSLError, ValueError):
        raise ConsoleError(f"{place}: certificate-authority is not a certificate", "get the kubeconfig again") from None
    # As kubectl, which accepts authorities without the extensions that Python 3.13 asks for.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if entry.cluster.get("insecure-skip-tls-verify"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate:
        _present(context, certificate, place)
    return context


def _present(context: ssl.SSLContext, certificate: Certificate, place: Path) -> None:
    """Adds a client certificate, which `ssl` reads from a file only; it has mode 0600 and is gone at once."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"\n".join(certificate))
        file.flush()
        try:
            context.load_cert_chain(file.name)
        except ssl.SSLError:
            what = f"{place}: client certificate and key do not belong together, or are not PEM"
            raise ConsoleError(what, "get the kubeconfig again") from None


def _proxy(server: str) -> str | None:
    """The proxy that the environment names for a server, by HTTPS_PROXY and NO_PROXY as Go reads them."""
    found, proxies = urlsplit(server), getproxies()
    host = found.hostname or ""
    if proxy_bypass(host) or any(_within(host, entry.strip()) for entry in proxies.get("no", "").split(",")):
        return None
    return proxies.get(found.scheme)


def _within(host: str, network: str) -> bool:
    """Whether a host is an address of a network, such as 10.0.0.0/8."""
    try:
        return ip_address(host) in ip_network(network)
    except ValueError:
        return False


def unreachable(server: str, error: Exception) -> UnreachableError:
    """The error for a server that did not answer, or whose certificate is not accepted."""
    if problem := certificate_problem(error):
        return UnreachableError(server, problem.verify_message, _TLS.get(problem.verify_message, _OTHER_TLS))
    reason = error.reason if isinstance(error, MaxRetryError) and error.reason else error
    if isinstance(reason, ReadTimeoutError):
        return UnreachableError(server, "it accepts connections but does not answer")
    return UnreachableError(server, _CONNECTION.sub("", str(reason)))


def certificate_problem(error: Exception) -> ssl.SSLCertVerificationError | None:
    """Why the certificate of a server is not accepted; None if another thing is wrong."""
    reason = error.reason if isinstance(error, MaxRetryError) else error
    inner = reason.args[0] if isinstance(reason, HTTPError) and reason.args else None
    return inner if isinstance(inner, ssl.SSLCertVerificationError) else None
