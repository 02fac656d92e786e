"""isthmus.yaml -> typed models; every mistake reported at once, with its place in the file.

Invariant: this is the lowest room of the house: it knows files and the environment, and no broker. The
public names are re-exported here once.
"""

from isthmus.config.config import Config
from isthmus.config.link import Headers, Link, StartOffsets, StartTimestamp
from isthmus.config.loader import load, loads, place
from isthmus.config.mistakes import Mistake, config_error, render
from isthmus.config.names import is_internal
from isthmus.config.paths import LocalFile
from isthmus.config.registry import Registry
from isthmus.config.schema import json_schema
from isthmus.config.secret import Secret
from isthmus.config.site import Sasl, Site
from isthmus.config.tls import Tls
from isthmus.config.topics import Topics

__all__ = [
    "Config",
    "Headers",
    "Link",
    "LocalFile",
    "Mistake",
    "Registry",
    "Sasl",
    "Secret",
    "Site",
    "StartOffsets",
    "StartTimestamp",
    "Tls",
    "Topics",
    "config_error",
    "is_internal",
    "json_schema",
    "load",
    "loads",
    "place",
    "render",
]
