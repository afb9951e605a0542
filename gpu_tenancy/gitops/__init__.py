"""A stack as manifests in folders; which stacks a change affects; one comment for all of them."""
