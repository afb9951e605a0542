"""How teams share quota: between queues by what they borrow, and within a queue by what teams used before."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from gpu_tenancy.model.spec.base import MOST_OBJECTS, Seconds, Section, refuse

Strategy = Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
_FINAL: Final = "LessThanOrEqualToFinalShare"
_INITIAL: Final = "LessThanInitialShare"
_STRATEGIES: Final = ([_FINAL], [_INITIAL], [_FINAL, _INITIAL])
"""What Kueue accepts: `validStrategySets` in
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/config/validation.go"""


class Usage(Section):
    """Usage over time of teams that share a queue: workloads of the team that used less are admitted first.

    This is Kueue's AdmissionFairSharing: https://kueue.sigs.k8s.io/docs/concepts/admission_fair_sharing/. A team shares
    the queue of another one with `queue`. Usage decides before priorities do. Nothing is preempted because of it, but
    among workloads that are preempted anyway, those of the team that used more are first.
    """

    half_life: Seconds
    """Time after which past usage counts half, such as `7d`."""
    sampling: Seconds = 300.0
    """Interval in which Kueue measures usage; default: 5m."""
    weights: dict[str, Annotated[float, Field(ge=0, le=MOST_OBJECTS)]] = {}
    """Weight of one unit of a resource (a GPU, a CPU, a byte of memory) in a team's usage; default: 1 for a GPU, its
    part of a GPU for a partition or time slice, and 0 for CPU and memory; without GPUs, 1 for a CPU."""

    @model_validator(mode="after")
    def _measurable(self) -> Self:
        if not self.half_life:
            raise refuse("halfLife is 0, so past usage would never count", "set a duration such as 7d")
        if not self.sampling:
            raise refuse("sampling is 0, which Kueue rejects", "set a duration such as 5m, or remove it")
        if self.sampling > self.half_life:
            raise refuse("sampling is longer than halfLife, so usage would be forgotten between samples", "lower it")
        return self


class Fairness(Section):
    """How teams share: `hierarchical` or `even` between queues, and by usage over time within a queue."""

    kind: Literal["hierarchical", "even"] = "hierarchical"
    """`hierarchical`: cohorts' limits are enforced, and a cohort within its own quota reclaims before its neighbours.
    `even`: Kueue's fair sharing by team weight, whatever the cohort; a cohort's limit is enforced, and it then shares
    as one."""
    strategies: list[Strategy] | None = None
    """Preemption by share, with `even`: how the shares of two queues must compare so that one preempts the other, in
    the order in which Kueue tries them; default: `[LessThanOrEqualToFinalShare, LessThanInitialShare]`."""
    usage: Usage | None = None
    """Usage over time, for teams that share a queue; default: priority and time of submission decide."""

    @model_validator(mode="after")
    def _accepted(self) -> Self:
        if self.strategies is not None and self.kind != "even":
            raise refuse("sets strategies without kind: even, which they belong to", "set kind: even, or remove them")
        if self.strategies is not None and self.strategies not in _STRATEGIES:
            raise refuse(
                f"strategies are [{', '.join(self.strategies)}], which Kueue rejects",
                f"set [{_FINAL}, {_INITIAL}], or one of them",
            )
        return self

    @property
    def even(self) -> bool:
        """Whether Kueue's fair sharing is on."""
        return self.kind == "even"

    @property
    def preemption_strategies(self) -> tuple[Strategy, ...]:
        """Kueue's own choice unless the stack has one; none without fair sharing."""
        return tuple(self.strategies or (_FINAL, _INITIAL)) if self.even else ()
