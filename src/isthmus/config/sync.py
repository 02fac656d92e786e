"""What follows the data of a link, and how often it is compared.

Invariant: each resource has a model of its own in a file of its own (``sync_*.py``); this one only gathers them.
"""

from __future__ import annotations

from isthmus.config.base import Model


class Sync(Model):
    """What follows the data: configs, ACLs, consumer groups, schemas."""
