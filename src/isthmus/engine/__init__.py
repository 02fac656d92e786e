"""The engine: leases on log ranges, scheduled by Spark; each task copies its ranges exactly once.

Only ``session.py`` imports pyspark, so that the rest (the map, the state, the copy itself) can
be used without it.
"""
