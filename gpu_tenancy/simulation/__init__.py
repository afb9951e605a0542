"""Jobs on the queues of a stack: everyone busy, one team alone, jobs of your own over time, or recorded ones.

The simulation of Kueue gets the queues as they will be deployed, without the GPUs that are reserved for Volcano. A
scenario of jobs can also be played on a cluster, on the real Kueue: `player.Player` is what both have in common.
"""
