"""Spark's Python daemon with our code loaded before it forks workers.

Why: a worker that starts from zero spends about a second importing numba, pyarrow and the kernels. Loaded once in the
daemon, every worker of that executor has them from its first moment and shares their memory.
"""

from __future__ import annotations

import isthmus.engine.copy  # noqa: F401
from isthmus.records.warm import warm


def main() -> None:
    from pyspark.daemon import manager

    warm()
    manager()


if __name__ == "__main__":
    main()
