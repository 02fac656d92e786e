"""``python -m isthmus.cli``: the command line without its script."""

import sys

from isthmus.cli import main

if __name__ == "__main__":
    sys.exit(main())
