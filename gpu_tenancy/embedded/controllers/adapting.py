"""A chart's objects for processes on loopback: a Deployment becomes a process, a webhook's Service a URL."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import yaml

from gpu_tenancy.base.json import Json, at, map_at, maps_at, text_at, texts_at
from gpu_tenancy.base.texts import base64_of
from gpu_tenancy.embedded.controllers.table import Program
from gpu_tenancy.embedded.parts import LOOPBACK
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.model.plan.operators.gpus import merged
from gpu_tenancy.model.yaml import parse

WEBHOOKS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
API_SERVICE: Final = "APIService"
DEFINITION: Final = "CustomResourceDefinition"
DEFINITIONS: Final = "apiextensions.k8s.io/v1"
_LEFT_OUT: Final = frozenset(
    {
        # No node runs pods, and no network carries traffic.
        *("Deployment", "Job", "Service", "PodDisruptionBudget", "NetworkPolicy"),
        # Nothing collects metrics.
        *("ServiceMonitor", "PodMonitor", "PrometheusRule"),
        # Applied separately: with the certificate's authority, and by their pins.
        API_SERVICE,
        *WEBHOOKS,
        DEFINITION,
    }
)


@dataclass(frozen=True, slots=True)
class Pod:
    """The parts of a Deployment's pod that a process needs."""

    name: str
    namespace: str
    account: str
    arguments: tuple[str, ...]  # with the paths of mounts below `{files}`, `{certificates}` and `{temporary}`
    environment: Mapping[str, str]  # literal variables
    files: Mapping[str, str] = field(repr=False)  # from ConfigMaps, by path below `{files}`
    secrets: tuple[str, ...]  # with certificates


def plain(objects: Iterable[Manifest]) -> Iterator[Manifest]:
    """The objects that are applied without changes."""
    return (
        item
        for item in objects
        if item["kind"] not in _LEFT_OUT and not at(item, "metadata", "annotations", "helm.sh/hook")
    )


def pod_of(objects: Sequence[Manifest], deployment: str) -> Pod:
    """The pod of a chart's Deployment; raises ValueError if the chart has no such Deployment: correct the table."""
    found = {text_at(o, "metadata", "name"): o for o in objects if o["kind"] == "Deployment"}
    if deployment not in found:
        names = ", ".join(found)
        raise ValueError(f"Deployment {deployment} is not in the chart, which has {names}; correct its description")
    maps = {text_at(o, "metadata", "name"): o for o in objects if o["kind"] == "ConfigMap"}
    spec = map_at(found[deployment], "spec", "template", "spec")
    container = maps_at(spec, "containers")[0]
    mounts, files, secrets = dict[str, str](), dict[str, str](), list[str]()
    volumes = {text_at(v, "name"): v for v in maps_at(spec, "volumes")}
    for mount in maps_at(container, "volumeMounts"):
        name, path, key = text_at(mount, "name"), text_at(mount, "mountPath"), text_at(mount, "subPath")
        volume = volumes[name]
        if secret := text_at(volume, "secret", "secretName"):
            mounts[path] = "{certificates}"
            secrets.append(secret)
        elif config := text_at(volume, "configMap", "name"):
            mounts[path] = f"{{files}}/{name}" + (f"/{key}" if key else "")
            files |= {f"{name}/{file}": text for file, text in texts_at(maps[config], "data").items()}
        else:
            mounts[path] = f"{{temporary}}/{name}"
    command, args = at(container, "command"), at(container, "args")
    # After the program: the rest of `command`, then `args`, without the redirection of a shell.
    rest = [*(command[1:] if isinstance(command, list) else []), *(args if isinstance(args, list) else [])]
    return Pod(
        name=deployment,
        namespace=text_at(found[deployment], "metadata", "namespace"),
        account=text_at(spec, "serviceAccountName") or text_at(spec, "serviceAccount") or "default",
        arguments=tuple(_moved(str(argument), mounts) for argument in rest if argument != "2>&1"),
        environment={text_at(v, "name"): text_at(v, "value") for v in maps_at(container, "env") if text_at(v, "value")},
        files=files,
        secrets=tuple(secrets),
    )


def _moved(argument: str, mounts: Mapping[str, str]) -> str:
    escaped = argument.replace("{", "{{").replace("}", "}}")
    for path in sorted(mounts, key=len, reverse=True):
        escaped = escaped.replace(path, mounts[path])
    return escaped


def arguments_of(pod: Pod, program: Program, places: Mapping[str, str | int]) -> list[str]:
    """The flags of a process: the chart's, replaced and extended by the table's, with paths and ports filled in."""
    ours = [argument.format(**places) for argument in program.arguments]
    replaced = {_flag(argument) for argument in ours}
    return [*(a.format(**places) for a in pod.arguments if _flag(a) not in replaced), *ours]


def _flag(argument: str) -> str:
    return argument.lstrip("-").partition("=")[0]


def configured(text: str, settings: Mapping[str, Any], places: Mapping[str, str | int]) -> str:
    """A configuration file with our settings in it."""
    return yaml.safe_dump(merged(parse(text), _filled(dict(settings), places), append=True), sort_keys=False)


def _filled(value: Any, places: Mapping[str, str | int]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item, places) for key, item in cast("dict[str, Any]", value).items()}
    if not isinstance(value, str):
        return value
    alone = places.get(value.removeprefix("{").removesuffix("}")) if value.startswith("{") else None
    return alone if isinstance(alone, int) else value.format(**places)


def by_url(configuration: Manifest, port: int, authority: str) -> Manifest:
    """A chart's webhook configuration that calls a port of loopback; `authority` is a CA certificate in PEM."""
    hooks: list[Json] = [
        {**hook, "clientConfig": _client(hook, port, authority)} for hook in maps_at(configuration, "webhooks")
    ]
    metadata = {key: value for key, value in map_at(configuration, "metadata").items() if key != "namespace"}
    return {**configuration, "metadata": metadata, "webhooks": hooks}


def conversion(definition: Manifest, port: int, authority: str) -> dict[str, Json] | None:
    """The change of an installed definition that lets the operator convert its objects; None without a webhook."""
    webhook = at(definition, "spec", "conversion", "webhook")
    if not isinstance(webhook, dict):
        return None
    webhook = {**webhook, "clientConfig": _client(webhook, port, authority)}
    return {"spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}}}


def _client(webhook: Mapping[str, Json], port: int, authority: str) -> Json:
    path = text_at(webhook, "clientConfig", "service", "path").lstrip("/")
    return {"url": f"https://{LOOPBACK}:{port}/{path}", "caBundle": base64_of(authority)}
