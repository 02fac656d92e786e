"""Isthmus keeps event streams alive when a data centre dies."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("isthmus")
except PackageNotFoundError:  # running from a source tree that was never installed
    __version__ = "0+unknown"

__all__ = ["__version__"]
