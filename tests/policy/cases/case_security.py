"""Cases for `workload_rules.security`."""

from typing import Final

from policy_builders import GONE, Break, Case, doubt, manifest

from workload_rules import security

SERVER: Final = manifest("""
apiVersion: apps/v1
kind: Deployment
metadata: {name: server, namespace: ml-serving}
spec:
  template:
    spec:
      initContainers:
      - name: fetch
        securityContext: {allowPrivilegeEscalation: false}
      containers:
      - name: server
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}}
      volumes:
      - {name: scratch, emptyDir: {}}
      - {name: models, persistentVolumeClaim: {claimName: models}}
""")
TRAIN_JOB: Final = manifest("""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: finetune, namespace: ml-serving}
spec:
  trainer: {image: "train:1"}
""")
_POD: Final = "Deployment ml-serving/server"
_IN: Final = f"{_POD}, container server"
_SPEC: Final = "server: spec.template.spec"
_CONTEXT: Final = f"{_SPEC}.containers.0.securityContext"
_ESCALATES: Final = f"{_IN}: allows privilege escalation; set securityContext.allowPrivilegeEscalation: false"
_PATH: Final = "spec.template.spec.containers.0"
_SYSTEM: Final = manifest("""
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: driver, namespace: gpu-operator}
spec:
  template:
    spec:
      hostPID: true
      hostNetwork: true
      containers:
      - name: driver
        securityContext: {privileged: true, capabilities: {add: [SYS_ADMIN]}}
        volumeDevices: [{name: raw, devicePath: /dev/xvda}]
      volumes: [{name: host, hostPath: {path: /}}]
""")


def _volume(path: str) -> str:
    return (
        f"{_POD}: volume host mounts the host path {path}; use a PersistentVolumeClaim, an emptyDir or an ephemeral"
        " volume"
    )


CASES: Final = (
    Case(
        name="privileges",
        rule=security.PRIVILEGED,
        given={"server": SERVER, "train": TRAIN_JOB, "system": _SYSTEM},
        also=[(_CONTEXT, GONE), (f"{_CONTEXT}.capabilities.add.0", "CAP_CHOWN")],
        breaks=[
            Break(
                f"{_CONTEXT}.privileged",
                to=True,
                says=f"{_IN}: is privileged; remove securityContext.privileged",
            ),
            Break(
                f"{_SPEC}.initContainers.0.securityContext.privileged",
                to=True,
                says=f"{_POD}, container fetch: is privileged; remove securityContext.privileged",
            ),
            Break(
                f"{_CONTEXT}.capabilities.add",
                ["SYS_ADMIN", "CAP_IPC_LOCK", "CHOWN"],
                f"{_IN}: adds capabilities CAP_IPC_LOCK, SYS_ADMIN; remove those that are not needed, or allow them in"
                " the rule's settings",
            ),
            Break(
                f"{_CONTEXT}.capabilities.add",
                ["ALL"],
                f"{_IN}: adds capabilities ALL; remove those that are not needed, or allow them in the rule's settings",
            ),
            Break(
                f"{_CONTEXT}.windowsOptions",
                {"hostProcess": True},
                f"{_IN}: is a Windows HostProcess container; remove securityContext.windowsOptions.hostProcess",
            ),
            Break(
                f"{_CONTEXT}.procMount",
                "Unmasked",
                f"{_IN}: has an unmasked /proc (procMount Unmasked); remove securityContext.procMount",
            ),
        ],
        unknown={
            f"{_CONTEXT}.privileged": doubt(_IN, f"{_PATH}.securityContext.privileged"),
            f"{_CONTEXT}.capabilities.add.0": doubt(_IN, f"{_PATH}.securityContext.capabilities.add.0"),
        },
    ),
    Case(
        name="capabilities that the organisation allows",
        rule=security.PRIVILEGED,
        given={"server": SERVER},
        settings={"capabilities": ["NET_BIND_SERVICE", "IPC_LOCK"]},
        also=[(f"{_CONTEXT}.capabilities.add.0", "IPC_LOCK")],
        breaks=[
            Break(
                f"{_CONTEXT}.capabilities.add.0",
                "CHOWN",
                f"{_IN}: adds capabilities CHOWN; remove those that are not needed, or allow them in the rule's"
                " settings",
            ),
        ],
        unknown={},
    ),
    Case(
        name="escalation",
        rule=security.ESCALATION,
        given={"server": SERVER, "train": TRAIN_JOB, "system": _SYSTEM},
        also=[(_CONTEXT, GONE)],
        breaks=[Break(f"{_CONTEXT}.allowPrivilegeEscalation", to=True, says=_ESCALATES)],
        unknown={_CONTEXT: doubt(_IN, f"{_PATH}.securityContext")},
    ),
    Case(
        name="escalation, of which each container must speak",
        rule=security.ESCALATION,
        given={"server": SERVER, "train": TRAIN_JOB, "system": _SYSTEM},
        settings={"said": True},
        breaks=[
            Break(f"{_CONTEXT}.allowPrivilegeEscalation", GONE, _ESCALATES),
            Break(f"{_CONTEXT}.allowPrivilegeEscalation", to=True, says=_ESCALATES),
        ],
        unknown={},
    ),
    Case(
        name="the node's own namespaces",
        rule=security.HOST_NAMESPACES,
        given={"server": SERVER, "system": _SYSTEM},
        also=[(f"{_SPEC}.hostIPC", False)],
        breaks=[
            Break(f"{_SPEC}.{host_namespace}", to=True, says=f"{_POD}: sets {host_namespace}; remove it")
            for host_namespace in ("hostPID", "hostIPC", "hostNetwork")
        ],
        unknown={f"{_SPEC}.hostNetwork": doubt(_POD, "spec.template.spec.hostNetwork")},
    ),
    Case(
        name="the node's network, where the organisation allows it",
        rule=security.HOST_NAMESPACES,
        given={"server": SERVER},
        settings={"allowed": ["hostNetwork"]},
        also=[(f"{_SPEC}.hostNetwork", True)],
        breaks=[Break(f"{_SPEC}.hostPID", to=True, says=f"{_POD}: sets hostPID; remove it")],
        unknown={},
    ),
    Case(
        name="folders of the node",
        rule=security.HOST_PATHS,
        given={"server": SERVER, "system": _SYSTEM},
        breaks=[
            Break(f"{_SPEC}.volumes.0", {"name": "host", "hostPath": {"path": "/dev"}}, _volume("/dev")),
            Break(
                f"{_SPEC}.volumes",
                [{"name": "host", "hostPath": {"path": "/a"}}, {"name": "host", "hostPath": {"path": "/b"}}],
                (_volume("/a"), _volume("/b")),
            ),
        ],
        unknown={
            f"{_SPEC}.volumes.0": doubt(_POD, "spec.template.spec.volumes.0"),
            f"{_SPEC}.volumes": doubt(_POD, "spec.template.spec.volumes"),
        },
    ),
    Case(
        name="folders of the node that the organisation allows",
        rule=security.HOST_PATHS,
        given={"server": SERVER},
        settings={"allowed": ["/mnt/disks/*"]},
        also=[(f"{_SPEC}.volumes.0", {"name": "host", "hostPath": {"path": "/mnt/disks/0/cache"}})],
        breaks=[
            Break(
                f"{_SPEC}.volumes.0",
                {"name": "host", "hostPath": {"path": "/mnt/disks/../../etc"}},
                _volume("/mnt/disks/../../etc"),
            ),
            Break(f"{_SPEC}.volumes.0", {"name": "host", "hostPath": {"path": "/mnt"}}, _volume("/mnt")),
        ],
        unknown={},
    ),
    Case(
        name="raw devices",
        rule=security.BLOCK_DEVICES,
        given={"server": SERVER, "system": _SYSTEM},
        breaks=[
            Break(
                f"{_SPEC}.containers.0.volumeDevices",
                [{"name": "models", "devicePath": "/dev/xvdb"}],
                f"{_IN}: uses /dev/xvdb as a raw block device; mount the claim as a file system",
            ),
        ],
        unknown={f"{_SPEC}.containers.0.volumeDevices": doubt(_IN, f"{_PATH}.volumeDevices")},
    ),
)
