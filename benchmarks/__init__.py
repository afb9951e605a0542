"""Measurements, never tests: what they find is quoted as ratios within one run."""
