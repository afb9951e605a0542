"""Custom resource definitions of the operators: pinned, fetched when a stack needs them, installed on the platform."""
