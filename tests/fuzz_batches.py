"""Damages valid batches at random and feeds them to the transcoder.

    python tests/fuzz_batches.py --count 1000000 --seed 1 [--checked]

Invariant: whatever the bytes, ``feed`` returns; no exception, crash or hang; what it returns keeps its
promises, and a sample of it is read by readers that are not ours. The work is done in a child process, in
blocks whose random choices depend on the seed and the block alone, so a crash names the block to repeat
(``--first-block B --count 1000``). ``--checked`` compiles the kernels with bounds checks.
"""

from __future__ import annotations

import argparse
import os
import random
import select
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "unit" / "records"))

BLOCK = 1000
BLOCK_SECONDS = 120  # a block takes about a quarter of a second; more than this is a hang


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--count", type=int, default=100_000, help="damaged batches")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--first-block", type=int, default=0)
    options.add_argument("--checked", action="store_true", help="compile with bounds checks (slower)")
    options.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    blocks = range(chosen.first_block, chosen.first_block + -(-chosen.count // BLOCK))
    return fuzz(chosen.seed, blocks) if chosen.child else supervise(chosen, blocks)


def supervise(chosen: argparse.Namespace, blocks: range) -> int:
    """Run the blocks in a child, and watch it."""
    command = [sys.executable, __file__, "--child", "--seed", str(chosen.seed), "--count", str(chosen.count)]
    command += ["--first-block", str(chosen.first_block)]
    environment = dict(os.environ)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as cache:
        if chosen.checked:
            environment |= {"NUMBA_BOUNDSCHECK": "1", "ISTHMUS_CACHE": cache}
        child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
        assert child.stdout is not None
        block, words = blocks.start, b""
        while True:
            ready, _, _ = select.select([child.stdout], [], [], BLOCK_SECONDS)
            if not ready:
                child.kill()
                child.wait()
                print(f"HANG: seed {chosen.seed}, block {block}")
                return 1
            more = os.read(child.stdout.fileno(), 1 << 16)
            if not more:
                break
            words += more
            block = blocks.start + words.count(b"block\n")
            if sys.stdout.isatty():
                print(f"\r{(block - blocks.start) * BLOCK:,} damaged batches", end="\r", flush=True)
        status = child.wait()
    summary = words.replace(b"block\n", b"").decode().strip()
    if status:
        how = f"signal {-status}" if status < 0 else f"status {status}"
        print(f"{summary}\nFAILED: the child ended with {how}; seed {chosen.seed}, block {block}")
        return 1
    seconds = time.monotonic() - started
    print(f"{summary}\n{len(blocks) * BLOCK:,} damaged batches, seed {chosen.seed}: {seconds:.0f} s")
    return 0


def fuzz(seed: int, blocks: range) -> int:
    """The child: damage, feed, check."""

    from isthmus.errors import CorruptBatch, OldFormat, RecordTooLarge
    from isthmus.records import Transcoder, stamp
    from isthmus.rules.offset_header import OffsetHeader

    header = (OffsetHeader("isthmus-offset"),)
    transcoders = [
        Transcoder(rules, compression, on_corrupt)
        for rules in ((), header)
        for compression in ("keep", "none", "lz4", "zstd")
        for on_corrupt in ("stop", "skip")
    ]
    corpus = make_corpus()
    outcomes = {"copied whole": 0, "fault": 0, "skipped": 0, "read back": 0}
    for block in blocks:
        chance = random.Random(f"{seed}/{block}")
        for _ in range(BLOCK):
            data, position = damaged_log(chance, corpus)
            transcoder = chance.choice(transcoders)
            max_bytes = chance.choice((1_048_588, 2000, 300))
            aborted = [(chance.randrange(4), chance.randrange(40))] if chance.random() < 0.2 else []
            copied = transcoder.feed(
                data, topic="t", partition=0, position=position, aborted=aborted, max_bytes=max_bytes
            )
            assert copied.fault is None or isinstance(copied.fault, (CorruptBatch, OldFormat, RecordTooLarge))
            assert copied.next_offset >= position
            assert copied.records == sum(batch.count for batch in copied.batches)
            before = position - 1
            for batch in copied.batches:
                assert len(batch.payload) <= max_bytes
                assert int(batch.runs[:, 1].sum()) == batch.count > 0
                for first, length in batch.runs.tolist():
                    assert first > before
                    before = first + length - 1
                assert before < batch.next_offset <= copied.next_offset
                if chance.random() < 0.02:
                    # Of a batch that passed unopened only the checksum was looked at, so only ours that
                    # were written by us have to be readable.
                    stamp(batch.payload, 1, 2, 3, True)
                    if opened(batch.payload.tobytes(), data):
                        read_back(batch.payload.tobytes(), batch.count)
                        outcomes["read back"] += 1
            outcomes["fault"] += copied.fault is not None
            outcomes["skipped"] += copied.skipped
            outcomes["copied whole"] += copied.fault is None and not copied.skipped
        print("block", flush=True)
    print(", ".join(f"{name}: {number:,}" for name, number in outcomes.items()), flush=True)
    return 0


def read_back(payload: bytes, count: int) -> None:
    """Readers that are not ours agree on what was written."""
    from batch_tools import read_aiokafka, read_kafka_python, read_plain

    records = read_plain(payload)
    assert len(records) == count
    try:
        for record in records:
            for key, _ in record.headers:
                key.decode()
    except UnicodeDecodeError:
        return  # the two clients want text as a header's key; Kafka does not
    assert read_kafka_python(payload) == read_aiokafka(payload) == records


def opened(payload: bytes, data: bytes) -> bool:
    return payload[61:] not in data


Corpus = list[tuple[int, bytes, bytes]]  # codec, header, records region before compression


def make_corpus() -> Corpus:
    """Valid batches of each kind, as seeds."""
    from batch_tools import Rec, decompress, make, marker

    chance = random.Random(99)
    text = [b"h%d" % i for i in range(3)]
    batches = []
    for codec in range(5):
        for count, size in ((1, 0), (1, 20), (5, 30), (40, 15), (3, 900)):
            records = [
                Rec(
                    offset,
                    1_700_000_000_000 + chance.randrange(-50, 5000),
                    chance.choice([None, b"", b"key%d" % offset]),
                    chance.choice([None, b"", chance.randbytes(size), b"v" * size]),
                    tuple((chance.choice(text), chance.choice([None, b"", b"x"])) for _ in range(chance.randrange(3))),
                )
                for offset in range(count)
            ]
            batches.append(make(records, codec=codec))
            batches.append(make(records, codec=codec, attributes=0x10, producer=(count % 4, 0, 0)))
            batches.append(make(records, codec=codec, last_offset=count + 3, log_append_time=77))
    batches += [marker(0, 1, commit=False), marker(0, 2, commit=True)]
    return [(batch[22] & 7, batch[:61], decompress(batch[22] & 7, batch[61:])) for batch in batches]


def damaged_log(chance: random.Random, corpus: Corpus) -> tuple[bytes, int]:
    """Up to three batches, one of them damaged, and a position."""
    from batch_tools import COMPRESS, reseal

    pieces = []
    offset = chance.choice((0, 0, 5, 1 << 40))
    position = max(0, offset + chance.choice((0, 0, 0, 2, -3)))
    length = chance.randint(1, 3)
    victim = chance.randrange(length)
    for place in range(length):
        codec, head, region = chance.choice(corpus)
        head = struct.pack(">q", offset) + head[8:]
        offset += struct.unpack_from(">i", head, 23)[0] + 1
        if place != victim:
            pieces.append(reseal(sized(head, COMPRESS[codec](region))))
            continue
        where = chance.random()
        if where < 0.45:  # under the codec, where the kernels look
            body = COMPRESS[codec](damage(chance, region))
        elif where < 0.75:  # the compressed bytes
            body = damage(chance, COMPRESS[codec](region))
        else:  # the batch's fields
            body, head = COMPRESS[codec](region), damage(chance, head, keep_size=True)
        batch = sized(head, body) if chance.random() < 0.8 else head + body
        pieces.append(reseal(batch) if chance.random() < 0.5 and len(batch) > 21 else batch)
    data = b"".join(pieces)
    if chance.random() < 0.1:
        data = data[: chance.randrange(len(data) + 1)]
    return data, position


def sized(head: bytes, body: bytes) -> bytes:
    """A batch whose length is right."""
    return head[:8] + struct.pack(">i", len(head) + len(body) - 12) + head[12:] + body


INTERESTING = (0, 1, 2, 0x3F, 0x40, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF)


def damage(chance: random.Random, data: bytes, keep_size: bool = False) -> bytes:
    """One to four random changes."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        if not changed:
            changed += b"\0"
        at = chance.randrange(len(changed))
        kind = chance.randrange(4 if keep_size else 8)
        if kind == 0:
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            changed[at] = chance.choice(INTERESTING)
        elif kind == 2:
            changed[at] = chance.randrange(256)
        elif kind == 3:
            end = min(len(changed), at + chance.choice((2, 4, 8)))
            changed[at:end] = bytes([chance.choice((0, 0x7F, 0x80, 0xFF))]) * (end - at)
        elif kind == 4:
            del changed[at : at + chance.choice((1, 1, 2, 10))]
        elif kind == 5:
            changed[at:at] = chance.randbytes(chance.choice((1, 1, 2, 10)))
        elif kind == 6:
            del changed[at:]
        else:
            other = chance.randrange(len(changed))
            changed[at : at + 8] = changed[other : other + 8]
    return bytes(changed)


if __name__ == "__main__":
    sys.exit(main())
