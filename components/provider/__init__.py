"""The components as a Pulumi plugin, for programs in every Pulumi language."""

from .plugin import serve

__all__ = ["serve"]
