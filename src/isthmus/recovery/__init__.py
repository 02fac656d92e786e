"""Disaster recovery: verify, failover, failback, reseed, drills."""
