"""GPU tenancy: what a stack may say (`model`), the `tenancy` command (`console`), and Pulumi's components."""
