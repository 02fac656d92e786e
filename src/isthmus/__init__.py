"""Isthmus keeps event streams alive when a data centre dies."""

# Here and not asked of the installed package: that costs each start a twentieth of a second. pyproject.toml reads it.
__version__ = "0.1.0"

__all__ = ["__version__"]
