"""Rules for bindings of roles and for credentials: who may do what in a cluster that teams share."""

from collections.abc import Iterator

from pydantic import Field

from rule_engine import ADVICE, MUST, Settings, Severity, Stack, UnknownValues, rule
from workload_rules.bindings import Reviewed
from workload_rules.objects import matches_any
from workload_rules.pods import Tenants
from workload_rules.rbac import BINDINGS, PRACTICES, ApiObject, PolicyRule, api_objects, role_ref, subject_of


@rule(
    "no-cluster-admin",
    rationale=(
        "Its subjects can read all teams' data and remove quotas and guards; in one namespace, they can give themselves"
        " any right there."
    ),
    fix="Bind a role with the required rights; list groups of administrators under `admins`.",
    link="https://kubernetes.io/docs/reference/access-authn-authz/rbac/#user-facing-roles",
    severity=Severity.CRITICAL,
    level=MUST,
    on=BINDINGS,
)
def no_cluster_admin(binding: ApiObject, settings: Reviewed, stack: Stack) -> Iterator[str]:
    """Only listed administrators must be bound to cluster-admin, or to a role that equals it."""
    if settings.given(binding, stack, "no-cluster-admin", lambda rule: rule.is_everything):
        for subject in settings.tenants(binding):
            yield (
                f"binds {role_ref(binding)}, which can do everything, to {subject.label}; bind a role with the required"
                f" rights, or list {subject.id} under `admins`"
            )


class Everybody(Tenants):
    """Roles that everybody can have."""

    roles: list[str] = Field(
        [
            "system:basic-user",
            "system:discovery",
            "system:public-info-viewer",
            "system:service-account-issuer-discovery",
        ],
        description=(
            "ClusterRoles that may be bound to everybody, as patterns. Default: those that the API server binds itself."
        ),
    )


@rule(
    "no-binding-to-everybody",
    rationale=(
        "Whoever joins later has the role too, and each pod of such a namespace; on GKE, system:authenticated includes"
        " everybody with a Google account."
    ),
    fix="Bind the role to named groups, users or service accounts.",
    link="https://cloud.google.com/kubernetes-engine/docs/best-practices/rbac#default-roles-groups",
    severity=Severity.CRITICAL,
    level=MUST,
    on=BINDINGS,
)
def no_binding_to_everybody(binding: ApiObject, settings: Everybody) -> Iterator[str]:
    """Roles must not be bound to everybody, nor to all service accounts of another namespace."""
    unknown_values = UnknownValues()
    for view in binding.view.items("subjects"):
        with unknown_values.collected():
            subject = subject_of(view)
            everybody = subject.everybody
            if subject.is_group_of_accounts and subject.home != binding.namespace and settings.tenant(subject.home):
                everybody = f"all service accounts of namespace {subject.home}"
            if everybody and not matches_any(binding.view.text("roleRef", "name"), settings.roles):
                yield f"binds {role_ref(binding)} to {subject.label}: {everybody}; name the subjects that need it"
    unknown_values.raise_first()


def _reads_secrets(rule: PolicyRule) -> bool:
    """Whether a rule grants reading Secrets whose names it does not list; for all rights, see no-cluster-admin."""
    can_read = any(rule.grants(verb) for verb in ("get", "list", "watch"))
    return can_read and rule.covers("", "secrets") and not rule.values("resourceNames") and not rule.is_everything


@rule(
    "no-cluster-wide-secrets",
    rationale="Secrets have all teams' credentials, and tokens with which their reader becomes somebody else.",
    fix="Create RoleBindings in the namespaces that need it, or list the names of the Secrets in the role.",
    link=f"{PRACTICES}#listing-secrets",
    severity=Severity.HIGH,
    level=ADVICE,
    on=BINDINGS,
)
def no_cluster_wide_secrets(binding: ApiObject, settings: Reviewed, stack: Stack) -> Iterator[str]:
    """Only listed subjects must be able to read the Secrets of all namespaces."""
    if binding.kind != "ClusterRoleBinding":
        return
    if settings.given(binding, stack, "no-cluster-wide-secrets", _reads_secrets):
        for subject in settings.tenants(binding):
            yield (
                f"gives {subject.label} {role_ref(binding)}, which reads the Secrets of all namespaces; create a"
                f" RoleBinding in each namespace that needs it, or list {subject.id} under `admins`"
            )


class Tokens(Settings):
    """Objects that can have static tokens."""

    allowed: list[str] = Field(
        [], description="Secrets and ServiceAccounts that may have static tokens, as patterns of NAMESPACE/NAME."
    )


@rule(
    "no-static-tokens",
    rationale="A token in a Secret never expires: a copy of it is valid until somebody deletes the Secret.",
    fix="Use TokenRequest (`kubectl create token`, projected volumes) or the cloud's workload identity.",
    link="https://kubernetes.io/docs/concepts/configuration/secret/#serviceaccount-token-secrets",
    severity=Severity.HIGH,
    level=ADVICE,
    on=api_objects("Secrets and ServiceAccounts", "core", "Secret", "ServiceAccount"),
)
def no_static_tokens(keeper: ApiObject, settings: Tokens) -> Iterator[str]:
    """Service accounts must not have static tokens."""
    problem = ""
    if keeper.kind == "ServiceAccount":
        if keeper.view.items("secrets"):
            problem = "lists Secrets in `secrets`; remove them, and mount Secrets as volumes"
    elif keeper.view.text("type") == "kubernetes.io/service-account-token":
        problem = "is a token without an expiry date; remove it, and request tokens with `kubectl create token`"
    if problem and not matches_any(f"{keeper.namespace}/{keeper.name}", settings.allowed):
        yield problem
