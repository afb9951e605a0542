"""The commands of `tenancy`, by what they are about."""
