"""How long to wait for others: longer on a machine that is slow or busy."""

import math
import os
from typing import Final

from gpu_tenancy.base.errors import ConsoleError

PATIENCE: Final = "GPU_TENANCY_PATIENCE"
"""Environment variable: a number from 1, by which limits of waits are multiplied; default: 1."""


def patient(seconds: float) -> float:
    """Seconds after which to give up on this machine, where `seconds` are ample on a usual one.

    Raises:
        ConsoleError: the environment variable is not such a number.
    """
    given = os.environ.get(PATIENCE) or "1"
    try:
        factor = float(given)
    except ValueError:
        factor = math.nan
    if not 1 <= factor < math.inf:
        raise ConsoleError(f"{PATIENCE} is {given!r}, not a number from 1", "set it to a number such as 3, or unset it")
    return seconds * factor
