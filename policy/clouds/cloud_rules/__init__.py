"""Rules for clusters and node pools on AWS, GCP and Azure."""
