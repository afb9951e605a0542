"""Everything that a reviewer is told of one stack, as plain data: text, Markdown, HTML and JSON are made of it."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from gpu_tenancy.console.review.changes import Change
from gpu_tenancy.model.outlook import StackOutlook

Tone: TypeAlias = Literal["good", "notice", "bad"]


@dataclass(frozen=True, slots=True)
class RuleLine:
    """One sentence of a policy pack.

    Attributes:
        level: `mandatory` or `advisory`.
        outcome: `broken`, `exempted`, `unknown` (cannot be told before it is deployed), `mended` (by the rule's
            remedy), `mistake` (of the rule).
        place: the resource, as people name it.
        says: what is wrong and how to mend it, place included.
        link: a page about the rule.
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
class Rules:
    """What the packs said.

    Attributes:
        lines: mandatory ones first, each as the packs said it.
        held: rules that were judged and found nothing.
        packs: name and version of each.
    """

    lines: tuple[RuleLine, ...]
    held: int
    packs: tuple[str, ...]

    @property
    def mandatory(self) -> tuple[RuleLine, ...]:
        """Those by which a deployment is refused."""
        return tuple(line for line in self.lines if line.outcome == "broken" and line.level == "mandatory")

    @property
    def exempted(self) -> tuple[RuleLine, ...]:
        """Those from which a resource is exempted, with the day and the reason."""
        return tuple(line for line in self.lines if line.outcome == "exempted")

    @property
    def advice(self) -> tuple[RuleLine, ...]:
        """All others."""
        told = {*map(id, self.mandatory), *map(id, self.exempted)}
        return tuple(line for line in self.lines if id(line) not in told)


@dataclass(frozen=True, slots=True)
class Real:
    """What a preview of Pulumi's engine says, which knows the cloud and the state.

    Attributes:
        changes: what really changes.
        same: how many resources stay as they are.
    """

    changes: tuple[Change, ...]
    same: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """With what a stack is compared.

    Attributes:
        ref: a git ref, with its commit.
        before: what the stack came to there; None where it was not there, or wrong.
        notes: what a reader must know about it.
    """

    ref: str
    commit: str
    before: StackOutlook | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line for whoever reads no further.

    Attributes:
        title: `Would be refused`, `Promises exceed the hardware`, `Fine`.
        sentences: rules, guarantees, changes of GPUs and costs, what goes.
    """

    tone: Tone
    title: str
    sentences: tuple[str, ...]

    @property
    def line(self) -> str:
        """All of it in one line."""
        return f"{self.title}: {' '.join(self.sentences)}"


@dataclass(frozen=True, slots=True)
class Review:
    """One stack, reviewed.

    Attributes:
        resources: how many there will be: cloud resources, objects and releases.
        comparison: None where no base was named; then `changes` is empty.
        changes: deletes first, then by whom they concern.
        rules: None where no pack was asked.
        real: None where no preview of Pulumi's was given.
        price_note: where the prices come from.
        where: the place in its file, such as `stacks/Pulumi.prod.yaml:41`, of `team ml-research` or `pool a100`.
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
