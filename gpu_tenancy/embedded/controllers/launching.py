"""One rendered chart and the needs of its controllers: objects, accounts, certificates, files and ports."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias, cast

from gpu_tenancy.base.json import Json, map_at, text_at
from gpu_tenancy.base.output import write_private
from gpu_tenancy.base.progress import Report
from gpu_tenancy.base.texts import base64_of
from gpu_tenancy.embedded.certificates import make_webhook_certificates, write_account_config
from gpu_tenancy.embedded.controllers import adapting
from gpu_tenancy.embedded.controllers.table import RENDERER, Wanted, chart_folder, render
from gpu_tenancy.embedded.parts import LOOPBACK, Places, read_ports
from gpu_tenancy.embedded.processes import free_ports
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import UnknownKindError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import holders, is_true, wait_for
from gpu_tenancy.model.plan.operators import ReleasePlan
from gpu_tenancy.model.plan.operators.gpus import merged
from gpu_tenancy.model.yaml import parse_all

_PARALLEL: Final = 8
_PORTS: Final = ("health", "metrics", "webhook", "api")
_CONFIGURATION: Final = "controller_manager_config.yaml"
_RBAC: Final = "rbac.authorization.k8s.io"

Command: TypeAlias = tuple[list[str], dict[str, str]]


@dataclass(frozen=True, slots=True)
class Launch:
    """A rendered chart; its objects are in the cluster, except webhooks and APIServices."""

    item: Wanted
    objects: Sequence[Manifest]
    places: Places
    certificates: dict[str, Mapping[str, str]]
    ports: dict[str, Mapping[str, int]]

    def at_ports(self, before: Mapping[str, Mapping[str, int]]) -> "Launch":
        """The same, at the earlier ports of the programs, so that webhooks and conversions stay unchanged."""
        same = {name: before[name] for name, ports in self.ports.items() if before.get(name, {}).keys() == ports.keys()}
        return replace(self, ports={**self.ports, **same})

    def admit(self, cluster: Cluster) -> None:
        """Registers the webhooks; requests that match them fail until the programs run."""
        if served := self._serving("webhook"):
            apply_all(
                cluster, [adapting.by_url(item, *served) for item in self.objects if item["kind"] in adapting.WEBHOOKS]
            )
            for definition in self.objects:
                if definition["kind"] == adapting.DEFINITION and (change := adapting.conversion(definition, *served)):
                    name = text_at(definition, "metadata", "name")
                    cluster.patch(Reference(adapting.DEFINITIONS, adapting.DEFINITION, name), change)

    def register(self, cluster: Cluster) -> None:
        """Has the API server serve the kinds of the ready programs; raises WaitTimeoutError if it does not."""
        if served := self._serving("api"):
            for item in self.objects:
                if item["kind"] == adapting.API_SERVICE:
                    serve(cluster, item, *served)

    def _serving(self, port: str) -> tuple[int, str] | None:
        for name, ports in self.ports.items():
            if port in ports:
                return ports[port], self.certificates[name]["ca.crt"]
        return None

    def command(self, cluster: Cluster, name: str) -> Command:
        """Writes the files of a program, and returns its command."""
        program, pod, folder = self.item.row.programs[name], adapting.pod_of(self.objects, name), self.folder(name)
        kubeconfig = write_account_config(self.places, name, cluster.token(pod.namespace, pod.account))
        fill: dict[str, str | int] = {
            **self.ports[name],
            "files": str(folder / "files"),
            "certificates": str(folder / "certificates"),
            "temporary": str(folder / "temporary"),
            "kubeconfig": str(kubeconfig),
            "authority": self.places.certificate("authority"),
            "nodes": read_ports(self.places).kwok,
        }
        shutil.rmtree(folder / "files", ignore_errors=True)
        for file, text in pod.files.items():
            ours = adapting.configured(text, program.settings, fill) if file.endswith(_CONFIGURATION) else text
            write_private(folder / "files" / file, ours)
        secret: Manifest = {"apiVersion": "v1", "kind": "Secret", "stringData": dict(self.certificates[name])}
        places = [{"name": mounted, "namespace": pod.namespace} for mounted in pod.secrets]
        apply_all(cluster, [{**secret, "metadata": dict(place)} for place in places])
        # Where controller-runtime looks for certificates by default: below TMPDIR.
        link = folder / "temporary" / "k8s-webhook-server" / "serving-certs"
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(folder / "certificates")
        return [str(self.item.programs[program.program]), *adapting.arguments_of(pod, program, fill)], {
            **pod.environment,
            **program.environment,
            "KUBECONFIG": str(kubeconfig),
            "TMPDIR": str(folder / "temporary"),
        }

    def folder(self, name: str) -> Path:
        """The folder of a program."""
        return self.places.home / "controllers" / name

    def then(self) -> Iterator[Manifest]:
        """Objects to apply when the programs work."""
        if listed := self.item.row.then:
            for item in self.objects:
                if item["kind"] == "ConfigMap" and text_at(item, "metadata", "name") == listed.config_map:
                    yield from parse_all(text_at(item, "data", listed.key))


def prepare(cluster: Cluster, item: Wanted, places: Places, cache: Path, report: Report) -> Launch:
    """Renders a chart and applies its objects: accounts, rights, configuration; raises ConsoleError if that fails."""
    release = item.release
    part = release.values.get(item.row.part, {}) if item.row.part else release.values
    filled = replace(release, values=merged(part, item.row.values, append=True))
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": release.namespace}}, force=True)
    rendered = render(item.programs[RENDERER], chart_folder(item.name, item.row, cache, report), filled)
    objects = [placed(cluster, manifest, release.namespace) for manifest in rendered]
    services = [f"{text_at(o, 'metadata', 'name')}.{release.namespace}.svc" for o in objects if o["kind"] == "Service"]
    programs = item.row.programs
    launch = Launch(item, objects, places, {}, {})
    for name, program in programs.items():
        texts = json.dumps([program.arguments, program.settings])
        named = [port for port in _PORTS if f"{{{port}}}" in texts]
        launch.ports[name] = dict(zip(named, free_ports(len(named)), strict=True))
        folder = launch.folder(name) / "certificates"
        launch.certificates[name] = make_webhook_certificates(folder, services, program.authority)
    apply_all(cluster, [*adapting.plain(objects), *_reads(release)])
    return launch


def apply_all(cluster: Cluster, objects: Sequence[Manifest]) -> None:
    """Applies objects in parallel."""
    with ThreadPoolExecutor(_PARALLEL) as pool:
        list(pool.map(partial(cluster.apply, force=True, metadata_only=True), objects))


def placed(cluster: Cluster, manifest: Manifest, namespace: str) -> Manifest:
    """An object in the release's namespace if its kind is namespaced and the chart names none, as by Helm."""
    metadata = cast("dict[str, Json]", manifest["metadata"])
    with suppress(UnknownKindError):
        if not cluster.resource(str(manifest["apiVersion"]), str(manifest["kind"])).namespaced:
            return {**manifest, "metadata": {key: value for key, value in metadata.items() if key != "namespace"}}
    return {**manifest, "metadata": {"namespace": namespace, **metadata}}


def _reads(release: ReleasePlan) -> Iterator[Manifest]:
    """Read access beyond the chart's, as `components.operators.Operator` grants it."""
    if not release.reads:
        return
    metadata: Json = {"name": f"gpu-tenancy-{release.name}-reads"}
    rules: list[Json] = [
        {"apiGroups": [group], "resources": [resource], "verbs": ["get", "list", "watch"]}
        for group, resource in release.reads
    ]
    yield {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules}
    yield {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": metadata,
        # pyrefly: ignore[bad-index, unsupported-operation]
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": metadata["name"]},
        "subjects": [{"apiGroup": _RBAC, "kind": "Group", "name": f"system:serviceaccounts:{release.namespace}"}],
    }


SERVED_WITHIN: Final = 120.0  # seconds; 1 is usual. After a failure, the API server tries again each minute


def serve(cluster: Cluster, service: Manifest, port: int, authority: str) -> None:
    """Has the API server pass requests for an API on to a port of loopback, and waits until it serves the kinds.

    An APIService cannot have a URL. For a Service of type ExternalName, the API server connects to the external name
    and the port of the APIService, and checks the certificate for `<service>.<namespace>.svc`. The program must be
    ready, because discovery fails until it answers. `authority` is a CA certificate in PEM. If the API server does not
    find the kinds, the WaitTimeoutError has its reason.
    """
    spec = {key: value for key, value in map_at(service, "spec").items() if key != "insecureSkipTLSVerify"}
    place: dict[str, Json] = {key: text_at(spec, "service", key) for key in ("name", "namespace")}
    external: Json = {"type": "ExternalName", "externalName": LOOPBACK}
    target: Json = {**place, "port": port}
    cluster.apply({"apiVersion": "v1", "kind": "Service", "metadata": place, "spec": external}, force=True)
    cluster.apply({**service, "spec": {**spec, "service": target, "caBundle": base64_of(authority)}}, force=True)
    reference = Reference.of(service)
    group, version = text_at(service, "spec", "group"), text_at(service, "spec", "version")

    def served() -> bool:
        if not is_true(cluster.get(*reference) or {}, "Available"):
            return False
        cluster.forget_kinds()
        return version in cluster.versions(group)

    wait_for(
        served,
        what=f"{group}/{version} to be served",
        timeout=SERVED_WITHIN,
        fix=lambda: holders(cluster.get(*reference)),
    )
