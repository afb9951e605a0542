"""Policy packs put to a preview: each a process of its own, asked by Pulumi's public analyzer protocol.

So `tenancy preview --policy` says what `pulumi preview --policy-pack` would, and packs of others can be asked as well.
"""
