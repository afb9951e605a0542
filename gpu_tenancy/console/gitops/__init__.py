"""A stack as a tree of files that Argo CD, Flux or kubectl applies."""
