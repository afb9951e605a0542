"""`tenancy demo`: a scenario of jobs, event by event, with a table after each step."""
