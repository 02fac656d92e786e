"""Answers in an order that no real broker can be made to give: the cluster here is a stand-in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import kafka.errors as kerrors
import pytest
from kafka.future import Future

from isthmus.kafka.loop import Loop, Signal
from isthmus.kafka.produce import Interrupted, Producer, small_batch

TOPIC = "orders"
CONCURRENT = kerrors.ConcurrentTransactionsError.errno


class Stage:
    """A cluster of two brokers, each leading the partition of its number; the test answers for them."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.modern_transactions = True
        self.site = SimpleNamespace(request_timeout=30.0)
        self.sent: list[tuple[int, Future]] = []
        self.epoch = 0
        self.asked: list[str] = []
        self.commit_bytes = 1 << 18

    def send(self, request: Any, node: int) -> Future:
        future: Future = Future()
        self.sent.append((node, future))
        return future

    def supports(self, request: Any, version: int) -> bool:
        return False

    async def ask_coordinator(self, kind: int, key: str, *_: Any, **__: Any) -> Any:
        self.epoch += 1
        self.asked.append(key)
        return SimpleNamespace(error_code=0, producer_id=7, producer_epoch=self.epoch)

    async def sent_to(self, node: int) -> Future:
        """The next request that this broker gets."""
        for _ in range(100):
            for at, (to, future) in enumerate(self.sent):
                if to == node:
                    del self.sent[at]
                    return future
            await self.loop.sleep(0.001)
        raise AssertionError(f"nothing was sent to {node}")


def answer(partition: int, error_code: int = 0) -> Any:
    one = SimpleNamespace(index=partition, error_code=error_code, base_offset=0)
    return SimpleNamespace(API_VERSION=12, responses=[SimpleNamespace(name=TOPIC, partition_responses=[one])])


def round_() -> dict[tuple[str, int], Any]:
    return {(TOPIC, number): small_batch([(b"key", b"value")]) for number in range(2)}


@pytest.fixture
def stage() -> Any:
    made = Stage()
    yield made
    made.loop.close()


def test_taking_over_takes_both_ids(stage: Any) -> None:
    async def play() -> None:
        producer = Producer(stage, SimpleNamespace(), Signal(stage.loop), ["id", "id.turn"])  # type: ignore[arg-type]
        await producer.begin()
        assert sorted(stage.asked) == ["id", "id.turn"]
        # Also when it is the other one's turn.
        producer._writers.rotate(-1)
        await producer.begin()
        assert sorted(stage.asked) == ["id", "id", "id.turn", "id.turn"]

    stage.loop.run(play)


def test_a_round_that_waits_for_its_predecessor_is_not_sent_in_the_next_transaction(stage: Any) -> None:
    leaders = SimpleNamespace(of=lambda partition: partition[1], all_have_ids=False, ids={}, names={})

    async def play() -> None:
        producer = Producer(stage, leaders, Signal(stage.loop), ["id"])  # type: ignore[arg-type]
        await producer.begin()
        producer.produce(round_())
        # One broker says "not yet", so that the round waits a moment; meanwhile the other is lost.
        first, second = await stage.sent_to(0), await stage.sent_to(1)
        first.success(answer(0, CONCURRENT))
        second.failure(kerrors.KafkaConnectionError("gone"))
        with pytest.raises(Interrupted, match="gone"):
            await producer.drain()
        await producer.begin()
        await stage.loop.sleep(0.05)
        assert stage.sent == []
        assert not producer.busy
        producer.produce(round_())
        for number in range(2):
            (await stage.sent_to(number)).success(answer(number))
        await producer.drain()
        assert sorted(one.partition for one in producer.sent) == [(TOPIC, 0), (TOPIC, 1)]

    stage.loop.run(play)


def test_progress_whose_answer_is_lost_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker may carry it out later, when the next transaction is open: only a new epoch shuts it out."""
    from isthmus.kafka.cluster import Cluster
    from isthmus.kafka.offsets import Committed

    stage = Stage()
    lost: list[Any] = []

    async def request(request: Any, *_: Any) -> Any:
        lost.append(request)
        raise kerrors.RequestTimedOutError

    async def coordinator(*_: Any) -> int:
        return 0

    monkeypatch.setattr(stage, "coordinator", coordinator, raising=False)
    monkeypatch.setattr(stage, "request", request, raising=False)
    monkeypatch.setattr(stage, "forget_coordinator", lambda *_: None, raising=False)
    cluster: Any = stage
    producer = Producer(cluster, SimpleNamespace(of=lambda p: p[1]), Signal(stage.loop), ["a"])  # type: ignore[arg-type]

    async def play() -> None:
        await producer.begin()
        monkeypatch.setattr(
            stage, "ask_coordinator", lambda *a, **k: Cluster.ask_coordinator(cluster, *a, **k), raising=False
        )
        with pytest.raises(Interrupted):
            await producer.commit("group", {(TOPIC, 0): Committed(5, "")})

    stage.loop.run(play)
    assert len(lost) == 1
    stage.loop.close()
