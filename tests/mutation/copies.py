"""Mutants of guards, in force as policies of their own that deny nothing.

Each writes what it would refuse into the audit log, so that one request of a test asks all of them. A mutant is killed
by a request for which it decides otherwise than its guard, if the guard's decision is what the test has seen.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final, cast

from components.guards import sources
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.plan.guards import GuardsPlan
from mutation.cel_mutants import FOLDER, SHARED, GuardMutant
from mutation.verdict import Results

PREFIX: Final = "gpu-tenancy-"
"""Begins the names of guards."""
_API: Final = "admissionregistration.k8s.io/v1"
_KINDS: Final = ("ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy")
_AUTHORIZER: Final = re.compile(r"authorizer(?:\s*\.\w+\([^()]*\))+")
_HOLDS: Final = "-"
_MATCHED: Final = "matched"
_READ: Final = re.compile(r"\bvariables\.(\w+)")
_INVALID, _TIMED_OUT = 422, 504
_FAILS: Final = "cannot be evaluated"
_READERS: Final = ("queue", "gpu-requests", "toleration", "ratio", "amount")
"""The guards with the most cases: the first ones in which a mutant of what several read is asked."""
_CONTROLLERS: Final = re.compile(r"system:(kube-|node|serviceaccount:kube-system:)")
"""Users whose requests no test makes."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A policy beside a guard.

    Attributes:
        mutant: None for the guard as it is.
        judges: the violations that it finds itself; of others it has what the guard finds.
        left_out: violations of the guard that it does not know.
        matching: whether it is about other requests than the guard.
    """

    name: str
    mutant: GuardMutant | None
    judges: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    matching: bool = False

    def finds(self, evaluated: Mapping[str, str], written: Mapping[str, str]) -> Mapping[str, str] | None:
        """The violations of a request; None if it was not in force yet.

        Args:
            evaluated: what the guard finds.
            written: what is in the log of the copy. An expression that fails writes nothing.
        """
        if _MATCHED not in written:
            return {} if self.matching else None
        own = {name: written.get(name, _FAILS) for name in self.judges if name in evaluated or self.matching}
        return {**evaluated, **own, **dict.fromkeys(self.left_out, _HOLDS)}


@dataclass(slots=True)
class Copies:
    """The copies that are in force, and what requests tell of them.

    Attributes:
        alive: the mutants that no request has killed, by name.
        plans: of the stacks that tests have declared.
        test: the test whose requests the log has next.
        readers: of mutants of what several guards read, the guard in which it is asked, if not in the first one.
        everywhere: whether it is asked in all of them: of all such mutants, each request would be asked of two thousand
            policies.
    """

    alive: dict[str, GuardMutant]
    readers: Mapping[str, str] = field(default_factory=dict[str, str])
    everywhere: bool = False
    results: Results = field(default_factory=Results)
    plans: list[GuardsPlan] = field(default_factory=list[GuardsPlan])
    test: str = ""
    _read_by: dict[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    _cluster: Cluster | None = None
    _guards: dict[str, list[Copy]] = field(default_factory=dict[str, list[Copy]])
    _violations: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
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
        self._violations[guard] = [violation(one) for one in original["validations"]]
        self._guards[guard] = [self._create(cluster, original, original, binding, None)]
        for mutant in [*self.alive.values()]:
            asked = self._asked(mutant, guards) if mutant.policy == SHARED else [mutant.policy]
            spec = mutant.spec(name, guards, original) if name in asked else None
            if spec is None:
                continue
            try:
                self._guards[guard].append(self._create(cluster, spec, original, binding, mutant))
            except ApiError as error:
                if error.status != _INVALID:
                    raise
                self.results.invalid[mutant.name] = str(error)
                del self.alive[mutant.name]

    def _asked(self, mutant: GuardMutant, guards: GuardsPlan) -> Sequence[str]:
        """The guards in which a mutant of what several read is asked."""
        if mutant.name in self.readers and not self.everywhere:
            return [self.readers[mutant.name]]
        if mutant.name not in self._read_by:
            others = sorted({file.stem for file in FOLDER.glob("*.yaml")} - {SHARED, *_READERS})
            reading = (
                name
                for name in (*_READERS, *others)
                if mutant.spec(name, guards, sources.spec(name, guards)) is not None
            )
            self._read_by[mutant.name] = [*islice(reading, None if self.everywhere else 1)]
        return self._read_by[mutant.name]

    def _create(self, cluster: Cluster, spec: Any, original: Any, binding: Any, mutant: GuardMutant | None) -> Copy:
        """A copy with the violations that are not the guard's, or all if it is about requests that the guard is not."""
        self._count += 1
        name = f"mutant{self._count}"
        asks = bool(_asks(spec) or _asks(original))
        broader = mutant is None or asks or spec["match_conditions"] != original["match_conditions"]
        texts, before = _texts(spec), _texts(original)
        judges = tuple(one for one in texts if broader or texts[one] != before[one])
        copy = _auditing(spec, judges)
        bound = {**binding["spec"], "policyName": name, "validationActions": ["Audit"]}
        for kind, own in (("ValidatingAdmissionPolicy", copy), ("ValidatingAdmissionPolicyBinding", bound)):
            cluster.wait_for(
                lambda kind=kind, own=own: _applied(cluster, _object(kind, name, own)), what=f"{kind} {name}"
            )
        left_out = tuple(one for one in before if one not in texts)
        return Copy(name, mutant, judges, left_out, broader or bool(mutant and mutant.matching))

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
        self._cluster.wait_for(lambda: self._denies(probe), timeout=3600, what="copies of guards to be in force")
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
            decision = self._first(guard, evaluated)
            if refused and (f"ValidatingAdmissionPolicy '{guard}'" not in message or decision not in message):
                continue
            for copy in others:
                found = copy.finds(evaluated, violations.get(copy.name, {}))
                if found is None:
                    continue
                turned = self._first(guard, found)
                differs = (decision and turned != decision) if refused else (turned and not decision)
                if differs and copy.mutant and self.alive.pop(copy.mutant.name, None):
                    self.results.killed[copy.mutant.name] = self.test
                    if self.everywhere and copy.mutant.policy == SHARED:
                        self.results.readers[copy.mutant.name] = guard.removeprefix(PREFIX)

    def _first(self, guard: str, violations: Mapping[str, str]) -> str:
        """The message of the first violation, which is the one that users see."""
        found = (violations.get(name, _HOLDS) for name in self._violations[guard])
        return next((message for message in found if message != _HOLDS), "")


def _object(kind: str, name: str, spec: Any) -> dict[str, Any]:
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name}, "spec": spec}


def camel(value: Any) -> Any:
    """A spec with the names of the API."""
    if isinstance(value, Mapping):
        parts = cast("Mapping[str, Any]", value)
        return {re.sub(r"_(\w)", lambda match: match[1].upper(), key): camel(part) for key, part in parts.items()}
    return [camel(part) for part in cast("list[Any]", value)] if isinstance(value, list) else value


def _applied(cluster: Cluster, manifest: Any) -> bool:
    """Whether an object is there; a busy API server takes more than one request."""
    try:
        cluster.apply(manifest, force=True)
    except ApiError as error:
        if error.status != _TIMED_OUT:
            raise
        return False
    return True


def violation(validation: Mapping[str, str]) -> str:
    """The name of what a validation finds."""
    (name,) = _READ.findall(validation["message_expression"])
    return name


def _reached(text: str, variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that an expression reads, and those that these read, in their order."""
    names = {*_READ.findall(text)}
    for name in reversed([*variables]):
        if name in names:
            names.update(_READ.findall(variables[name]))
    return {name: each for name, each in variables.items() if name in names}


def _variables(spec: Any) -> dict[str, str]:
    return {one["name"]: one["expression"] for one in spec["variables"]}


def _texts(spec: Any) -> dict[str, tuple[str, dict[str, str]]]:
    """What decides each violation."""
    variables = _variables(spec)
    return {violation(one): (one["expression"], _reached(one["expression"], variables)) for one in spec["validations"]}


def _asks(spec: Any) -> list[str]:
    """The questions to the authorizer in validations."""
    found = (question for one in spec["validations"] for question in _AUTHORIZER.findall(one["expression"]))
    return [*dict.fromkeys(found)]


def _auditing(spec: Any, judges: Collection[str]) -> dict[str, Any]:
    """A policy that writes of some validations whether they hold into the audit log. One that fails writes nothing.

    What it writes may not ask the authorizer (Validate in https://github.com/kubernetes/apiserver/blob/v0.36.3/pkg/
    admission/plugin/policy/validating/validator.go), so that is a condition of the copy.
    """
    annotations = [{"key": _MATCHED, "valueExpression": f"'{_HOLDS}'"}]
    for one in spec["validations"]:
        if violation(one) in judges:
            expression = _AUTHORIZER.sub("false", one["expression"])
            value = f"({expression}) ? '{_HOLDS}' : {one['message_expression']}"
            annotations.append({"key": violation(one), "valueExpression": value})
    conditions = [{"name": f"asked{index}", "expression": f"!{one}"} for index, one in enumerate(_asks(spec))]
    read = _reached(" ".join(one["valueExpression"] for one in annotations), _variables(spec))
    copy = {key: value for key, value in spec.items() if key != "validations"} | {
        "match_conditions": [*spec["match_conditions"], *conditions],
        "variables": [one for one in spec["variables"] if one["name"] in read],
    }
    return {**camel(copy), "failurePolicy": "Ignore", "auditAnnotations": annotations}
