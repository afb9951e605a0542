"""Definitions as the embedded platform stores them: without descriptions, in etcd before an API server starts."""

import http.client
import json
import os
import ssl
import uuid
from base64 import b64encode
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, map_at, maps_at, text_at
from gpu_tenancy.base.output import write_text
from gpu_tenancy.base.progress import patient
from gpu_tenancy.embedded.definitions.pins import Pin
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.model.yaml import read_table

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


_FORM: Final = 1
"""Of the copies; another number where other fields are left out."""
_BY_NAME: Final = frozenset({"properties", "patternProperties", "definitions"})
"""Fields of a schema whose keys are names, not fields of schemas."""


def reduced(pin: Pin, file: Path, cache: Path) -> Manifest:
    """A definition without descriptions, status and conversion.

    The API server encodes, compares and validates a definition a dozen times until it is served.

    Conversion needs the operator's webhook, which is not installed yet; objects are stored without conversion.

    Args:
        pin: of the definition.
        file: with its content, which was verified.
        cache: folder for a copy in JSON, since YAML takes seconds to read for all operators.
    """
    copy = cache / "definitions" / f"reduced-{_FORM}" / f"{pin.sha256}.json"
    with suppress(OSError, ValueError):
        return cast("Manifest", json.loads(copy.read_bytes()))
    definition = read_table(file)
    definition.pop("status", None)
    definition["spec"].pop("conversion", None)
    for version in definition["spec"]["versions"]:
        version["schema"] = without_descriptions(version["schema"])
    unfinished = copy.with_suffix(f".{os.getpid()}")  # another process may write the same copy
    write_text(unfinished, json.dumps(definition, separators=(",", ":")))
    unfinished.replace(copy)
    return definition


def without_descriptions(schema: Any) -> Any:
    """A schema, or a list or other part of one, without the descriptions in it."""
    if isinstance(schema, list):
        return [without_descriptions(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, Mapping):
        return schema
    fields = cast("Mapping[str, Any]", schema)
    return {
        field: {name: without_descriptions(one) for name, one in value.items()}
        if field in _BY_NAME
        else without_descriptions(value)
        for field, value in fields.items()
        if field != "description"
    }
