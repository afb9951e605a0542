"""Rules for pods' access to the host: privileges, namespaces, paths, and devices that Kubernetes did not allocate."""

import re
from base64 import b64decode
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from pydantic import Field

from rule_engine import Part, Resource, Subject, Unknown, View, kubernetes, rule
from workload_rules import pods
from workload_rules.objects import FACTS, matches_any, objects
from workload_rules.shapes import strings


class _VisibleDevices(pods.Tenants):
    variables: list[str] = Field(FACTS["device_variables"])
    """Environment variables that the container runtime treats as GPU requests."""
    annotations: list[str] = Field(["cdi.k8s.io", "*.cdi.k8s.io"])
    """Domains of annotations by which the container runtime adds devices to a pod, as patterns."""


_NONE: Final = frozenset({"", "none", "void"})  # values that select no GPU
_SOURCES: Final = frozenset({"core:ConfigMap", "core:Secret"})
_MOUNTED: Final = "nvidia-container-devices"
"""Folder under /var/run whose mounts stand for GPUs, however the path is written:
https://github.com/NVIDIA/k8s-device-plugin#configuration-option-details."""


def _of_container(container: pods.Container, settings: _VisibleDevices) -> Iterator[str]:
    for mount in container.view.items("volumeMounts"):
        if _MOUNTED in mount.text("mountPath"):
            yield f"mounts {mount.text('mountPath')}, which bypasses GPU allocation; remove the mount"
    for source in container.view.items("envFrom"):
        prefix = source.text("prefix")
        for name in settings.variables:
            if prefix and name.startswith(prefix):
                yield f"envFrom with prefix {prefix} can set {name}; use another prefix"
    for variable in container.view.items("env"):
        name = variable.text("name")
        if name not in settings.variables:
            continue
        if variable.has("valueFrom"):
            yield f"sets {name} from a reference; remove it (the device plugin sets it)"
        elif variable.text("value") not in _NONE:
            yield f"sets {name} itself, which bypasses GPU allocation; remove it, or set it to none"


def _of_source(source: Part, settings: _VisibleDevices) -> Iterator[str]:
    """Findings about a ConfigMap or a Secret that `envFrom` turns into variables."""
    for field in ("data", "stringData"):
        entries = source.view.entries(field)
        for name in settings.variables:
            text = entries[name].text() if name in entries else ""
            if source.resource.object_kind == "core:Secret" and field == "data":
                with suppress(ValueError):
                    text = b64decode(text).decode(errors="replace")
            if text not in _NONE:
                yield f"has the key {name}, which bypasses GPU allocation in containers with envFrom; remove it"


def _find_variables(resource: Resource) -> Iterator[pods.Pod | pods.Container | Part]:
    if resource.object_kind in _SOURCES:
        yield Part(resource, resource.props)
    else:
        yield from resource.parts(pods.POD_PARTS)
        yield from resource.parts(pods.CONTAINERS)


_VARIABLES: Final = Subject(
    "pods, containers, ConfigMaps and Secrets",
    lambda resource: resource.object_kind in _SOURCES or pods.holds_pods(resource),
    _find_variables,
)


@rule("gpu-visible-devices", _VARIABLES)
@pods.for_tenants
def gpu_visible_devices(part: pods.Pod | pods.Container | Part, settings: _VisibleDevices) -> Iterator[str]:
    """A pod must not select GPUs by an environment variable, a ConfigMap or Secret with one, a mount or annotation."""
    if isinstance(part, pods.Container):
        yield from _of_container(part, settings)
    elif isinstance(part, Part):
        yield from _of_source(part, settings)
    else:
        for key in sorted(part.meta.entries("annotations")):
            if matches_any(key.partition("/")[0], settings.annotations):
                yield f"has annotation {key}, which bypasses GPU allocation; remove it, and request GPUs under limits"


class _Privileges(pods.Tenants):
    capabilities: list[str] = Field(FACTS["capabilities"])
    """Capabilities that a container may add. Default: those of the Pod Security level baseline."""


@rule("no-privileged", pods.CONTAINERS)
@pods.for_tenants
def no_privileged(container: pods.Container, settings: _Privileges) -> Iterator[str]:
    """Containers must not be privileged, or add capabilities that give access to the node."""
    context = container.view.at("securityContext")
    if context.flag("privileged"):
        yield "is privileged; remove securityContext.privileged"
    added = context.texts("capabilities", "add")
    # Runtimes accept `cap_net_admin` too. A message has the name as it is in the program, so that a secret is hidden.
    beyond = sorted({name for name in added if name.upper().removeprefix("CAP_") not in settings.capabilities})
    if beyond:
        yield (
            f"adds capabilities {', '.join(beyond)}; remove those that are not needed, or allow them in the rule's"
            " settings"
        )
    if context.flag("windowsOptions", "hostProcess"):
        yield "is a Windows HostProcess container; remove securityContext.windowsOptions.hostProcess"
    if context.text("procMount", default="Default") != "Default":
        yield f"has an unmasked /proc (procMount {context.text('procMount')}); remove securityContext.procMount"


class _HostNamespaces(pods.Tenants):
    allowed: list[str] = Field([])
    """Host namespaces that pods may use: hostPID, hostIPC, hostNetwork."""


@rule("no-host-namespaces", pods.POD_PARTS)
@pods.for_tenants
def no_host_namespaces(pod: pods.Pod, settings: _HostNamespaces) -> Iterator[str]:
    """Pods must not run on the host, or use its process, IPC or network namespaces."""
    for host_namespace in ("hostPID", "hostIPC", "hostNetwork"):
        if host_namespace not in settings.allowed and pod.spec.flag(host_namespace):
            yield f"sets {host_namespace}; remove it"
    for context in ("securityContext", "podSecurityContext"):  # the second one is the Spark operator's
        if pod.spec.flag(context, "windowsOptions", "hostProcess"):
            yield f"sets {context}.windowsOptions.hostProcess, so that its containers run on the host; remove it"


class _HostPaths(pods.Tenants):
    allowed: list[str] = Field([])
    """Host paths that pods may mount, as patterns in which `*` also matches `/`: `/mnt/disks/*`, or what a cloud's GPU
    fabric needs, such as GKE's `/home/kubernetes/bin/nvidia/*`."""

    def allows(self, path: str) -> bool:
        """Whether pods may mount a path."""
        return ".." not in path.split("/") and matches_any(path, self.allowed)


def _host_paths(part: pods.Pod | Resource, settings: _HostPaths) -> Iterator[str]:
    if isinstance(part, pods.Pod):
        for volume in part.spec.items("volumes"):
            if volume.has("hostPath") and not settings.allows(volume.text("hostPath", "path")):
                yield (
                    f"volume {volume.text('name')} mounts the host path {volume.text('hostPath', 'path')}; use a"
                    " PersistentVolumeClaim, an emptyDir or an ephemeral volume"
                )
        return
    claims = "mounts its claim" if part.props.has("spec", "claimRef") else "claims it"
    for field in ("hostPath", "local"):
        path = part.props.text("spec", field, "path")
        if part.props.has("spec", field) and not settings.allows(path):
            yield f"is the host path {path} for each pod that {claims}; use storage of a CSI driver"


def _is_of_tenant(part: pods.Pod | Resource, settings: pods.Tenants) -> bool:
    """Whether a tenant can mount it; a PersistentVolume is open to all without a reference to a claim."""
    if isinstance(part, pods.Pod):
        return settings.tenant(pods.namespace_of(part))
    namespace = part.props.text("spec", "claimRef", "namespace")
    return not namespace or settings.tenant(namespace)


_VOLUMES: Final = kubernetes("core:PersistentVolume")
_MOUNTS: Final[Subject[pods.Pod | Resource]] = Subject(
    "pods, parts of pods and PersistentVolumes",
    lambda resource: _VOLUMES(resource) or pods.holds_pods(resource),
    lambda resource: (resource,) if _VOLUMES(resource) else resource.parts(pods.POD_PARTS),
)


@rule("no-host-paths", _MOUNTS)
def no_host_paths(part: pods.Pod | Resource, settings: _HostPaths) -> Iterator[str]:
    """Pods must not mount directories or devices of the host, nor claim a PersistentVolume that is one."""
    for message in _host_paths(part, settings):
        if _is_of_tenant(part, settings):
            yield message


class _StorageSettings(pods.Tenants):
    volumes: list[str] = Field([])
    """Storage that tenants may claim, as patterns of NAMESPACE/DRIVER/NAME: `ml-*/s3.csi.aws.com/corpus`."""


def _storage(spec: View) -> Iterator[str]:
    """The storage of a PersistentVolume: driver, bucket and endpoint, or another source with its address."""
    if spec.has("csi"):
        driver, attributes = spec.text("csi", "driver"), spec.entries("csi", "volumeAttributes")
        names = [attributes[key].text() for key in FACTS["storage_names"].get(driver, ()) if key in attributes]
        urls = (option.text().partition("endpoint-url")[2].strip(" =") for option in spec.items("mountOptions"))
        yield "/".join((driver, *(names or [spec.text("csi", "volumeHandle")]), *filter(None, urls)))
    for source in sorted({*spec.entries()} - {*FACTS["volume_fields"]}):
        address = sorted(spec.entries(source).items(), reverse=True)  # server before path
        texts = [view.text().strip("/") for _, view in address if isinstance(view.value, str | Unknown)]
        yield "/".join((source, *texts))


@rule("volumes-reviewed", objects("PersistentVolumes", "core:PersistentVolume"))
def volumes_reviewed(volume: Resource, settings: _StorageSettings) -> Iterator[str]:
    """A PersistentVolume that a program gives to tenants must be of listed storage; host paths have a rule too."""
    namespace = volume.props.text("spec", "claimRef", "namespace")
    for storage in _storage(volume.props.at("spec")):
        if _is_of_tenant(volume, settings) and not matches_any(f"{namespace}/{storage}", settings.volumes):
            whose = f"the claim in {namespace}" if namespace else "claims of every namespace"
            yield f"is {storage} for {whose}; list {namespace or 'NAMESPACE'}/{storage} under `volumes`"


_MANIFEST: Final = re.compile(
    r"""(?:^|[\s{,"'-])(?:containers["']?\s*:\s*(?:[\[\n]|$)|podSpec["']?\s*:|kind["']?\s*:\s*["']?[A-Z])"""
    r"""|(?:nvidia\.com/(?:gpu|mig-)|amd\.com/gpu)[a-z0-9.-]*["']?\s*:"""
)
"""What a string with a pod spec or a manifest has, in YAML or JSON."""
_STRINGS: Final = frozenset({"podSpecPatch", "manifest", "manifests"})
"""Fields with a pod spec or a manifest as a string: Argo Workflows (`podSpecPatch`, `resource.manifest`)."""
_HEAD: Final = 100_000  # number of characters of a string that are searched


def _written(resource: Resource) -> Iterator[Part]:
    for view in strings(resource.props):
        text = view.text()
        if text.strip() and (view.path[-1] in _STRINGS or _MANIFEST.search(text[:_HEAD])):
            yield Part(resource, view)


@rule("pod-specs-readable", Subject("strings of operators' objects", pods.is_searched, _written))
@pods.for_tenants
def pod_specs_readable(string: Part, _: pods.Tenants) -> Iterator[str]:
    """A pod spec must be in fields of an object, not in a string."""
    yield (
        f"{'.'.join(string.view.path)} is a string with a pod spec or a manifest, which no rule evaluates; use the"
        " fields of the object"
    )
