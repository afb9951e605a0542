"""Sets of places in a stack, and what is at, around or within one of them."""

from collections.abc import Iterable

from gpu_tenancy.base.problems import ANY, Path


class Places:
    """A set of places that answers in constant time: a file can have tens of thousands of invalid ones."""

    def __init__(self, places: Iterable[Path] = ()) -> None:
        self._places = set[Path]()
        self._around = set[Path]()
        """The places and all that they are in."""
        self._wild: list[Path] = []
        """Those with `ANY`."""
        self.update(places)

    def update(self, places: Iterable[Path]) -> None:
        """Adds places."""
        for place in places:
            if place in self._places:
                continue
            self._places.add(place)
            self._around.update(place[:length] for length in range(len(place) + 1))
            if ANY in place:
                self._wild.append(place)

    def touch(self, place: Path) -> bool:
        """Whether one of them is the place, contains it or is within it; `ANY` matches each key."""
        if place in self._around or any(place[:length] in self._places for length in range(len(place))):
            return True
        others = self._places if ANY in place else self._wild
        return any(_match(place, other) for other in others)


def _match(one: Path, other: Path) -> bool:
    return all(a == b or ANY in {a, b} for a, b in zip(one, other, strict=False))
