"""A stack as manifests in folders; stacks that a change affects; one comment for all of them."""
