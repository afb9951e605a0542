"""Rights without a stack's file: by the roles and bindings that the caller may read in the cluster."""

import json
from pathlib import Path
from typing import Any

import pytest
from cli_builders import tenancy
from object_server import serving
from people_builders import OWN, RBAC
from typer.testing import Result

Data = dict[str, Any]
pytestmark = pytest.mark.process


def bound(role: str, *names: str, kind: str = "ClusterRole", namespace: str = OWN) -> Data:
    """A binding for users and, with a slash in the name, service accounts."""
    subjects = [
        {"kind": "ServiceAccount", "namespace": name.split("/")[0], "name": name.split("/")[1]}
        if "/" in name
        else {"kind": "User", "name": name}
        for name in names
    ]
    home = {"namespace": namespace} if namespace else {}
    return {"metadata": {"name": role, **home}, "roleRef": {"kind": kind, "name": role}, "subjects": subjects}


def role(name: str, verb: str, resource: str, group: str = "", **home: str) -> Data:
    return {
        "metadata": {"name": name, **home},
        "rules": [{"apiGroups": [group], "resources": [resource], "verbs": [verb]}],
    }


WITHIN = [
    bound("gpu-tenancy-researcher", "ann", f"{OWN}/ci"),
    bound("gpu-tenancy-viewer", "vic"),
    bound("debugger", "eve", kind="Role"),
]
WHOLE = [
    bound("cluster-admin", "root", "kube-system/cleaner", namespace=""),
    bound("system:node", "system:kubelet", namespace=""),
]
ROLES = [role("debugger", "create", "pods/exec", namespace=OWN)]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Asks a cluster with some readable kinds, outside of a project."""
    monkeypatch.chdir(tmp_path)

    def ask(*words: str, **kinds: list[Data] | None) -> Result:
        with serving(tmp_path, {(RBAC, kind): kinds.get(kind, []) for kind in SERVED}) as kubeconfig:
            return tenancy("access", "who-can", *words, "--kubeconfig", kubeconfig)

    return ask


SERVED = ("ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding")


def who(seen: Result) -> list[tuple[str, str]]:
    return [(row["who"], row["role"]) for row in json.loads(seen.stdout)]


def test_member_sees_own_namespace_and_whom_to_ask(asked: Any) -> None:
    hidden = {"ClusterRole": None, "ClusterRoleBinding": None}
    seen = asked("create", "pods/exec", "-n", OWN, "-o", "json", Role=ROLES, RoleBinding=WITHIN, **hidden)
    assert (seen.exit_code, who(seen)) == (
        0,
        [
            (f"serviceaccount:{OWN}/ci", "gpu-tenancy-researcher"),
            ("user:ann", "gpu-tenancy-researcher"),
            ("user:eve", "debugger"),
        ],
    )
    whole, rules = seen.stderr.splitlines()
    assert whole == (
        "rights in the whole cluster not shown: you may not list ClusterRoleBindings; ask a user with the role"
        " gpu-tenancy-auditor"
    )
    assert rules == (
        "rules of gpu-tenancy-researcher, gpu-tenancy-viewer are those of this version of tenancy: you may not list"
        " ClusterRoles"
    )
    foreign = [*WITHIN, bound("theirs", "ann")]
    seen = asked("create", "pods/exec", "-n", OWN, Role=ROLES, RoleBinding=foreign, **hidden)
    assert "rights by theirs not shown: the role does not exist, or you may not read it; ask a user" in seen.stderr


def test_an_auditor_sees_what_the_cluster_has(asked: Any) -> None:
    # The roles of the cluster count, not those of this version: this researcher may not open a shell.
    roles = [role("gpu-tenancy-researcher", "get", "pods"), role("cluster-admin", "*", "*", "*")]
    known = {"ClusterRole": roles, "Role": ROLES, "ClusterRoleBinding": WHOLE, "RoleBinding": WITHIN[:1]}
    seen = asked("create", "pods/exec", "-n", OWN, "-o", "json", **known)
    assert who(seen) == [("user:root", "cluster-admin")]
    assert "1 of the control plane and of operators not shown (use --verbose)" in seen.stderr
    every = asked("create", "pods/exec", "-n", OWN, "-o", "json", "--verbose", **known)
    assert who(every) == [("serviceaccount:kube-system/cleaner", "cluster-admin"), ("user:root", "cluster-admin")]
    assert who(asked("get", "pods", "-o", "json", **known)) == [
        (f"serviceaccount:{OWN}/ci", "gpu-tenancy-researcher"),
        ("serviceaccount:kube-system/cleaner", "cluster-admin"),
        ("user:ann", "gpu-tenancy-researcher"),
        ("user:root", "cluster-admin"),
    ]
    assert "rights by system:node not shown" in seen.stderr


def test_nothing_readable_is_a_sentence_with_whom_to_ask(asked: Any) -> None:
    hidden = dict.fromkeys(SERVED)
    seen = asked("get", "pods", "-n", OWN, **hidden)
    assert (seen.exit_code, seen.stdout) == (1, "")
    assert f"error: you may not list RoleBindings in {OWN}; ask a user with the role gpu-tenancy-auditor" in seen.stderr
    bare = asked("get", "pods", **hidden)
    assert "you may not list RoleBindings in the whole cluster; specify your team with -n, or ask" in bare.stderr


def test_built_in_resources_precede_those_of_operators(asked: Any) -> None:
    seen = asked("create", "jobs", "-n", OWN, "-o", "json", RoleBinding=WITHIN, ClusterRole=None)
    assert ("user:ann", "gpu-tenancy-researcher") in who(seen)
    assert "unknown resource 'nothings'" in asked("get", "nothings").stderr
