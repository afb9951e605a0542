"""Packages of `uv.lock`: licenses, and a bill of materials."""
