"""Queries of a running cluster: `tenancy usage`, `fit` and `why`.

They use only the rights of the current user, so that a team lead without the repository can run them. `reading` lists
the objects; all other modules are pure functions of what it returns. Results are data; `narrative` makes their texts.
"""
