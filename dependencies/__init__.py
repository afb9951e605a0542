"""What `uv.lock` brings in: licenses, known vulnerabilities, and a bill of materials."""
