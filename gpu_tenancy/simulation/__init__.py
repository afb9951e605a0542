"""Scenarios of a stack, and their players: in the simulation of Kueue, and on a real one."""
