"""GPU tenancy: what a stack may say (`model`), the `tenancy` command (`cli`), and Pulumi's components."""
