"""The plugin that Pulumi starts for programs in other languages."""

from components.provider.plugin import serve

serve()
