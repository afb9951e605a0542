"""Cases for `workload_rules.guards`, and for NetworkPolicies that allow everything."""

from dataclasses import replace
from typing import Any, Final

from policy_builders import Break, Case, changed, manifest

from workload_rules import guards, tenancy

BINDING: Final = manifest("""
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: gpu-tenancy-queue}
spec:
  policyName: gpu-tenancy-queue
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kueue.x-k8s.io/managed: "true"}}}
""")
POLICY: Final = manifest("""
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: gpu-tenancy-queue}
spec:
  failurePolicy: Fail
  matchConstraints: {resourceRules: [{apiGroups: [batch], resources: [jobs], operations: [CREATE]}]}
  validations: [{expression: size(variables.fault) == 0}]
""")
DEFAULT: Final = manifest("""
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: gpu-tenancy-default-queue}
spec: {failurePolicy: Ignore, mutations: [{patchType: JSONPatch, jsonPatch: {expression: "[]"}}]}
""")
FOREIGN: Final = changed({"it": BINDING}, "it: metadata.name", "image-signatures")["it"]
LABEL: Final = manifest("""
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBindingPatch
metadata: {name: gpu-tenancy-queue, labels: {audited-by: security}}
""")
AUDIT: Final = manifest("""
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBindingPatch
metadata: {name: gpu-tenancy-queue}
spec: {validationActions: [Audit]}
""")
NARROW: Final = manifest("""
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBindingPatch
metadata: {name: gpu-tenancy-queue}
spec: {matchResources: {namespaceSelector: {matchLabels: {team: nobody}}}}
""")
EMPTIED: Final = manifest("""
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyPatch
metadata: {name: gpu-tenancy-queue}
spec: {validations: [{expression: "true"}]}
""")
ALLOW: Final = manifest("""
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: allow, namespace: ml-research}
spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {}}]}]}
""")
OPENED: Final = manifest("""
apiVersion: networking.k8s.io/v1
kind: NetworkPolicyPatch
metadata: {name: default-deny, namespace: ml-research}
spec: {ingress: [{}]}
""")
_BINDING: Final = "ValidatingAdmissionPolicyBinding gpu-tenancy-queue"
_PATCH: Final = "ValidatingAdmissionPolicyBindingPatch gpu-tenancy-queue"
_POLICY: Final = "ValidatingAdmissionPolicy gpu-tenancy-queue"
_AUDIT: Final = "validationActions is Audit, so that the guard rejects nothing; set Deny"
_OPEN: Final = "spec.ingress.0 allows all traffic into all pods; set `from` or `ports`, or a podSelector"
_EVERYTHING: Final = "NetworkPolicy ml-research/allow: " + _OPEN
_SELECTOR: Final = "spec.podSelector.matchLabels, spec.podSelector.matchExpressions are not set by the patch"


def _open(to: Any) -> Break:
    return Break("allow: spec.ingress.0", to, _EVERYTHING)


CASES: Final = (
    Case(
        name="guards of a stack, changed by another program",
        rule=guards.guards_not_weakened,
        given={"binding": BINDING, "policy": POLICY, "default": DEFAULT, "foreign": FOREIGN, "label": LABEL},
        also=[
            ("binding: spec.validationActions", ["Deny", "Audit"]),
            ("foreign: spec.validationActions", ["Audit"]),
            ("foreign: spec.matchResources.objectSelector", {"matchLabels": {"a": "b"}}),
            ("audit", replace(AUDIT, parents="gpu-tenancy:platform:Guards$")),
            ("narrow", changed({"it": NARROW}, "it: spec.matchResources", {"matchPolicy": "Equivalent"})["it"]),
            ("emptied", changed({"it": EMPTIED}, "it: spec", {"failurePolicy": "Fail"})["it"]),
        ],
        breaks=[
            Break("binding: spec.validationActions", ["Audit"], f"{_BINDING}: {_AUDIT}"),
            Break(
                "binding: spec.policyName",
                "allow-all",
                f"{_BINDING}: policyName is allow-all, which is another policy; set gpu-tenancy-queue",
            ),
            Break(
                "binding: spec.matchResources.objectSelector",
                {"matchLabels": {"a": "b"}},
                f"{_BINDING}: matchResources.objectSelector narrows the guard; remove it",
            ),
            Break(
                "policy: spec.failurePolicy",
                "Ignore",
                f"{_POLICY}: failurePolicy is Ignore, so that an object passes if the guard fails; set Fail",
            ),
            Break(
                "policy: spec.validations",
                [],
                f"{_POLICY}: validations is empty, so that the guard rejects nothing; deploy the guard of the stack",
            ),
            Break("audit", AUDIT, f"{_PATCH}: {_AUDIT}"),
            Break(
                "narrow",
                NARROW,
                f"{_PATCH}: matchResources.namespaceSelector narrows the guard; remove it",
            ),
            Break(
                "emptied",
                EMPTIED,
                "ValidatingAdmissionPolicyPatch gpu-tenancy-queue: validations replaces what the guard decides; remove"
                " it",
            ),
        ],
        unknown={"binding: spec.validationActions": _BINDING, "policy: spec.failurePolicy": _POLICY},
    ),
    Case(
        name="what all traffic is",
        rule=tenancy.network_policy_open,
        given={"allow": ALLOW},
        also=[
            ("allow: spec.ingress", list[Any]()),
            ("allow: spec.ingress.0", {"ports": [{"port": 8000}]}),
            ("allow: spec.ingress.0.from", [{"namespaceSelector": {"matchLabels": {"team": "a"}}}]),
            ("allow: spec.ingress.0.from", [{"ipBlock": {"cidr": "10.0.0.0/8"}}]),
            ("allow: spec", {"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [dict[str, Any]()]}),
            ("allow: metadata.namespace", "kube-system"),
        ],
        breaks=[
            _open({}),
            _open({"from": []}),
            _open({"from": [{"namespaceSelector": {}}]}),
            _open({"from": [{"namespaceSelector": {}, "podSelector": {}}]}),
            _open({"from": [{"podSelector": {}}, {"ipBlock": {"cidr": "0.0.0.0/0"}}]}),
            Break("opened", OPENED, f"NetworkPolicyPatch ml-research/default-deny: {_OPEN} ({_SELECTOR})"),
        ],
        unknown={"allow: spec.ingress": "NetworkPolicy ml-research/allow"},
    ),
)
