"""The review of one stack as plain data, from which text, Markdown, HTML and JSON are made."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gpu_tenancy.base.usd import NONE, Usd
from gpu_tenancy.explain.proposal import Effect
from gpu_tenancy.model.outlook import StackOutlook
from gpu_tenancy.pages.tables import Tone
from gpu_tenancy.review.changes import Change


@dataclass(frozen=True, slots=True)
class RuleLine:
    """One finding of a policy pack at level `mandatory` or `advisory`; `says` is place, problem and fix.

    `outcome` is `broken` (also by an internal error of the rule, as `says` tells), `exempted`, `unknown` (until
    deployment) or `mended` (fixed by the rule's remediation); `place` is kind and name of the resource.
    """

    pack: str
    rule: str
    severity: str
    level: str
    outcome: str
    place: str
    says: str


@dataclass(frozen=True, slots=True)
class WeakerRule:
    """A rule that the base has at a higher level (`lowered`) or with other settings, which may be stricter now."""

    pack: str
    rule: str
    change: str  # `mandatory → disabled`, `mandatory → removed`, `settings changed: registries`
    lowered: bool


@dataclass(frozen=True, slots=True)
class NewExemption:
    """An exemption of a resource from a rule that the resource does not have at the base, or not with this text."""

    rule: str
    place: str
    text: str


@dataclass(frozen=True, slots=True)
class PolicyChanges:
    """Results of the base's policies for the change, compared with the change's own policies."""

    ref: str
    weaker: tuple[WeakerRule, ...] = ()  # rules that the change lowers, removes or configures differently
    unreported: tuple[RuleLine, ...] = ()  # mandatory violations by created or updated resources, in the base only
    standing: tuple[RuleLine, ...] = ()  # the same, by unchanged resources
    exemptions: tuple[NewExemption, ...] = ()
    not_compared: tuple[str, ...] = ()  # why packs could not be compared, one sentence each


@dataclass(frozen=True, slots=True)
class Rules:
    """Results of all policy packs (name and version each)."""

    lines: tuple[RuleLine, ...]  # findings, mandatory ones first
    held: int  # number of passed rules
    packs: tuple[str, ...]
    levels: Mapping[str, int]  # number of rules at `mandatory`, `remediate`, `advisory` and `disabled`
    changes: PolicyChanges | None = None  # of the policies themselves; None without a base

    @property
    def mandatory(self) -> tuple[RuleLine, ...]:
        """Mandatory violations, which block a deployment."""
        return tuple(line for line in self.lines if line.outcome == "broken" and line.level == "mandatory")

    @property
    def violated(self) -> bool:
        """Whether a mandatory rule of the change or of the base is violated."""
        return bool(self.mandatory or (self.changes and self.changes.unreported))

    @property
    def exempted(self) -> tuple[RuleLine, ...]:
        """Violations for which the resource has an exemption, with its end date and reason."""
        return tuple(line for line in self.lines if line.outcome == "exempted")

    @property
    def advice(self) -> tuple[RuleLine, ...]:
        """All other findings."""
        listed = {*map(id, self.mandatory), *map(id, self.exempted)}
        return tuple(line for line in self.lines if id(line) not in listed)


@dataclass(frozen=True, slots=True)
class Real:
    """Changes against the deployed state by `pulumi preview`, and the number of unchanged resources."""

    changes: tuple[Change, ...]
    same: int


@dataclass(frozen=True, slots=True)
class Used:
    """Cost of the GPUs that teams used in a month."""

    month: str
    teams: Mapping[str, Usd]

    def of(self, teams: Iterable[str]) -> Usd:
        """US dollars of some teams."""
        return sum((self.teams.get(team, NONE) for team in teams), NONE)


UNCOMPARED: Final = "Nothing is compared"  # start of a note


@dataclass(frozen=True, slots=True)
class Comparison:
    """The base of a comparison; `before` is its summary, None if the stack does not exist or is invalid there."""

    ref: str
    commit: str
    before: StackOutlook | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a review: `OK`, `OK, with findings`, `Review needed` or `Blocked`, with its reasons."""

    tone: Tone
    title: str
    sentences: tuple[str, ...]  # in order: access of people, policies, guarantees, deletions, changes of GPUs and costs
    blocking: int = 0  # number of the first sentences that block, which are always shown

    @property
    def line(self) -> str:
        """Title and reasons in one line."""
        return f"{self.title}: {'; '.join(self.sentences)}"


@dataclass(frozen=True, slots=True)
class Review:
    """Review of one stack."""

    stack: str
    resources: int  # number of cloud resources, Kubernetes objects and Helm releases
    now: StackOutlook  # its summary
    verdict: Verdict
    comparison: Comparison | None = None
    changes: tuple[Change, ...] = ()  # empty without a comparison
    rules: Rules | None = None  # None if no policy pack was evaluated
    real: Real | None = None  # None without a file from `pulumi preview`
    where: Mapping[str, str] = field(default_factory=dict[str, str])  # file and line of `team ml-research`, `pool a100`
    effect: Effect | None = None  # on the workloads of a running cluster; None if none was read
    used: Used | None = None  # in a month; None if none is given

    @property
    def prerequisites(self) -> tuple[str, ...]:
        """What must exist before the deployment, except what the base of the comparison needs too."""
        before = self.comparison.before if self.comparison else None
        return tuple(line for line in self.now.prerequisites if before is None or line not in before.prerequisites)
