"""Clients of the clouds' APIs, with the login of each cloud's own command-line program."""
