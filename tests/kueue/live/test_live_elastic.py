"""The elastic table as members play it: Deployments whose pods wait in the queue, and are not refused by a quota."""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from queueing import Queueing
from repository import ROOT
from researchers import researching

from gpu_tenancy.base.json import at, text_at
from gpu_tenancy.cluster.reading import read
from gpu_tenancy.jobs.listing import KINDS, listing
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.source import read_file

pytestmark = pytest.mark.platform
HOME: Final = "namespace1"
SERVER: Final = yaml.safe_load("""
apiVersion: apps/v1
kind: Deployment
metadata: {name: elastic, namespace: namespace1}
spec:
  replicas: 8
  selector: {matchLabels: {app: elastic}}
  template:
    metadata: {labels: {app: elastic}}
    spec:
      containers:
        - {name: work, image: "registry.example.com/ml/serve:1.4.0", resources: {limits: {cpu: 5, memory: 20Gi}}}
""")


def test_replicas_beyond_the_limit_of_the_team_are_pending_in_the_queue_and_not_refused(
    queueing: Queueing, tmp_path: Path
) -> None:
    found: Any = dict(read_file(ROOT / "stacks" / "Pulumi.example-elastic.yaml").sections)
    found |= {"cluster": {**found["cluster"], "version": "1.36"}, "guards": "deny"}
    with researching(queueing, tmp_path, found, HOME) as member:
        made = member.own.create(SERVER)
        try:

            def stand() -> bool:
                pods = member.own.list("v1", "Pod", namespace=HOME)
                return (len(pods), sum(bool(at(pod, "spec", "nodeName")) for pod in pods)) == (8, 4)

            member.cluster.wait_for(lambda: stand() or None, timeout=60, what="4 running pods of 8")
            jobs = listing(read(member.own, KINDS, HOME), HOME).jobs
            assert [job.stands for job in jobs] == ["admitted"] * 4 + [f"pending, place {n}" for n in (1, 2, 3, 4)]
            events = member.own.list("v1", "Event", namespace=HOME)
            assert [event for event in events if text_at(event, "reason") == "FailedCreate"] == []
        finally:
            member.cluster.delete(Reference.of(made))
            member.cluster.wait_for(
                lambda: not member.cluster.list("v1", "Pod", namespace=HOME) or None, what="the end of its pods"
            )
