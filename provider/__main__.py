"""The plugin that Pulumi starts for programs in other languages."""

from components.provider import serve

serve()
