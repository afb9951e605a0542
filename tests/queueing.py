"""A platform on which Kueue's manager runs, for tests of what it decides."""

from dataclasses import dataclass
from typing import Final

from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.controllers import choosing
from gpu_tenancy.embedded.definitions import fetch
from gpu_tenancy.embedded.definitions.pins import needed, read_pins
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec import Stack

QUEUES: Final = "kueue.x-k8s.io"
"""Kueue's API group."""


@dataclass(frozen=True, slots=True)
class Queueing:
    """A platform and the controllers of one stack at a time; `run` is told of which."""

    platform: Platform
    cluster: Cluster
    report: Report

    def run(self, stack: Stack) -> None:
        """Has the controllers of a stack's operators run, with its configuration; they are started again if it differs.

        Objects of the stack are not applied: neither its queues nor its guards.
        """
        rows = choosing.rows_of(Tree(stack))
        pins = needed(read_pins(), {QUEUES}, rows)
        self.platform.install(fetch(pins, self.platform.cache, self.report), self.report)
        found, unavailable = choosing.find(rows, self.platform.cache, self.report)
        assert unavailable == {}
        wanted = choosing.wanted(stack, found)
        self.platform.controllers.bring(self.cluster, wanted, self.platform.cache, self.report)
