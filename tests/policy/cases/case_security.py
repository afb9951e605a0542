"""Cases for `workload_rules.security`."""

from typing import Final

from policy_builders import GONE, Break, Case, changed, manifest

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
      volumes: [{name: host, hostPath: {path: /}}]
""")


def _volume(path: str) -> str:
    return (
        f"{_POD}: volume host mounts the host path {path}; use a PersistentVolumeClaim, an emptyDir or an ephemeral"
        " volume"
    )


VOLUME: Final = manifest("""
apiVersion: v1
kind: PersistentVolume
metadata: {name: data}
spec:
  hostPath: {path: /}
  claimRef: {namespace: kube-system, name: data}
""")
BUCKET: Final = manifest("""
apiVersion: v1
kind: PersistentVolume
metadata: {name: bucket}
spec: {csi: {driver: s3.csi.aws.com, volumeHandle: bucket}}
""")


def _persistent(path: str, claims: str = "claims it") -> str:
    return f"PersistentVolume data: is the host path {path} for each pod that {claims}; use storage of a CSI driver"


WORKFLOW: Final = manifest("""
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: train, namespace: ml-research}
spec:
  templates:
  - name: main
    container: {image: "registry.example.com/ml/train:3.0.1", args: [--epochs]}
""")
_TEMPLATE: Final = "workflow: spec.templates.0"


def _string(field: str) -> str:
    return (
        f"Workflow ml-research/train: spec.templates.0.{field} is a string with a pod spec or a manifest, which no rule"
        " evaluates; use the fields of the object"
    )


_BASELINE: Final = (
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP"),
    *("SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
)
"""Capabilities of https://kubernetes.io/docs/concepts/security/pod-security-standards/#baseline."""

CASES: Final = (
    Case(
        name="privileges",
        rule=security.no_privileged,
        given={"server": SERVER, "train": TRAIN_JOB, "system": _SYSTEM},
        also=[
            (_CONTEXT, GONE),
            (f"{_CONTEXT}.capabilities.add.0", "CAP_CHOWN"),
            *((f"{_CONTEXT}.capabilities.add", [name]) for name in _BASELINE),
        ],
        breaks=[
            Break(f"{_CONTEXT}.privileged", to=True, says=f"{_IN}: is privileged; remove securityContext.privileged"),
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
        unknown={f"{_CONTEXT}.privileged": _IN, f"{_CONTEXT}.capabilities.add.0": _IN},
    ),
    Case(
        name="capabilities allowed by settings",
        rule=security.no_privileged,
        given={"server": SERVER},
        settings={"capabilities": ["NET_BIND_SERVICE", "IPC_LOCK"]},
        also=[(f"{_CONTEXT}.capabilities.add.0", "IPC_LOCK")],
        breaks=[
            Break(
                f"{_CONTEXT}.capabilities.add.0",
                "CHOWN",
                f"{_IN}: adds capabilities CHOWN; remove those that are not needed, or allow them in the rule's"
                " settings",
            )
        ],
    ),
    Case(
        name="host namespaces",
        rule=security.no_host_namespaces,
        given={"server": SERVER, "system": _SYSTEM},
        also=[(f"{_SPEC}.hostIPC", False)],
        breaks=[
            *(
                Break(f"{_SPEC}.{host_namespace}", to=True, says=f"{_POD}: sets {host_namespace}; remove it")
                for host_namespace in ("hostPID", "hostIPC", "hostNetwork")
            ),
            *(
                Break(
                    f"{_SPEC}.{context}",
                    {"windowsOptions": {"hostProcess": True}},
                    f"{_POD}: sets {context}.windowsOptions.hostProcess, so that its containers run on the host;"
                    " remove it",
                )
                for context in ("securityContext", "podSecurityContext")
            ),
        ],
        unknown={f"{_SPEC}.hostNetwork": _POD},
    ),
    Case(
        name="host network allowed by settings",
        rule=security.no_host_namespaces,
        given={"server": SERVER},
        settings={"allowed": ["hostNetwork"]},
        also=[(f"{_SPEC}.hostNetwork", True)],
        breaks=[Break(f"{_SPEC}.hostPID", to=True, says=f"{_POD}: sets hostPID; remove it")],
    ),
    Case(
        name="host paths",
        rule=security.no_host_paths,
        given={"server": SERVER, "system": _SYSTEM},
        breaks=[
            Break(f"{_SPEC}.volumes.0", {"name": "host", "hostPath": {"path": "/dev"}}, _volume("/dev")),
            Break(
                f"{_SPEC}.volumes",
                [{"name": "host", "hostPath": {"path": "/a"}}, {"name": "host", "hostPath": {"path": "/b"}}],
                (_volume("/a"), _volume("/b")),
            ),
        ],
        unknown={f"{_SPEC}.volumes.0": _POD, f"{_SPEC}.volumes": _POD},
    ),
    Case(
        name="host paths allowed by settings",
        rule=security.no_host_paths,
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
    ),
    Case(
        name="PersistentVolumes on the node",
        rule=security.no_host_paths,
        given={"volume": VOLUME, "bucket": BUCKET},
        settings={"allowed": ["/mnt/disks/*"]},
        also=[
            ("volume: spec.hostPath.path", "/mnt/disks/0"),
            ("volume: spec", {"local": {"path": "/mnt/disks/1"}}),
            ("volume: spec.claimRef", {"namespace": "volcano-system", "name": "cache"}),
        ],
        breaks=[
            Break(
                "volume: spec.claimRef",
                {"namespace": "ml-serving", "name": "data"},
                _persistent("/", "mounts its claim"),
            ),
            Break("volume: spec.claimRef", GONE, _persistent("/")),
            Break("volume: spec.claimRef.namespace", "recommender-system", _persistent("/", "mounts its claim")),
            Break("volume: spec", {"local": {"path": "/var/lib/kubelet"}}, _persistent("/var/lib/kubelet")),
            Break("volume: spec", {"hostPath": {"path": "/mnt/disks/../.."}}, _persistent("/mnt/disks/../..")),
        ],
        unknown={"volume: spec.claimRef": "PersistentVolume data", "volume: spec.hostPath": "PersistentVolume data"},
    ),
    Case(
        name="host ports and probed hosts",
        rule=security.no_host_ports,
        given={"server": SERVER, "system": _SYSTEM},
        also=[
            (f"{_SPEC}.containers.0.ports", [{"containerPort": 8080}, {"containerPort": 8081, "hostPort": 0}]),
            (f"{_SPEC}.containers.0.livenessProbe", {"httpGet": {"path": "/", "port": 8080}}),
        ],
        breaks=[
            Break(
                f"{_SPEC}.containers.0.ports",
                [{"containerPort": 8080}, {"containerPort": 8081, "hostPort": 80}],
                f"{_IN}: uses port 80 of the host; remove hostPort, and create a Service",
            ),
            Break(
                f"{_SPEC}.containers.0.startupProbe",
                {"httpGet": {"host": "169.254.169.254", "path": "/"}},
                f"{_IN}: startupProbe.httpGet calls the host 169.254.169.254 from the node; remove host",
            ),
            *(
                Break(
                    f"{_SPEC}.containers.0.{field}",
                    {"httpGet": {"host": "10.0.0.1", "path": "/"}},
                    f"{_IN}: {field}.httpGet calls the host 10.0.0.1 from the node; remove host",
                )
                for field in ("livenessProbe", "readinessProbe", "lifecycle.postStart")
            ),
            Break(
                f"{_SPEC}.containers.0.lifecycle",
                {"preStop": {"tcpSocket": {"host": "10.0.0.1", "port": 10250}}},
                f"{_IN}: lifecycle.preStop.tcpSocket calls the host 10.0.0.1 from the node; remove host",
            ),
        ],
        unknown={f"{_SPEC}.containers.0.ports": _IN},
    ),
    Case(
        name="pod specs in strings",
        rule=security.pod_specs_readable,
        given={"workflow": WORKFLOW},
        also=[
            (f"{_TEMPLATE}.podSpecPatch", ""),
            (f"{_TEMPLATE}.container.args.0", "this kind: of text, with containers of all sorts"),
            ("workflow: metadata.annotations", {"podSpecPatch": "hostPID: true"}),
            ("workflow: metadata.namespace", "kube-system"),
        ],
        breaks=[
            Break(f"{_TEMPLATE}.podSpecPatch", "hostPID: true", _string("podSpecPatch")),
            Break(f"{_TEMPLATE}.resource", {"manifest": "{{=manifest}}"}, _string("resource.manifest")),
            Break(f"{_TEMPLATE}.x", "apiVersion: v1\nkind: Pod\n", _string("x")),
            Break(f"{_TEMPLATE}.x", '{"spec":{"containers":[]}}', _string("x")),
            Break(f"{_TEMPLATE}.x", "- limits: {nvidia.com/gpu: 8}", _string("x")),
        ],
    ),
    Case(
        name="pod specs in strings of a system namespace",
        rule=security.pod_specs_readable,
        given={"workflow": changed({"workflow": WORKFLOW}, f"{_TEMPLATE}.podSpecPatch", "hostPID: true")["workflow"]},
        settings={"platform": ["ml-research"]},
        unknown={"workflow: metadata.namespace": "Workflow train"},
    ),
)
