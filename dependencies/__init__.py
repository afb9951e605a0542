"""What `uv.lock` brings in: licenses, and a bill of materials."""
