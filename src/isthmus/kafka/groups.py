"""Consumer groups on the wire: which there are, what they have committed, and committing for groups without members.

Invariants:
- an answer is about one group, and so is an error: a group that cannot be had is a value beside the others;
- many groups cost few requests: coordinators are asked for in bulk, offsets of many groups are one OffsetFetch, and
  commits (one group each, the protocol has no more) are on their way side by side;
- a commit goes out without a member, which a coordinator takes only while the group has none, whichever protocol
  its members would speak: the broker itself keeps us from writing under a consumer's feet.

ListGroups tells state and type of classic and of KIP-848 groups alike, so nobody has to be described. Brokers before Kafka 2.6 list no states: of those
each group is described. A state that nobody tells is empty (``""``), and is no word about members.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import kafka.errors as kerrors
from kafka.protocol.admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest

from isthmus.kafka.cluster import FIRST_BACKOFF, GROUP, LAST_BACKOFF, TOO_LARGE, Cluster
from isthmus.kafka.offsets import Committed, Partition, halves, offset_commit, pieces

# Names in one FindCoordinator, groups in one OffsetFetch: an answer of some 100 KB, which a broker makes in milliseconds.
GROUPS_A_REQUEST = 200
# Requests on their way to all brokers together; a broker works on one of a connection at a time.
IN_FLIGHT = 64

Error = type[Exception]
Offsets = dict[Partition, Committed]
# The coordinator's word for "it has members, and you are none of them".
HAS_MEMBERS = (kerrors.UnknownMemberIdError, kerrors.IllegalGenerationError, kerrors.RebalanceInProgressError)

Answer = TypeVar("Answer")


@dataclass(slots=True, frozen=True)
class Group:
    """A group as its coordinator lists it. ``kind`` is ``classic``, ``consumer`` (KIP-848), ``share`` or ``streams``."""

    name: str
    state: str
    kind: str
    protocol: str

    @property
    def empty(self) -> bool:
        return self.state == "Empty"


async def list_groups(cluster: Cluster, timeout: float = 30.0) -> dict[str, Group]:
    """Every group that we may see. A broker lists the groups that it coordinates, so all are asked."""
    deadline, backoff = time.monotonic() + timeout, FIRST_BACKOFF
    found: dict[str, Group] = {}
    asked: set[int] = set()
    while True:
        try:
            # A broker that is gone has handed its groups on: who is there is asked anew each time.
            left = sorted(set((await cluster.metadata([])).brokers) - asked)
            sent = [(n, cluster.send(ListGroupsRequest(states_filter=[], types_filter=[]), n)) for n in left]
            for node, future in sent:
                response = await future
                if response.error_code:
                    raise cluster.refused(response, response.error_code, f"broker {node}")
                untold = [g.group_id for g in response.groups if not getattr(g, "group_state", "")]
                states = await _described(cluster, node, untold)
                for g in response.groups:
                    kind = (getattr(g, "group_type", "") or "classic").lower()
                    state = getattr(g, "group_state", "") or states.get(g.group_id, "")
                    found[g.group_id] = Group(g.group_id, state, kind, g.protocol_type or "")
                asked.add(node)
            return found
        except (kerrors.RetriableError, kerrors.UnknownBrokerIdError):
            if time.monotonic() > deadline:
                raise
            await cluster.loop.sleep(backoff)
            backoff = min(LAST_BACKOFF, backoff * 1.6)


async def _described(cluster: Cluster, node: int, groups: list[str]) -> dict[str, str]:
    """The state of each of these groups, of which this broker is the coordinator; those that it does not tell are left out."""
    states: dict[str, str] = {}
    if not cluster.supports(DescribeGroupsRequest, 0):
        return states
    for at in range(0, len(groups), GROUPS_A_REQUEST):
        request = DescribeGroupsRequest(
            groups=groups[at : at + GROUPS_A_REQUEST], include_authorized_operations=False, max_version=5
        )
        for g in (await cluster.request(request, node)).groups:
            if not g.error_code:
                states[g.group_id] = g.group_state
    return states


async def offsets_of_groups(
    cluster: Cluster, groups: Iterable[str], timeout: float = 60.0
) -> dict[str, Offsets | Error]:
    """What each group has committed, of all its partitions. An offset that a transaction is about to change is the old one."""
    batched = cluster.supports(OffsetFetchRequest, 8)

    def request(names: Sequence[str]) -> Any:
        if not batched:
            return OffsetFetchRequest(group_id=names[0], topics=None, require_stable=False, max_version=7)
        kind = OffsetFetchRequest.OffsetFetchRequestGroup
        asked = [kind(group_id=name, member_id=None, member_epoch=-1, topics=None) for name in names]
        return OffsetFetchRequest(groups=asked, require_stable=False, min_version=8, max_version=9)

    def read(names: Sequence[str], response: Any) -> dict[str, Offsets | Error]:
        bodies = {g.group_id: g for g in response.groups} if batched else {names[0]: response}
        return {name: _offsets(bodies[name]) if name in bodies else kerrors.UnknownError for name in names}

    size = GROUPS_A_REQUEST if batched else 1
    return await _ask_coordinators(cluster, list(groups), size, request, read, timeout)


def _offsets(body: Any) -> Offsets | Error:
    """One group's part of an answer; an error of one of its partitions is the group's, for a part would look like all."""
    parts = [(t.name, p) for t in body.topics for p in t.partitions]
    code = body.error_code or next((p.error_code for _, p in parts if p.error_code), 0)
    if code == kerrors.GroupIdNotFoundError.errno:
        return {}  # nothing committed
    if code:
        error: Error = kerrors.for_code(code)
        return error
    return {
        (name, p.partition_index): Committed(p.committed_offset, p.metadata or "")
        for name, p in parts
        if p.committed_offset >= 0
    }


async def commit_offsets_of_groups(
    cluster: Cluster, wanted: Mapping[str, Mapping[Partition, Committed]], timeout: float = 60.0
) -> dict[str, dict[Partition, Error] | Error]:
    """Commit for groups without members: for each group what was refused, by partition, or why all of it was."""
    waiting = {group: deque(pieces(group, its, cluster.commit_bytes)) for group, its in wanted.items() if its}
    refused: dict[str, dict[Partition, Error]] = {group: {} for group in waiting}
    while waiting:
        some = {group: its.popleft() for group, its in waiting.items()}
        answers = await _commit_once(cluster, some, timeout)
        for group, answer in answers.items():
            piece = some[group]
            if isinstance(answer, dict):
                refused[group] |= answer
            elif issubclass(answer, (*TOO_LARGE, kerrors.UnknownError)) and len(piece) > 1:
                waiting[group].extendleft(reversed(halves(piece)))
            else:
                refused[group] |= dict.fromkeys(piece, answer)
        waiting = {group: its for group, its in waiting.items() if its}
    return {group: _summed(wanted[group], its) for group, its in refused.items()}


def _summed(wanted: Mapping[Partition, Committed], refused: dict[Partition, Error]) -> dict[Partition, Error] | Error:
    """What concerns the group or its coordinator stands with each partition."""
    kinds = set(refused.values())
    return kinds.pop() if len(kinds) == 1 and len(refused) == len(wanted) else refused


async def _commit_once(
    cluster: Cluster, wanted: Mapping[str, Mapping[Partition, Committed]], timeout: float
) -> dict[str, dict[Partition, Error] | Error]:
    def request(names: Sequence[str]) -> Any:
        return offset_commit(names[0], wanted[names[0]])

    def read(names: Sequence[str], response: Any) -> dict[str, dict[Partition, Error] | Error]:
        refused: dict[Partition, Error] = {
            (t.name, p.partition_index): kerrors.for_code(p.error_code)
            for t in response.topics
            for p in t.partitions
            if p.error_code
        }
        return {names[0]: _summed(wanted[names[0]], refused)}

    return await _ask_coordinators(cluster, list(wanted), 1, request, read, timeout)


async def delete_groups(cluster: Cluster, groups: Iterable[str], timeout: float = 30.0) -> dict[str, Error | None]:
    """Delete groups without members; for each why it is still there. What is gone already is a success."""

    def request(names: Sequence[str]) -> Any:
        return DeleteGroupsRequest(groups_names=list(names))

    def read(names: Sequence[str], response: Any) -> dict[str, Error | None]:
        codes = {answer.group_id: answer.error_code for answer in response.results}
        errors = {name: kerrors.for_code(code) if code else None for name, code in codes.items()}
        return {name: None if error is kerrors.GroupIdNotFoundError else error for name, error in errors.items()}

    return await _ask_coordinators(cluster, list(groups), 1, request, read, timeout)


async def _ask_coordinators(
    cluster: Cluster,
    groups: list[str],
    size: int,
    request: Callable[[Sequence[str]], Any],
    read: Callable[[Sequence[str], Any], dict[str, Answer | Error]],
    timeout: float,
) -> dict[str, Answer | Error]:
    """Ask each group's coordinator, ``size`` groups a request; passing trouble is waited for until the time is up."""
    answers: dict[str, Answer | Error] = {}
    left, deadline, backoff = groups, time.monotonic() + timeout, FIRST_BACKOFF
    while left:
        nodes = await _coordinators(cluster, left)
        bundles: dict[int, list[str]] = {}
        for group in left:
            node = nodes[group]
            if isinstance(node, int):
                bundles.setdefault(node, []).append(group)
            else:
                answers[group] = node
        waiting: deque[tuple[list[str], Any]] = deque()
        for node, names in bundles.items():
            for at in range(0, len(names), size):
                some = names[at : at + size]
                waiting.append((some, cluster.send(request(some), node)))
                if len(waiting) >= IN_FLIGHT:
                    answers.update(await _answer(*waiting.popleft(), read))
        while waiting:
            answers.update(await _answer(*waiting.popleft(), read))
        left = [group for group in left if _passing(answers[group])]
        if left:
            if time.monotonic() > deadline:
                break
            for group in left:
                cluster.forget_coordinator(GROUP, group)
            await cluster.loop.sleep(backoff)
            backoff = min(LAST_BACKOFF, backoff * 1.6)
    return answers


async def _answer(
    names: list[str], future: Any, read: Callable[[Sequence[str], Any], dict[str, Answer | Error]]
) -> dict[str, Answer | Error]:
    try:
        return read(names, await future)
    except (kerrors.RetriableError, kerrors.UnknownBrokerIdError) as error:
        return dict.fromkeys(names, type(error))


def _passing(answer: Any) -> bool:
    if not isinstance(answer, type):
        return False
    # That a group rebalances means that it has members: a word about the group, not about the coordinator.
    return issubclass(answer, (kerrors.RetriableError, kerrors.UnknownBrokerIdError)) and answer not in HAS_MEMBERS


async def _coordinators(cluster: Cluster, groups: list[str]) -> dict[str, int | Error]:
    """The broker that keeps each group, remembered by the cluster; asked for in bulk."""
    known = cluster.known_coordinators(GROUP)
    found: dict[str, int | Error] = {g: known[g] for g in groups if g in known}
    unknown = [g for g in groups if g not in found]
    bulk = cluster.supports(FindCoordinatorRequest, 4)
    size = GROUPS_A_REQUEST if bulk else 1
    sent: list[tuple[list[str], Any]] = []
    for at in range(0, len(unknown), size):
        some = unknown[at : at + size]
        asked = (
            FindCoordinatorRequest(key_type=GROUP, coordinator_keys=some, min_version=4)
            if bulk
            else FindCoordinatorRequest(key=some[0], key_type=GROUP, max_version=3)
        )
        sent.append((some, cluster.send(asked)))
    for some, future in sent:
        try:
            response = await future
        except (kerrors.RetriableError, kerrors.UnknownBrokerIdError) as error:
            found.update(dict.fromkeys(some, type(error)))
            continue
        for group, answer in [(c.key, c) for c in response.coordinators] if bulk else [(some[0], response)]:
            if answer.error_code:
                found[group] = kerrors.for_code(answer.error_code)
            else:
                found[group] = answer.node_id
                cluster.remember_coordinator(GROUP, group, answer.node_id)
    await cluster.meet({node for node in found.values() if isinstance(node, int)})
    return found
