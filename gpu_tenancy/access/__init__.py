"""Access of people, kubeconfigs and logins."""
