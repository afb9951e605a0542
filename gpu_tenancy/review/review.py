"""The review of one stack as plain data, from which text, Markdown, HTML and JSON are made."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpu_tenancy.explain.proposal import Effect
from gpu_tenancy.model.outlook import StackOutlook
from gpu_tenancy.model.outlook.shares import spent
from gpu_tenancy.pages.tables import Tone
from gpu_tenancy.review.changes import Change


@dataclass(frozen=True, slots=True)
class RuleLine:
    """One finding of a policy pack.

    Attributes:
        level: `mandatory` or `advisory`.
        outcome: `broken`, `exempted`, `unknown` (until deployment), `mended` (fixed by the rule's remediation),
            `mistake` (internal error of the rule).
        place: kind and name of the resource.
        says: place, problem and fix.
        link: documentation of the rule.
    """

    pack: str
    rule: str
    severity: str
    level: str
    outcome: str
    place: str
    says: str
    link: str = ""


@dataclass(frozen=True, slots=True)
class WeakerRule:
    """A rule that the base evaluates at a higher level or with other settings.

    Attributes:
        change: `mandatory → disabled`, `mandatory → removed` or `settings changed: registries`.
        lowered: whether the level is lower or the rule is gone; else only settings differ, which may be stricter.
    """

    pack: str
    rule: str
    change: str
    lowered: bool


@dataclass(frozen=True, slots=True)
class NewExemption:
    """An exemption of a resource from a rule that the resource does not have at the base, or not with this text."""

    rule: str
    place: str
    text: str


@dataclass(frozen=True, slots=True)
class PolicyChanges:
    """What the policies at the base say about the change, compared with the change's own policies.

    Attributes:
        ref: the base.
        weaker: rules that the change lowers, removes or sets otherwise.
        unreported: mandatory violations under the base's rules that the change's rules do not report, by resources that
            the change creates or updates.
        standing: the same, by resources that are as at the base.
        exemptions: exemptions that the base does not have.
        not_compared: why packs could not be compared, one sentence each.
    """

    ref: str
    weaker: tuple[WeakerRule, ...] = ()
    unreported: tuple[RuleLine, ...] = ()
    standing: tuple[RuleLine, ...] = ()
    exemptions: tuple[NewExemption, ...] = ()
    not_compared: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rules:
    """Results of all policy packs.

    Attributes:
        lines: findings, mandatory ones first.
        held: how many rules passed.
        packs: name and version of each pack.
        levels: number of rules by level: `mandatory`, `remediate`, `advisory`, `disabled`.
        changes: what the change does to the policies themselves; None without a base.
    """

    lines: tuple[RuleLine, ...]
    held: int
    packs: tuple[str, ...]
    levels: Mapping[str, int]
    changes: PolicyChanges | None = None

    @property
    def mandatory(self) -> tuple[RuleLine, ...]:
        """Mandatory violations, which block a deployment."""
        return tuple(line for line in self.lines if line.outcome == "broken" and line.level == "mandatory")

    @property
    def violated(self) -> bool:
        """Whether a mandatory rule is violated, of the change's own policies or of the base's."""
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
    """What the GPUs that teams used in a month cost, in US dollars; None where a price is unknown."""

    month: str
    teams: Mapping[str, float | None]

    def of(self, teams: Iterable[str]) -> float | None:
        """US dollars of some teams."""
        return spent((1.0, self.teams.get(team, 0.0)) for team in teams)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The base of a comparison.

    Attributes:
        ref: a git ref.
        commit: abbreviated hash of the ref.
        before: summary of the stack at the base; None where it does not exist or is invalid there.
        notes: limits of the comparison.
    """

    ref: str
    commit: str
    before: StackOutlook | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a review, with its reasons.

    Attributes:
        title: `OK`, `OK, with findings`, `Review needed` or `Blocked`.
        sentences: reasons, the most important first: access of people, policies, guarantees, deletions, changes of GPUs
            and costs.
    """

    tone: Tone
    title: str
    sentences: tuple[str, ...]

    @property
    def line(self) -> str:
        """Title and reasons in one line."""
        return f"{self.title}: {'; '.join(self.sentences)}"


@dataclass(frozen=True, slots=True)
class Review:
    """Review of one stack.

    Attributes:
        resources: number of cloud resources, Kubernetes objects and Helm releases.
        now: summary of the stack.
        comparison: None without a base; then `changes` is empty.
        changes: deletions first, then by group.
        rules: None where no policy pack was evaluated.
        real: None without a file from `pulumi preview`.
        price_note: source of the prices.
        effect: on the workloads of a running cluster; None where none was read.
        used: in a month; None where none is given.
        where: file and line, such as `stacks/Pulumi.prod.yaml:41`, of `team ml-research` or `pool a100`.
    """

    stack: str
    resources: int
    now: StackOutlook
    comparison: Comparison | None
    changes: tuple[Change, ...]
    rules: Rules | None
    real: Real | None
    price_note: str
    where: dict[str, str]
    verdict: Verdict
    effect: Effect | None = None
    used: Used | None = None
