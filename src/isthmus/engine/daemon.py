"""Spark's Python daemon with our code loaded before it forks workers.

Why: a worker that starts from zero spends more than a second importing numba, the kernels and Spark's own worker. Loaded once in the
daemon, every worker of that executor has them from its first moment and shares their memory. Arrow is left out: it starts
threads, which do not survive a fork, and only users' rules need it.
"""

from __future__ import annotations

import gc

import isthmus.engine.copy
import isthmus.engine.tasks  # noqa: F401
from isthmus.rules import load_built_in


def main() -> None:
    import pyspark.worker  # noqa: F401
    from pyspark.daemon import manager

    load_built_in()
    # What is loaded stays for ever: the collector need not look at it, and so does not copy its pages in each worker.
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
