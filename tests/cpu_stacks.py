"""Stacks without GPUs, and with CPU teams beside GPU teams."""

from typing import Final

from builders import Data, pool, team

# 124 CPUs and 464Gi, of which two teams have 60 CPUs and 192Gi guaranteed.
CPUS: Final[Data] = {
    "cluster": {"cloud": "existing", "provides": ["networkPolicies"]},
    "pools": {"general": pool("m7i.8xlarge", 4)},
    "cohorts": {"org": {}, "data": {"parent": "org"}},
    "teams": {
        "etl": team(
            cohort="data",
            quota={
                "general": {"cpu": {"guaranteed": 40, "limit": 80}, "memory": {"guaranteed": "128Gi", "limit": "256Gi"}}
            },
        ),
        "web": team(
            cohort="data", quota={"general": {"cpu": {"guaranteed": 20, "limit": 60}, "memory": {"guaranteed": "64Gi"}}}
        ),
    },
}

# The same with 16 H100s, of which a third team has 8.
MIXED: Final[Data] = {
    **CPUS,
    "pools": {**CPUS["pools"], "h100": pool()},
    "teams": {**CPUS["teams"], "vision": team(cohort="data", gpus={"h100": {"guaranteed": 8, "limit": 16}})},
}
