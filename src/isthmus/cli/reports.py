"""Reports as files: what is written is said by the file's name.

Invariant: a name that cannot be written is refused before the work begins that the report is about.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from isthmus.errors import UsageError


def check_reports(paths: Iterable[Path]) -> None:
    """Refuse names that do not say what to write, and directories that are not there."""
    for path in paths:
        if path.suffix not in (".html", ".json"):
            raise UsageError(f"--report {path}: the name ends in .html or .json, which says what is written")
        if not path.absolute().parent.is_dir():
            raise UsageError(f"--report {path}: there is no directory {path.absolute().parent}")


def _for_us_alone(path: str, flags: int) -> int:
    """A report may hold keys and values of records. A file that is there already stays as open as somebody has made it."""
    return os.open(path, flags, 0o600)


def write_report(path: Path, page: Callable[[], str], document: Callable[[], dict[str, Any]]) -> None:
    """Write the page or the document, whichever the name asks for."""
    html = path.suffix == ".html"
    text = page() if html else json.dumps(document(), indent=2, default=str, ensure_ascii=False) + "\n"
    try:
        with open(path, "w", encoding="utf-8", opener=_for_us_alone) as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"--report {path}: {error.strerror or error}") from None
