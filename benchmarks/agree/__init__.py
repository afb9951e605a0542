"""Compares the simulation of Kueue with the real Kueue: the same scenarios are played on both.

`python -m benchmarks.agree`, or `make agree`, plays them on an embedded platform of its own. It is not a command of
`tenancy`: only a new Kueue version or a change of the simulation needs it.
"""
