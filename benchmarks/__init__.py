"""Measurements, never tests: quote their results as ratios within one run."""
