"""Runs policy packs in a preview: each in its own process, through Pulumi's public analyzer protocol.

`tenancy preview --policy` therefore reports what `pulumi preview --policy-pack` would, and supports packs of others.
"""
