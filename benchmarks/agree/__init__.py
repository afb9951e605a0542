"""Compares the simulation of Kueue with the real Kueue: the same scenarios are played on both.

`python -m benchmarks.agree`, or `make agree`, plays them on an embedded platform of its own. It is no command of
`tenancy`, because only a change of Kueue's version or of the simulation in this repository calls for it.
"""
