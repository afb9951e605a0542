"""Names that no team can have, on any cluster."""

import pytest
from builders import errors, stack, team


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("kueue-system", "operator kueue"),
        ("volcano-system", "operator volcano"),
        ("monitoring", "operator kube-prometheus-stack"),
        ("gpu-operator", "operator gpu-operator"),
        ("cert-manager", "operator cert-manager"),
        ("kube-anything", "Kubernetes"),
        ("default", "Kubernetes"),
        ("gmp-system", "Google Cloud Managed Service for Prometheus"),
        ("gke-managed-volumepopulator", "GKE"),
        ("amazon-cloudwatch", "EKS CloudWatch Observability"),
        ("aks-istio-ingress", "AKS Istio"),
        ("argocd", "Argo CD"),
    ],
)
def test_a_team_in_a_namespace_of_the_cluster_is_refused_on_an_existing_cluster(name: str, owner: str) -> None:
    assert errors(stack(teams={name: team()})) == [
        f"teams.{name}: {name} is a reserved namespace of {owner}; rename the team"
    ]


@pytest.mark.parametrize(
    "name", ["recommender-system", "gke-research", "monitoring-ml", "gpu-operators", "azure-ml", "kueue", "kubeflow"]
)
def test_a_team_with_a_similar_name_is_allowed(name: str) -> None:
    assert errors(stack(teams={name: team()})) == []


def test_a_team_in_the_namespace_of_the_stacks_own_prometheus_is_refused() -> None:
    metrics = {"histogram": "latency_seconds", "prometheus": {"namespace": "observing"}}
    [problem] = errors(stack(teams={"observing": team()}, metrics=metrics))
    assert problem == (
        "teams.observing: observing is a reserved namespace of Prometheus (metrics.prometheus.namespace);"
        " rename the team"
    )
