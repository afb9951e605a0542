"""Charts in place of the operators' own: real definitions, a Deployment, a webhook; no program behind them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import yaml
from chart_repository import StandIn

from gpu_tenancy.embedded.definitions import fetch
from gpu_tenancy.embedded.definitions.pins import read_pins
from gpu_tenancy.model.catalogue.operators import charts

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
