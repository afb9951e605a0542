"""Stand-ins of operators: charts, a repository that serves them, and a webhook."""

import gzip
import io
import json
import tarfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final

import yaml
from loopback import Handler, serving, serving_content

from gpu_tenancy.embedded.definitions import fetch
from gpu_tenancy.embedded.definitions.pins import read_pins
from gpu_tenancy.model.catalogue.operators import charts


@dataclass(frozen=True, slots=True)
class StandIn:
    """A chart in place of an operator's own; `Chart.yaml` is written here."""

    name: str
    version: str
    files: Mapping[str, str]  # text by path within the chart, such as `templates/deployment.yaml`

    @property
    def archive(self) -> str:
        return f"{self.name}-{self.version}.tgz"

    def packed(self) -> bytes:
        """Its archive, as `helm package` would write it, with the same bytes each time."""
        about = {"apiVersion": "v2", "name": self.name, "version": self.version, "type": "application"}
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as archive:
            for path, text in {"Chart.yaml": yaml.safe_dump(about), **self.files}.items():
                entry = tarfile.TarInfo(f"{self.name}/{path}")
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))
        return gzip.compress(content.getvalue(), mtime=0)


def index(charts: Sequence[StandIn], address: str) -> str:
    """The index of a repository: https://helm.sh/docs/topics/chart_repository/"""
    entries = {
        chart.name: [
            {"apiVersion": "v2", "name": chart.name, "version": chart.version, "urls": [f"{address}/{chart.archive}"]}
        ]
        for chart in charts
    }
    return yaml.safe_dump({"apiVersion": "v1", "entries": entries})


@contextmanager
def repository(charts: Sequence[StandIn]) -> Generator[str]:
    """Serves charts while the block runs; yields the address."""
    served: dict[str, bytes] = {}

    with serving_content(served.get) as address:
        served |= {f"/{chart.archive}": chart.packed() for chart in charts}
        served["/index.yaml"] = index(charts, address).encode()
        yield address


_OK, _UNAVAILABLE = 200, 503


@dataclass(frozen=True, slots=True)
class Asked:
    kind: str
    name: str
    dry_run: bool
    allowed: bool


@dataclass
class Webhook:
    """The requests to a webhook, in their order; it does not answer the first `refusals`."""

    address: str
    refusals: int
    asked: list[Asked] = field(default_factory=list[Asked])
    _lock: Lock = field(default_factory=Lock)

    def judge(self, request: Any) -> bool:
        """Records a review's `request` and allows it; returns whether it is answered."""
        with self._lock:
            allowed = len(self.asked) >= self.refusals
            name, kind = request.get("name", ""), request["kind"]["kind"]
            self.asked.append(Asked(kind, name, bool(request.get("dryRun")), allowed))
            return allowed


@contextmanager
def webhook(certificate: Path, key: Path, refusals: int) -> Generator[Webhook]:
    class Judge(Handler):
        def do_POST(self) -> None:  # noqa: N802 - the base class gives the name
            review = json.loads(self.body())
            allowed = found.judge(review["request"])
            answer = {**review, "response": {"uid": review["request"]["uid"], "allowed": True}}
            content = json.dumps(answer).encode() if allowed else b"starting"
            self.answer(_OK if allowed else _UNAVAILABLE, content, ("Content-Type", "application/json"))

    with serving(Judge, (certificate, key)) as address:
        found = Webhook(f"{address}/judge", refusals)
        yield found


# The one value of ours that a stand-in has, named as in KEDA's chart.
_VALUES: Final = "crds: {additionalAnnotations: {}}\n"

_OPERATOR: Final = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}, namespace: {{ .Release.Namespace }}}
spec:
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec: {containers: [{name: operator, image: "registry.example.com/stand-in:1.0"}]}
"""
_DEFINITIONS: Final = """
{{- range $path, $_ := .Files.Glob "definitions/*.yaml" }}
{{- $definition := $.Files.Get $path | fromYaml }}
{{- range $key, $value := $.Values.crds.additionalAnnotations }}
{{- $_ := set $definition.metadata.annotations $key $value }}
{{- end }}
---
{{ toYaml $definition }}
{{- end }}
"""


def stand_in(
    name: str, definitions: Sequence[str], cache: Path, *, helm_keeps: bool = False, webhook: str = ""
) -> StandIn:
    """A chart with an operator's name and the catalogue's version; `definitions` are pinned paths below `crds/`.

    `helm_keeps`: they are in the folder of a chart that Helm never deletes from, rather than among the templates.
    """
    folder = "crds" if helm_keeps else "definitions"
    files = {f"{folder}/{Path(path).name}": definition(path, cache) for path in definitions}
    templates = {"templates/operator.yaml": _OPERATOR, "templates/definitions.yaml": _DEFINITIONS}
    if webhook:
        templates["templates/webhook.yaml"] = webhook
    return StandIn(name, charts()[name].version, {"values.yaml": _VALUES, **files, **templates})


def definition(path: str, cache: Path) -> str:
    """A definition that the project pins, without the conversion that only the real operator does."""
    (pin,) = (pin for pin in read_pins() if pin.path == f"crds/{path}")
    found = yaml.safe_load(fetch([pin], cache, lambda _: None)[pin].read_bytes())
    found["spec"].pop("conversion", None)
    return yaml.safe_dump(found)


def webhook_template(name: str, group: str, address: str) -> str:
    """A webhook for all creations of an API group, which fails closed; the operator writes its CA."""
    return yaml.safe_dump(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [
                {
                    "name": f"judge.{group}",
                    "rules": [
                        {"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*"]}
                    ],
                    "clientConfig": {"url": address},
                    "failurePolicy": "Fail",
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                }
            ],
        }
    )
