"""A simulated scenario as JSON for programs."""

import json
from dataclasses import asdict
from typing import Any

from gpu_tenancy.console.whatif.narrative import Played
from gpu_tenancy.model.whatif import Moment, holdings, meaning


def as_json(played: Played) -> str:
    """Each moment with its jobs, its evictions and their reasons, and the usage of each team and flavor."""
    plain = {"moments": [_moment(played, each) for each in played.moments], "notModelled": list(played.left_out)}
    return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"


def _moment(played: Played, moment: Moment) -> dict[str, Any]:
    evicted = [asdict(each) | {"means": meaning(each.reason)} for each in moment.evicted]
    return asdict(moment) | {"evicted": evicted, "teams": [asdict(each) for each in holdings(played.tree, moment)]}
