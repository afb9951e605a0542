"""Holds of teams, flavors and pools of a running cluster for maintenance."""
