"""Cases for `cloud_rules.keeping`."""

from dataclasses import replace
from typing import Final

from policy_builders import GONE, UNKNOWN, Break, Case, Sample

from cases.clouds import AKS, AKS_POOL, EKS, GKE, GKE_POOL, GROUP, NODE_CLASS, SELF_MANAGED
from cloud_rules import keeping

WHOLE: Final = {"eks": EKS, "group": GROUP, "gke": GKE, "pool": GKE_POOL, "aks": AKS, "aks-pool": AKS_POOL}
_PROTECT: Final = "is not protected: Pulumi can delete or replace it; set the resource option protect: true"

CASES: Final = (
    Case(
        name="clusters and pools in production",
        rule=keeping.deletion_protected,
        given={**WHOLE, "self": SELF_MANAGED},
        settings={"required": True},
        also=[
            ("self", Sample(SELF_MANAGED.type, {"minSize": 1, "tags": [{"key": "Name", "value": "web"}]}, "web")),
            ("aks", Sample(AKS.type, {}, "read")),
        ],
        breaks=[
            Break("eks! protect", to=False, says=f"Cluster eks: {_PROTECT}"),
            Break("group! protect", to=False, says=f"NodeGroup group: {_PROTECT}"),
            Break("pool! protect", to=False, says=f"NodePool gke-pool: {_PROTECT}"),
            Break("aks-pool! protect", to=False, says=f"AgentPool aks-pool: {_PROTECT}"),
            Break("self! protect", to=False, says=f"Group self: {_PROTECT}"),
        ],
        unknown={"self: tags": "Group self"},
    ),
    Case(
        name="clusters and pools outside production",
        rule=keeping.deletion_protected,
        given={"eks": replace(EKS, protect=False)},
    ),
    Case(
        name="tags and labels of three clouds",
        rule=keeping.owner_tags,
        given={**WHOLE, "class": NODE_CLASS},
        also=[
            ("eks: tags", {"Owner": "a", "CostCenter": "b", "example.com/environment": "c", "other": UNKNOWN}),
            ("pool: nodeConfig.resourceLabels", {"owner": "a", "cost_center": "b", "environment": "c"}),
        ],
        breaks=[
            Break(
                "eks: tags",
                GONE,
                ("Cluster eks: missing tags or labels: owner, cost-center, environment; add them under tags"),
            ),
            Break("group: tags.owner", " ", "NodeGroup group: missing tags or labels: owner; add them under tags"),
            Break(
                "pool: nodeConfig.resourceLabels",
                {"owner": "a", "environment": "b"},
                "NodePool gke-pool: missing tags or labels: cost-center; add them under nodeConfig.resourceLabels",
            ),
            Break(
                "gke: resourceLabels.owner",
                "",
                ("Cluster gke: missing tags or labels: owner; add them under resourceLabels"),
            ),
            Break(
                "aks-pool: tags.environment",
                "",
                ("AgentPool aks-pool: missing tags or labels: environment; add them under tags"),
            ),
            Break(
                "class: spec.tags.owner",
                "",
                ("EC2NodeClass l4: missing tags or labels: owner; add them under spec.tags"),
            ),
        ],
        unknown={"eks: tags": "Cluster eks", "group: tags.owner": "NodeGroup group"},
    ),
)
