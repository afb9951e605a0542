"""The table of inputs that replace cloud resources, compared with the schema of a provider."""

import json
from typing import Any, Final

from originals import original

from gpu_tenancy.review.replacements import CloudType, cloud_types, differences, replacing

POOL: Final = "gcp:container/nodePool:NodePool"
CONFIG: Final = "gcp:container/NodePoolNodeConfig:NodePoolNodeConfig"
PACKAGE: Final[dict[str, Any]] = {
    "name": "gcp",
    "resources": {
        POOL: {
            "inputProperties": {
                "name": {"type": "string", "willReplaceOnChanges": True},
                "nodeCount": {"type": "integer"},
                "nodeConfig": {"$ref": f"#/types/{CONFIG}"},
                "disks": {"type": "array", "items": {"$ref": f"#/types/{CONFIG}"}},
            }
        }
    },
    "types": {
        CONFIG: {
            "properties": {
                "spot": {"type": "boolean", "willReplaceOnChanges": True},
                "labels": {"type": "object"},
                "again": {"$ref": f"#/types/{CONFIG}"},
            }
        }
    },
}


def test_inputs_that_replace_are_read_at_every_depth() -> None:
    assert replacing(PACKAGE, POOL) == {"name", "nodeConfig.spot", "disks.spot"}


def test_what_is_missing_and_what_is_too_much_is_named() -> None:
    exact = CloudType(replaces=("name", "nodeConfig.spot", "disks.*"))
    assert list(differences(PACKAGE, {POOL: exact, "aws:eks/cluster:Cluster": CloudType()})) == []
    off = CloudType(replaces=("name", "nodeConfig.spot", "nodeCount"))
    assert list(differences(PACKAGE, {POOL: off})) == [
        f"{POOL}: disks.spot replaces it; add it",
        f"{POOL}: nodeCount is not marked in the schema; remove it, or say why it is there",
    ]
    assert list(differences(PACKAGE, {"gcp:kms/keyRing:KeyRing": exact})) == [
        "gcp:kms/keyRing:KeyRing: not in the schema"
    ]


def test_the_table_has_what_the_schema_of_google_marks() -> None:
    package = json.loads(original("schemas/gcp.json").read_text(encoding="utf-8"))
    assert [line for line in differences(package, cloud_types()) if line.endswith("add it")] == []
