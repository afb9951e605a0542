"""A stack as manifests in a folder tree that Argo CD, Flux or kubectl applies."""
