"""The command `tenancy`."""
