"""Mutants of guards, in force as policies of their own that deny nothing.

Each writes what it would refuse into the audit log, so that one request of a test asks all of them. A mutant is killed
by a request for which it decides otherwise than its guard, if the guard's decision is what the test has seen.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from components.guards import sources
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.plan.guards import GuardsPlan
from mutation.cel_mutants import SHARED, GuardMutant
from mutation.verdict import Results

PREFIX: Final = "gpu-tenancy-"
"""Begins the names of guards."""
_API: Final = "admissionregistration.k8s.io/v1"
_KINDS: Final = ("ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy")
_AUTHORIZER: Final = re.compile(r"authorizer(?:\s*\.\w+\([^()]*\))+")
_HOLDS: Final = "-"
_FAILS: Final = "cannot be evaluated"
_CONTROLLERS: Final = re.compile(r"system:(kube-|node|serviceaccount:kube-system:)")
"""Users whose requests no test makes."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A policy beside a guard.

    Attributes:
        mutant: None for the guard as it is.
        matching: whether it is about other requests than the guard, so that it may write nothing.
    """

    name: str
    mutant: GuardMutant | None
    matching: bool


@dataclass(slots=True)
class Copies:
    """The copies that are in force, and what requests tell of them.

    Attributes:
        alive: the mutants that no request has killed, by name.
        plans: of the stacks that tests have declared.
        test: the test whose requests the log has next.
    """

    alive: dict[str, GuardMutant]
    results: Results = field(default_factory=Results)
    plans: list[GuardsPlan] = field(default_factory=list[GuardsPlan])
    test: str = ""
    _cluster: Cluster | None = None
    _guards: dict[str, list[Copy]] = field(default_factory=dict[str, list[Copy]])
    _offsets: dict[Path, int] = field(default_factory=dict[Path, int])
    _count: int = 0
    _fresh: bool = False

    def put(self, cluster: Cluster, policy: Any, binding: Any) -> None:
        """Puts the copies of a guard in force, once it is bound."""
        guard: str = binding["metadata"]["name"]
        name = guard.removeprefix(PREFIX)
        guards = next((one for one in reversed(self.plans) if camel(sources.spec(name, one)) == policy["spec"]), None)
        if guards is None or guard in self._guards:
            return
        self._cluster, self._fresh = cluster, True
        original = sources.spec(name, guards)
        self._guards[guard] = [self._create(cluster, original, binding, None)]
        for mutant in [*self.alive.values()]:
            spec = mutant.spec(name, guards, original) if mutant.policy in {name, SHARED} else None
            if spec is None:
                continue
            try:
                self._guards[guard].append(self._create(cluster, spec, binding, mutant))
            except ApiError as error:
                self.results.invalid[mutant.name] = str(error)
                del self.alive[mutant.name]

    def _create(self, cluster: Cluster, spec: Any, binding: Any, mutant: GuardMutant | None) -> Copy:
        self._count += 1
        name = f"mutant{self._count}"
        copy = _auditing(camel(spec))
        cluster.create(_object("ValidatingAdmissionPolicy", name, copy))
        bound = {**binding["spec"], "policyName": name, "validationActions": ["Audit"]}
        cluster.create(_object("ValidatingAdmissionPolicyBinding", name, bound))
        asked = any(one["name"].startswith("asked") for one in copy["matchConditions"])
        return Copy(name, mutant, matching=asked or (mutant is not None and mutant.matching))

    def take(self, guard: str) -> None:
        """Takes the copies of a guard away that is about to be deleted."""
        for copy in self._guards.pop(guard, []):
            self._delete(copy.name)

    def forget(self) -> None:
        """Takes the copies of killed mutants away: each further request takes less time."""
        for copies in self._guards.values():
            for copy in [one for one in copies if one.mutant and one.mutant.name not in self.alive]:
                copies.remove(copy)
                self._delete(copy.name)

    def _delete(self, name: str) -> None:
        assert self._cluster
        for kind in _KINDS:
            self._cluster.delete(Reference(_API, kind, name), wait=0)

    def wait(self, folder: Path) -> None:
        """Waits until all copies are in force, and leaves out what audit logs have from before.

        The API server compiles new policies at once, so a last one shows it. A copy that was not in force yet has
        written nothing, as if it could not be evaluated.
        """
        if not self._fresh or self._cluster is None:
            return
        self._fresh, name = False, f"mutants{self._count}"
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
        spec = {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": f"object.metadata.name != '{name}'"}],
        }
        self._cluster.create(_object("ValidatingAdmissionPolicy", name, spec))
        bound = {"policyName": name, "validationActions": ["Deny"]}
        self._cluster.create(_object("ValidatingAdmissionPolicyBinding", name, bound))
        probe = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}
        self._cluster.wait_for(lambda: self._denies(probe), timeout=600, what="copies of guards to be in force")
        self._delete(name)
        self._leave_out(folder)

    def _leave_out(self, folder: Path) -> None:
        self._offsets |= {log: log.stat().st_size for log in folder.glob("*.log")}

    def _denies(self, probe: Any) -> bool:
        try:
            assert self._cluster
            self._cluster.create(probe, dry_run=True)
        except ApiError:
            return True
        return False

    def read(self, folder: Path) -> None:
        """Evaluates what audit logs have in addition, unless some copies are not known to be in force."""
        if self._fresh:
            self._leave_out(folder)
            return
        for log in folder.glob("*.log"):
            with log.open("rb") as stream:
                stream.seek(self._offsets.get(log, 0))
                for line in stream:
                    if line.endswith(b"\n"):
                        self._offsets[log] = self._offsets.get(log, 0) + len(line)
                        self._judge(json.loads(line))

    def _judge(self, event: Any) -> None:
        status: Any = event.get("responseStatus", {})
        refused = status.get("code", 200) >= 300
        message: str = status.get("message", "") if refused else ""
        if _CONTROLLERS.match(event["user"]["username"]) or (refused and "ValidatingAdmissionPolicy" not in message):
            return
        violations: dict[str, dict[str, str]] = {}
        for key, value in event.get("annotations", {}).items():
            name, _, violation = key.partition("/")
            violations.setdefault(name, {})[violation] = value
        for guard, (own, *others) in self._guards.items():
            evaluated = violations.get(own.name, {})
            decision = _first(evaluated)
            if refused and (f"ValidatingAdmissionPolicy '{guard}'" not in message or decision not in message):
                continue
            for copy in others:
                found = violations.get(copy.name, {})
                if not copy.matching:
                    found = {key: found.get(key, _FAILS) for key in evaluated}
                turned = _first(found)
                differs = (decision and turned != decision) if refused else (turned and not decision)
                if differs and copy.mutant and self.alive.pop(copy.mutant.name, None):
                    self.results.killed[copy.mutant.name] = self.test


def _object(kind: str, name: str, spec: Any) -> dict[str, Any]:
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _first(violations: Mapping[str, str]) -> str:
    """The message of the first violation, which is the one that users see."""
    found = {int(key[1:]): message for key, message in violations.items() if message != _HOLDS}
    return found[min(found)] if found else ""


def camel(value: Any) -> Any:
    """A spec with the names of the API."""
    if isinstance(value, Mapping):
        parts = cast("Mapping[str, Any]", value)
        return {re.sub(r"_(\w)", lambda match: match[1].upper(), key): camel(part) for key, part in parts.items()}
    return [camel(part) for part in cast("list[Any]", value)] if isinstance(value, list) else value


def _auditing(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A policy that writes of each validation whether it holds into the audit log. One that fails writes nothing.

    What it writes may not ask the authorizer (Validate in https://github.com/kubernetes/apiserver/blob/v0.36.3/pkg/
    admission/plugin/policy/validating/validator.go), so that is a condition of the copy.
    """
    annotations: list[dict[str, str]] = []
    asked: dict[str, None] = {}
    for index, one in enumerate(spec["validations"]):
        asked |= dict.fromkeys(_AUTHORIZER.findall(one["expression"]))
        expression = _AUTHORIZER.sub("false", one["expression"])
        value = f"({expression}) ? '{_HOLDS}' : {one['messageExpression']}"
        annotations.append({"key": f"v{index}", "valueExpression": value})
    conditions = [{"name": f"asked{index}", "expression": f"!{one}"} for index, one in enumerate(asked)]
    rest = {key: value for key, value in spec.items() if key != "validations"}
    matching = {"matchConditions": [*spec["matchConditions"], *conditions]}
    return {**rest, **matching, "failurePolicy": "Ignore", "auditAnnotations": annotations}
