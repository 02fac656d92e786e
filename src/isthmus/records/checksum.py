"""CRC-32C, in two speeds.

Invariant: both ways give the same number. Large batches go to google_crc32c, which uses the
processor's own instruction (26 GB/s) but costs a call from Python for each batch; batches below
``SMALL`` bytes are checked by eight tables inside the kernel that scans them, since a topic with one
record in each batch would otherwise spend most of its time on calls.
"""

from __future__ import annotations

from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from isthmus.records.kernels_cache import helper

#: Here a call from Python and the tables take the same time, about half a microsecond.
SMALL = 1024

_POLYNOMIAL = 0x82F63B78


def _tables() -> npt.NDArray[np.uint32]:
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        tables[0, byte] = value
    for slot in range(1, 8):
        before = tables[slot - 1]
        tables[slot] = (before >> 8) ^ tables[0][before & 0xFF]
    return tables


TABLES = _tables()


def crc32c(data: npt.NDArray[np.uint8]) -> int:
    """The checksum of a whole array, by the processor's instruction."""
    return int(google_crc32c.value(data))


@helper
def crc32c_small(data: Any, start: Any, end: Any) -> Any:
    """The checksum of ``data[start:end]``, eight bytes a step."""
    crc = np.uint32(0xFFFFFFFF)
    at = start
    while at + 8 <= end:
        low = crc ^ (
            np.uint32(data[at])
            | (np.uint32(data[at + 1]) << np.uint32(8))
            | (np.uint32(data[at + 2]) << np.uint32(16))
            | (np.uint32(data[at + 3]) << np.uint32(24))
        )
        crc = (
            TABLES[7, low & np.uint32(0xFF)]
            ^ TABLES[6, (low >> np.uint32(8)) & np.uint32(0xFF)]
            ^ TABLES[5, (low >> np.uint32(16)) & np.uint32(0xFF)]
            ^ TABLES[4, low >> np.uint32(24)]
            ^ TABLES[3, data[at + 4]]
            ^ TABLES[2, data[at + 5]]
            ^ TABLES[1, data[at + 6]]
            ^ TABLES[0, data[at + 7]]
        )
        at += 8
    while at < end:
        crc = TABLES[0, (crc ^ np.uint32(data[at])) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
        at += 1
    return np.int64(crc ^ np.uint32(0xFFFFFFFF))
