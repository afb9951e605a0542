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
    """A chart in place of an operator's own.

    Attributes:
        name: under which a release asks for it.
        version: the one that is asked for.
        files: text by path within the chart, such as `templates/deployment.yaml`; `Chart.yaml` is written here.
    """

    name: str
    version: str
    files: Mapping[str, str]

    @property
    def archive(self) -> str:
        """Name of its file in the repository."""
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
    """What a repository says of its charts: https://helm.sh/docs/topics/chart_repository/"""
    entries = {
        chart.name: [
            {
                "apiVersion": "v2",
                "name": chart.name,
                "version": chart.version,
                "urls": [f"{address}/{chart.archive}"],
            }
        ]
        for chart in charts
    }
    return yaml.safe_dump({"apiVersion": "v1", "entries": entries})


@contextmanager
def repository(charts: Sequence[StandIn]) -> Generator[str]:
    """Serves charts as long as it is open, at the address that it gives."""
    served: dict[str, bytes] = {}

    with serving_content(served.get) as address:
        served |= {f"/{chart.archive}": chart.packed() for chart in charts}
        served["/index.yaml"] = index(charts, address).encode()
        yield address


_OK, _UNAVAILABLE = 200, 503


@dataclass(frozen=True, slots=True)
class Asked:
    """One request to judge an object.

    Attributes:
        dry_run: nothing would have been kept of it.
        allowed: False where the webhook did not judge yet, and so the API server refused.
    """

    kind: str
    name: str
    dry_run: bool
    allowed: bool


@dataclass
class Webhook:
    """What a webhook was asked, in that order.

    Attributes:
        address: its URL.
        refusals: how many requests it does not answer at first.
    """

    address: str
    refusals: int
    asked: list[Asked] = field(default_factory=list[Asked])
    _lock: Lock = field(default_factory=Lock)

    def judge(self, request: Any) -> bool:
        """Whether a request is answered, as a review's `request` says it; whatever is judged is allowed."""
        with self._lock:
            allowed = len(self.asked) >= self.refusals
            name, kind = request.get("name", ""), request["kind"]["kind"]
            self.asked.append(Asked(kind, name, bool(request.get("dryRun")), allowed))
            return allowed


@contextmanager
def webhook(certificate: Path, key: Path, refusals: int) -> Generator[Webhook]:
    """Serves a webhook on the loopback as long as it is open."""

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


_VALUES: Final = "crds: {additionalAnnotations: {}}\n"
"""The one value of ours that a stand-in follows, under the name that KEDA's chart has for it."""

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
    """A chart under an operator's name and at the version of the catalogue.

    Args:
        name: of its row in the catalogue.
        definitions: paths of definitions that the project pins, below `crds/`.
        cache: where a download of them is kept.
        helm_keeps: they are in the folder of a chart that Helm never deletes from, rather than among the templates.
        webhook: a further template.
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
    """A webhook that judges whatever is created of an API group, and without whose answer nothing is.

    Whom to trust it does not say: an operator writes that once it has made its certificate.
    """
    return yaml.safe_dump(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [
                {
                    "name": f"judge.{group}",
                    "rules": [
                        {
                            "apiGroups": [group],
                            "apiVersions": ["*"],
                            "operations": ["CREATE"],
                            "resources": ["*"],
                        }
                    ],
                    "clientConfig": {"url": address},
                    "failurePolicy": "Fail",
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                }
            ],
        }
    )
