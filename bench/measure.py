"""One measurement: a system, a payload, and what it took."""

from __future__ import annotations

import time
from typing import Any

import confluent_kafka as ck

from bench.load import QUIET, Counter, Ticker, create, delete_all
from bench.meter import Meter, cpu_seconds
from bench.systems import System, Task, stop
from isthmus.sandbox import KafkaSite

PARTITIONS = 6
# Brokers compile what they do often: the first seconds of any system are slower.
WARM_SECONDS = 8.0


def _broker_cpu(*sites: KafkaSite) -> float:
    return cpu_seconds([broker.pid for site in sites for broker in site.brokers])


def throughput(
    system: System,
    task: Task,
    count: int,
    size: int,
    timeout: float = 300.0,
    partitions: int = PARTITIONS,
    watch: list[tuple[float, float]] | None = None,
) -> dict[str, Any]:
    """Copy a backlog of ``count`` records; the clock runs from the first record at the destination to the last.

    Destination offsets count transaction markers too, so completion is "at least ``count``, and still for a second";
    the moment of the last change ends the clock.
    """
    delete_all(task.west.bootstrap)
    create(task.west.bootstrap, task.topic, partitions, {"max.message.bytes": "10000000", "retention.ms": "-1"})
    counter = Counter(task.west.bootstrap, task.topic, partitions)
    brokers = _broker_cpu(task.east, task.west)
    began = time.monotonic()
    process = system.start(task)
    meter = Meter(process.pid)
    first = last = first_cpu = 0.0
    seen = at_first = 0
    last_cpu = 0.0
    try:
        while True:
            now = time.monotonic()
            total = sum(counter.ends())
            if total > seen:
                if not first:
                    first, first_cpu, at_first = now, meter.now(), total
                seen, last = total, now
                if total >= count:
                    last_cpu = meter.now()
            if watch is not None and first and now > (watch[-1][0] if watch else 0.0) + 1.0:
                watch.append((now, meter.pss / 2**20))
            if seen >= count and now - last > 1.0:
                break
            if now - began > timeout or process.poll() is not None:
                raise RuntimeError(
                    f"{system.name} copied {seen} of {count} records in {now - began:.0f} s; see its log"
                )
            time.sleep(0.02 if not first else 0.05)
    finally:
        meter.stop()
        stop(process)
        counter.close()
    seconds = max(1e-3, last - first)
    copied = max(1, count - at_first)
    if copied < count // 10:
        # Nearly all of it was there at the first look: too few records to say how fast.
        copied, seconds, first_cpu = count, float("nan"), last_cpu
    return {
        "system": system.name,
        "delivery": system.delivery,
        "payload_bytes": size,
        "compression": task.compression,
        "records": count,
        "records_per_s": copied / seconds,
        "mb_per_s": copied * size / seconds / 1e6,
        "cpu_us_per_record": (last_cpu - first_cpu) / copied * 1e6,
        "cpu_us_per_record_with_start": last_cpu / count * 1e6,
        "brokers_cpu_us_per_record": (_broker_cpu(task.east, task.west) - brokers) / count * 1e6,
        "peak_rss_mib": meter.peak_rss / 2**20,
        "peak_pss_mib": meter.peak_pss / 2**20,
        "start_to_first_s": first - began,
        "seconds": seconds,
    }


def latency(system: System, task: Task, seconds: float, size: int, rate: int = 1000) -> dict[str, Any]:
    """From append at the source to visibility at the destination, at a steady rate, after a warm-up."""
    delete_all(task.west.bootstrap)
    delete_all(task.east.bootstrap)
    create(task.east.bootstrap, task.topic, PARTITIONS)
    create(task.west.bootstrap, task.topic, PARTITIONS)
    ticker = Ticker(task.east.bootstrap, task.topic, PARTITIONS, rate, size)
    consumer = ck.Consumer(
        {
            "bootstrap.servers": task.west.bootstrap,
            "group.id": "bench-latency",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            **QUIET,
        }
    )
    consumer.assign([ck.TopicPartition(task.topic, p, 0) for p in range(PARTITIONS)])
    ticker.start()
    process = system.start(task)
    meter = Meter(process.pid)
    took: list[float] = []
    warm = 0.0
    cpu = 0.0
    try:
        began = time.monotonic()
        while True:
            # One at a time: whoever asks for many is made to wait for them.
            message = consumer.poll(0.05)
            clock = time.monotonic()
            age = None
            if message is not None and not message.error():
                age = (time.time_ns() - int.from_bytes(message.value()[:8], "big")) / 1e6
            # Warm: what arrives is younger than a second, and so many more seconds have passed.
            if not warm and age is not None and age < 1000:
                warm, cpu = clock + WARM_SECONDS, meter.now()
            if warm and clock > warm:
                if age is not None:
                    took.append(age)
                if clock > warm + seconds:
                    break
            if clock - began > seconds + 90:
                raise RuntimeError(f"{system.name} did not keep up; see its log")
        used = meter.now() - cpu
    finally:
        ticker.stop()
        meter.stop()
        stop(process)
        consumer.close()
    took.sort()
    return {
        "p50": took[len(took) // 2],
        "p99": took[int(len(took) * 0.99)],
        "max": took[-1],
        "records": len(took),
        "cores": used / (seconds + WARM_SECONDS),
    }
