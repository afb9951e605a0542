"""Claims that Fluid creates once the cache of their dataset is ready."""

from gpu_tenancy.base.json import maps_at, text_at
from gpu_tenancy.inspect import narrative
from gpu_tenancy.inspect.pods import called
from gpu_tenancy.inspect.reading import State

_REFERENCE = "dataset://"


def waits_for_cache(state: State, namespace: str, claim: str) -> str:
    """Why a claim that is missing or not bound waits for a cache; empty if no Dataset of Fluid has its name.

    A Dataset has the name of its claim: https://github.com/fluid-cloudnative/fluid/tree/v1.0.8/pkg/utils/dataset/volume.
    """
    for dataset in state.of("Dataset", namespace):
        if called(dataset) == claim:
            mounts = [text_at(mount, "mountPoint") for mount in maps_at(dataset, "spec", "mounts")]
            source = next((mount.removeprefix(_REFERENCE) for mount in mounts if mount.startswith(_REFERENCE)), "")
            cache = "/".join(source.split("/")[:2]) or f"{namespace}/{claim}"
            return narrative.claim_of_cache(claim, cache, text_at(dataset, "status", "phase"))
    return ""
