"""`tenancy demo`: a story of jobs, event by event, with a table after each step."""
