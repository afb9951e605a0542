"""`tenancy local up`: a stack deployed to the embedded platform, its guarantees checked, summary and report."""
