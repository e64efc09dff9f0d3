"""Users, grants and quotas of a cluster with security on."""
