"""`tenancy cluster doctor`: checks tools and, read-only, the cloud for the needs of a stack."""
