"""Rules for privileges, host namespaces and host paths of pods."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from pydantic import Field

from rule_engine import ADVICE, MUST, Part, Resource, Severity, Subject, View, kubernetes, rule
from workload_rules.objects import matches_any
from workload_rules.pods import CONTAINERS, POD_PARTS, Container, Pod, Tenants, for_tenants, holds_pods, is_searched
from workload_rules.shapes import strings

_STANDARDS: Final = "https://kubernetes.io/docs/concepts/security/pod-security-standards/"


class Privileges(Tenants):
    """Capabilities that containers can add."""

    capabilities: list[str] = Field(
        [
            "AUDIT_WRITE",
            "CHOWN",
            "DAC_OVERRIDE",
            "FOWNER",
            "FSETID",
            "KILL",
            "MKNOD",
            "NET_BIND_SERVICE",
            "SETFCAP",
            "SETGID",
            "SETPCAP",
            "SETUID",
            "SYS_CHROOT",
        ],
        description="Capabilities that a container may add. Default: those of the Pod Security level baseline.",
    )


@rule(
    "no-privileged",
    rationale="A privileged container can access all GPUs of the node, and all workloads of other teams there.",
    fix="Remove the privilege; GPUs do not require it.",
    link=_STANDARDS,
    severity=Severity.CRITICAL,
    level=MUST,
    on=CONTAINERS,
)
@for_tenants
def no_privileged(container: Container, settings: Privileges) -> Iterator[str]:
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


class HostNamespaces(Tenants):
    """Host namespaces that pods can use."""

    allowed: list[str] = Field([], description="Host namespaces that pods may use: hostPID, hostIPC, hostNetwork.")


@rule(
    "no-host-namespaces",
    rationale="Such a pod can observe pods of other teams on the node, and NetworkPolicies do not apply to it.",
    fix=(
        "Remove `hostPID`, `hostIPC` and `hostNetwork`; if a GPU fabric has its own network, allow hostNetwork in"
        " the settings."
    ),
    link=_STANDARDS,
    severity=Severity.HIGH,
    level=MUST,
    on=POD_PARTS,
)
@for_tenants
def no_host_namespaces(pod: Pod, settings: HostNamespaces) -> Iterator[str]:
    """Pods must not run on the host, or use its process, IPC or network namespaces."""
    for host_namespace in ("hostPID", "hostIPC", "hostNetwork"):
        if host_namespace not in settings.allowed and pod.spec.flag(host_namespace):
            yield f"sets {host_namespace}; remove it"
    for context in ("securityContext", "podSecurityContext"):  # the second one is the Spark operator's
        if pod.spec.flag(context, "windowsOptions", "hostProcess"):
            yield f"sets {context}.windowsOptions.hostProcess, so that its containers run on the host; remove it"


class HostPaths(Tenants):
    """Host paths that pods can mount."""

    allowed: list[str] = Field(
        [],
        description=(
            "Host paths that pods may mount, as patterns in which `*` also matches `/`: `/mnt/disks/*`, or what a"
            " cloud's GPU fabric needs, such as GKE's `/home/kubernetes/bin/nvidia/*`."
        ),
    )

    def allows(self, path: str) -> bool:
        """Whether pods may mount a path."""
        return ".." not in path.split("/") and matches_any(path, self.allowed)


def _host_paths(part: Pod | Resource, settings: HostPaths) -> Iterator[str]:
    if isinstance(part, Pod):
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


def _is_of_tenant(part: Pod | Resource, settings: HostPaths) -> bool:
    """Whether a tenant can mount it; a PersistentVolume is open to all without a reference to a claim."""
    if isinstance(part, Pod):
        return settings.tenant(part.namespace)
    namespace = part.props.text("spec", "claimRef", "namespace")
    return not namespace or settings.tenant(namespace)


_VOLUMES: Final = kubernetes("core:PersistentVolume")


def _find_mounts(resource: Resource) -> Iterable[Pod | Resource]:
    return (resource,) if _VOLUMES(resource) else resource.parts(POD_PARTS)


_MOUNTS: Final = Subject(
    "pods, parts of pods and PersistentVolumes",
    lambda resource: _VOLUMES(resource) or holds_pods(resource),
    _find_mounts,
)


@rule(
    "no-host-paths",
    rationale=(
        "Through host paths, a pod can read other teams' data and take over the node; through /dev/nvidia*, it uses"
        " GPUs that are not counted."
    ),
    fix="Use a PersistentVolumeClaim, an emptyDir or a generic ephemeral volume instead.",
    link="https://kubernetes.io/docs/concepts/storage/volumes/#hostpath",
    severity=Severity.CRITICAL,
    level=MUST,
    on=_MOUNTS,
)
def no_host_paths(part: Pod | Resource, settings: HostPaths) -> Iterator[str]:
    """Pods must not mount directories or devices of the host, nor claim a PersistentVolume that is one."""
    for message in _host_paths(part, settings):
        if _is_of_tenant(part, settings):
            yield message


_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS: Final = ("postStart", "preStop")


@rule(
    "no-host-ports",
    rationale=(
        "A port of the host bypasses NetworkPolicies and blocks other pods from the node; the kubelet sends probes from"
        " the node's network."
    ),
    fix="Remove `hostPort` and create a Service; remove `host` from probes and lifecycle hooks.",
    link=_STANDARDS,
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=CONTAINERS,
)
@for_tenants
def no_host_ports(container: Container, _: Tenants) -> Iterator[str]:
    """Containers must not use ports of the host, nor probe other hosts."""
    for port in container.view.items("ports"):
        if port.number("hostPort"):
            yield f"uses port {port.text('hostPort')} of the host; remove hostPort, and create a Service"
    actions = [(field, container.view.at(field)) for field in _PROBES]
    actions += [(f"lifecycle.{hook}", container.view.at("lifecycle", hook)) for hook in _HOOKS]
    for field, action in actions:
        for way in ("httpGet", "tcpSocket"):
            if action.text(way, "host"):
                yield f"{field}.{way} calls the host {action.text(way, 'host')} from the node; remove host"


_MANIFEST: Final = re.compile(
    r"""(?:^|[\s{,"'-])(?:containers["']?\s*:\s*(?:[\[\n]|$)|podSpec["']?\s*:|kind["']?\s*:\s*["']?[A-Z])"""
    r"""|(?:nvidia\.com/(?:gpu|mig-)|amd\.com/gpu)[a-z0-9.-]*["']?\s*:"""
)
"""What a string with a pod spec or a manifest has, in YAML or JSON."""
_STRINGS: Final = frozenset({"podSpecPatch", "manifest", "manifests"})
"""Fields with a pod spec or a manifest as a string: Argo Workflows (`podSpecPatch`, `resource.manifest`)."""
_HEAD: Final = 100_000
"""Number of characters of a string that are searched."""


@dataclass(frozen=True, slots=True, eq=False)
class ManifestString(Part):
    """A string with a pod spec or a manifest.

    Attributes:
        view: the string.
    """

    view: View


def _written(resource: Resource) -> Iterator[ManifestString]:
    for view in strings(resource.props):
        text = view.text()
        if text.strip() and (view.path[-1] in _STRINGS or _MANIFEST.search(text[:_HEAD])):
            yield ManifestString(resource, view)


@rule(
    "pod-specs-readable",
    rationale="Rules do not evaluate strings: a pod in one can have GPUs without a queue, or be privileged.",
    fix="Set the fields of the object, or review the string and exempt the object.",
    link="https://argo-workflows.readthedocs.io/en/latest/fields/#template",
    severity=Severity.MEDIUM,
    level=ADVICE,
    on=Subject("strings of operators' objects", is_searched, _written),
)
@for_tenants
def pod_specs_readable(string: ManifestString, _: Tenants) -> Iterator[str]:
    """A pod spec must be in fields of an object, not in a string."""
    yield (
        f"{'.'.join(string.view.path)} is a string with a pod spec or a manifest, which no rule evaluates; use the"
        " fields of the object"
    )
