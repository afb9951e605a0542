"""Who may do what: by the rules of a stack and of a cluster; kubeconfigs of people and robots."""
