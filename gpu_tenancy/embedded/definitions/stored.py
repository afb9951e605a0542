"""Definitions in etcd before an API server starts on it, in the form in which it stores them itself.

An API server that is told of one definition after another works out the schemas of all kinds again for each of them:
most of what it does until a platform is ready. One that finds them when it starts does this once.
"""

import http.client
import json
import ssl
import uuid
from base64 import b64encode
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, map_at, maps_at, text_at
from gpu_tenancy.base.patience import patient
from gpu_tenancy.kube.client import Manifest

_PREFIX: Final = "/registry/apiextensions.k8s.io/customresourcedefinitions/"
_PUT: Final = "/v3/kv/put"
"""etcd's API over HTTP: https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/."""

_TIMEOUT: Final = 10.0
_CONDITIONS: Final = (
    ("NamesAccepted", "NoConflicts", "no conflicts found"),
    ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
)
"""Of a served definition, as its controllers write them."""


def stored(definition: Manifest) -> Manifest:
    """A definition as an API server stores it when it serves it; its controllers would change nothing about it."""
    spec, now = map_at(definition, "spec"), f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    kind = text_at(spec, "names", "kind")
    names: Json = {"singular": kind.lower(), "listKind": f"{kind}List", **map_at(spec, "names")}
    conditions: Json = [
        {"type": each, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
        for each, reason, message in _CONDITIONS
    ]
    versions: Json = [text_at(one, "name") for one in maps_at(spec, "versions") if one.get("storage")]
    metadata: Json = {
        **map_at(definition, "metadata"),
        "uid": str(uuid.uuid4()),
        "generation": 1,
        "creationTimestamp": now,
    }
    return {
        **definition,
        "metadata": metadata,
        "spec": {**spec, "names": names, "conversion": {"strategy": "None"}},
        "status": {"conditions": conditions, "acceptedNames": names, "storedVersions": versions},
    }


@dataclass(frozen=True, slots=True)
class Etcd:
    """An etcd on which no API server runs yet.

    Attributes:
        trust: with the certificate of a client.
    """

    host: str
    port: int
    trust: ssl.SSLContext

    def answers(self) -> bool:
        """Whether it has started."""
        try:
            return self._status("GET", "/health") == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False

    def store(self, definitions: Iterable[Manifest]) -> None:
        """Writes definitions, as `annotated` returns them.

        Raises:
            ConsoleError: etcd rejects one.
        """
        for definition in definitions:
            name = text_at(definition, "metadata", "name")
            body = {"key": _base64(f"{_PREFIX}{name}"), "value": _base64(json.dumps(stored(definition)))}
            if (status := self._status("POST", _PUT, json.dumps(body))) != http.HTTPStatus.OK:
                raise ConsoleError(f"etcd: {name} cannot be stored: it answers with {status}", "run the command again")

    def _status(self, method: str, path: str, body: str | None = None) -> int:
        within = patient(_TIMEOUT)
        with closing(http.client.HTTPSConnection(self.host, self.port, context=self.trust, timeout=within)) as one:
            one.request(method, path, body)
            return one.getresponse().status


def _base64(text: str) -> str:
    return b64encode(text.encode()).decode()
