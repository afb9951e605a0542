"""Parallel requests whose errors are collected instead of raised."""

from __future__ import annotations

from concurrent.futures import as_completed
from typing import TYPE_CHECKING, TypeVar

from gpu_tenancy.kube.errors import ApiError, WaitTimeoutError
from gpu_tenancy.kube.outcome import Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Executor

    from gpu_tenancy.kube.references import Reference

_T = TypeVar("_T")
_R = TypeVar("_R")


def in_parallel(
    pool: Executor, work: Callable[[_T], _R], items: Mapping[Reference, _T]
) -> Iterator[tuple[Reference, _R | Failure]]:
    """Does the work for every object, and yields each result when it is done.

    An error of one object becomes its `Failure`. An API server that is not reachable affects all objects and is raised.
    """
    futures = {pool.submit(work, item): reference for reference, item in items.items()}
    for future in as_completed(futures):
        reference = futures[future]
        try:
            yield reference, future.result()
        except (ApiError, WaitTimeoutError) as error:
            yield reference, Failure.of(reference, error)
