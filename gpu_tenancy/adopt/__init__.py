"""Drafts a stack from the tenancy of a running cluster."""
