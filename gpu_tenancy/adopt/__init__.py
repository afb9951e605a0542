"""A stack that has the tenancy of a running cluster, read from its objects."""
