"""Settings of rules about roles: which subjects of bindings are tenants'."""

from collections.abc import Callable, Iterator
from typing import ClassVar

from pydantic import Field

from rule_engine import Stack, UnknownValueError, UnknownValues, located_at
from workload_rules.aggregation import rules_of
from workload_rules.objects import matches_any
from workload_rules.pods import Tenants
from workload_rules.rbac import ApiObject, BoundSubject, PolicyRule, role_ref, subject_of


class Administered(Tenants):
    """Selects the subjects that are tenants'."""

    admins: list[str] = Field(
        ["Group:system:masters"],
        description=(
            "Subjects that are not tenants, as patterns of KIND:NAME: `Group:ml-platform`, `User:*@ops.example.com`,"
            " `ServiceAccount:argocd/*`. Service accounts of the namespaces in `system` and `platform` are none either."
        ),
    )

    def tenants(self, binding: ApiObject) -> Iterator[BoundSubject]:
        """The subjects of a binding that are tenants', known ones first.

        Users and groups in a RoleBinding of a system namespace are taken for the platform team's.

        Raises:
            UnknownValueError: a further subject is unknown.
        """
        unknown_values = UnknownValues()
        subjects: list[BoundSubject] = []
        for view in binding.view.items("subjects"):
            with unknown_values.collected():
                subject = subject_of(view, binding)
                if self._is_tenant(subject, binding):
                    subjects.append(subject)
        yield from subjects
        unknown_values.raise_first()

    def _is_tenant(self, subject: BoundSubject, binding: ApiObject) -> bool:
        if matches_any(subject.id, self.admins):
            return False
        if subject.everybody:
            return True
        if subject.home:
            return self.tenant(subject.home)
        return not binding.namespace or self.tenant(binding.namespace)


class Reviewed(Administered):
    """Selects the subjects that are tenants', and roles that are not evaluated."""

    renamed: ClassVar = {"elsewhere": "reviewed"}

    reviewed: list[str] = Field(
        [],
        description=(
            "ClusterRoles that are created outside this stack and that you have reviewed, as patterns of names."
            " Those that the API server creates are known."
        ),
    )

    def given(
        self, binding: ApiObject, stack: Stack, rule_name: str, matches: Callable[[PolicyRule], bool]
    ) -> list[PolicyRule]:
        """The rules that match among those that a binding gives to tenants.

        Args:
            binding: the binding.
            stack: for its role, of which the matching rules are found once for all bindings.
            rule_name: the policy rule with these settings.
            matches: whether a rule of a role matters.

        Raises:
            UnknownValueError: none is known to match, and an unknown one can; or whether a tenant has it is unknown.
        """
        key = (rule_name, role_ref(binding))
        matching, unknown_values = stack.once(key, lambda: self._matching(binding, stack, matches))
        if not (matching or unknown_values.errors) or not any(self.tenants(binding)):
            return []
        if not matching:
            unknown_values.raise_first()
        return matching

    def _matching(
        self, binding: ApiObject, stack: Stack, matches: Callable[[PolicyRule], bool]
    ) -> tuple[list[PolicyRule], UnknownValues]:
        unknown_values = UnknownValues()
        matching: list[PolicyRule] = []
        with unknown_values.collected():
            for rule in self._rules_of(binding, stack):
                with unknown_values.collected(), located_at(rule.role):
                    if matches(rule):
                        matching.append(rule)
        return matching, unknown_values

    def _rules_of(self, binding: ApiObject, stack: Stack) -> Iterator[PolicyRule]:
        try:
            yield from rules_of(binding, stack)
        except UnknownValueError:
            if not matches_any(binding.view.text("roleRef", "name"), self.reviewed):
                raise
