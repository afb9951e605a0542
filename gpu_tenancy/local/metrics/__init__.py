"""`tenancy local metrics`: what a Prometheus of a real cluster would collect, of the embedded platform."""
