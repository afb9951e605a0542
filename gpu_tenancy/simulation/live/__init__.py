"""Plays scenarios of jobs on a live Kueue, with the same results as the simulation has."""
