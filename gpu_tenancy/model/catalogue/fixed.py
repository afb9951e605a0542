"""What a created cluster costs besides its nodes: the table `fixed.yaml`."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated

from pydantic import BeforeValidator, Field

from gpu_tenancy.model.catalogue.rows import Fact, known_price, read_rows


class FixedPrice(Fact):
    """The price of a part of a cluster that is always there.

    Attributes:
        title: what it is.
        hour: US dollars per hour, without traffic; None if it is unknown.
        region: of the price.
    """

    title: str
    hour: Annotated[Annotated[float, Field(gt=0)] | None, BeforeValidator(known_price)]
    region: str


@cache
def fixed_prices() -> Mapping[str, Mapping[str, FixedPrice]]:
    """Prices by cloud and name."""
    return read_rows("fixed", dict[str, dict[str, FixedPrice]])
