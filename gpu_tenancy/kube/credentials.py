"""The server, the credentials and the CA of a kubeconfig, and why they do not work."""

import re
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, cast

from kubernetes.client.configuration import Configuration
from kubernetes.config.config_exception import ConfigException
from kubernetes.config.kube_config import (
    list_kube_config_contexts,  # pyright: ignore[reportUnknownVariableType] - the package gives its parameters no types
    load_kube_config,  # pyright: ignore[reportUnknownVariableType] - as above
)
from urllib3.exceptions import HTTPError, MaxRetryError
from yaml import YAMLError

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.kube.errors import UNAUTHORIZED, ApiError, UnreachableError

_CONNECTION: Final = re.compile(r"^(HTTPS?Connection(Pool)?\([^)]*\)|<[^>]*>): ")
"""How urllib3 names a connection before it says what is wrong with it; the server is named already."""
_ANOTHER: Final = "specify another kubeconfig or context"
_SHAPE: Final = (AttributeError, KeyError, TypeError)
"""What the package raises for YAML that has other types than a kubeconfig."""
_TLS: Final = {
    "certificate has expired": "renew the server's certificate, and check the clock of this machine",
    "certificate is not yet valid": "check the clock of this machine",
}
_OTHER_TLS: Final = "the kubeconfig may be of another cluster; get it again from the owner of the cluster"


def read_kubeconfig(kubeconfig: Path, context: str | None) -> Configuration:
    """The configuration of a client by a context of a kubeconfig; None for the current one.

    Raises:
        ConsoleError: the file cannot be read, is not a kubeconfig, or does not have the context.
    """
    configuration = Configuration()
    try:
        load_kube_config(str(kubeconfig), context, configuration, persist_config=False)
    except OSError as error:
        what = f"{kubeconfig}: invalid kubeconfig: {error.filename or kubeconfig}: {error.strerror}"
        raise ConsoleError(what, f"make it readable, or {_ANOTHER}") from error
    except (ConfigException, YAMLError, ValueError) as error:
        known = _contexts(kubeconfig) if isinstance(error, ConfigException) else []
        if context and known and context not in known:
            what, fix = f"context {context} not found", f"specify one of: {', '.join(known)}"
        else:
            what, fix = " ".join(str(error).split()), _ANOTHER
        raise ConsoleError(f"{kubeconfig}: invalid kubeconfig: {what}", fix) from error
    except _SHAPE as error:
        raise ConsoleError(f"{kubeconfig}: the file is not a kubeconfig", _ANOTHER) from error
    return configuration


def _contexts(kubeconfig: Path) -> list[str]:
    """The names of all contexts; none if the file does not have a current one."""
    listed = cast("Callable[[str], tuple[list[dict[str, str]], object]]", list_kube_config_contexts)
    try:
        return [context["name"] for context in listed(str(kubeconfig))[0]]
    except ConfigException:
        return []


def rejected(configuration: Configuration, kubeconfig: Path) -> ApiError:
    """The error for credentials that the server does not accept; names a client certificate that has expired."""
    what = f"{kubeconfig}: the API server at {configuration.host} rejected the credentials"
    if not configuration.cert_file:
        return ApiError(UNAUTHORIZED, "Unauthorized", f"{what}; a token is missing, invalid or expired")
    from cryptography import x509  # noqa: PLC0415 - only for this error

    expiry = x509.load_pem_x509_certificate(Path(configuration.cert_file).read_bytes()).not_valid_after_utc
    if expiry > datetime.now(UTC):
        return ApiError(UNAUTHORIZED, "Unauthorized", f"{what}; the server does not trust the client certificate")
    return ApiError(UNAUTHORIZED, "Unauthorized", f"{what}; the client certificate expired on {expiry:%Y-%m-%d}")


def unreachable(server: str, error: Exception) -> UnreachableError:
    """The error for a server that did not answer, or whose certificate is not accepted."""
    if problem := certificate_problem(error):
        return UnreachableError(server, problem.verify_message, _TLS.get(problem.verify_message, _OTHER_TLS))
    reason = error.reason if isinstance(error, MaxRetryError) and error.reason else error
    return UnreachableError(server, _CONNECTION.sub("", str(reason)))


def certificate_problem(error: Exception) -> ssl.SSLCertVerificationError | None:
    """Why the certificate of a server is not accepted; None if another thing is wrong."""
    reason = error.reason if isinstance(error, MaxRetryError) else error
    inner = reason.args[0] if isinstance(reason, HTTPError) and reason.args else None
    return inner if isinstance(inner, ssl.SSLCertVerificationError) else None
