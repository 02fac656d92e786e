"""Zigzag varints in plain Python, for the few constant bytes that a rule prepares once.

Invariant: gives the bytes that ``records.wire.write_varint`` gives.
"""

from __future__ import annotations


def encode_number(value: int) -> bytes:
    """``value`` as record batches have it."""
    bits = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while bits >= 0x80:
        encoded.append(bits & 0x7F | 0x80)
        bits >>= 7
    encoded.append(bits)
    return bytes(encoded)
