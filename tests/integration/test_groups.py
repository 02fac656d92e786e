"""Consumer groups go on at the destination with exactly what they have not read, judged by stock clients.

Committing, reading and asking for positions is done by confluent-kafka; only the verbs and ``isthmus.client`` are ours.
"""

from __future__ import annotations

import contextlib
import random
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import ResourceType
from links import (
    OFFSET_HEADER,
    Message,
    Record,
    Setup,
    changed,
    copy_until_caught_up,
    create_topic,
    delete_records,
    delete_topic,
    ends,
    grow_topic,
    in_threads,
    isthmus,
    new_name,
    numbered,
    one_link,
    produce,
    read,
    send,
    set_config,
    transaction,
    wait_for,
)
from readers import Offsets, commit, committed, member, positions, read_on, sync

from isthmus.client import Client
from isthmus.config import Site
from isthmus.control.backlog import Backlog
from isthmus.control.ends import Ends
from isthmus.control.group_verbs import sync as sync_link
from isthmus.control.groups import Groups
from isthmus.control.map_records import MapRecords
from isthmus.control.resources import apply_link
from isthmus.engine.snapshot import Observer
from isthmus.engine.state import map_topic
from isthmus.kafka.cluster import Cluster
from isthmus.sandbox import KafkaSite
from isthmus.web.metrics import Exporter
from isthmus.web.server import MetricsServer

Name = Callable[..., str]


def source_offset(record: Record) -> int:
    return int.from_bytes(dict(record.headers)[OFFSET_HEADER] or b"", "big")


def judge(
    setup: Setup,
    groups: Mapping[str, Offsets],
    rename: Callable[[str], str] = lambda topic: topic,
) -> int:
    """Each group's position at the destination has before it what the group has read, and behind it what it has not."""
    topics = {topic for offsets in groups.values() for topic, _ in offsets}
    there = {topic: read(setup.target, rename(topic)) for topic in topics}
    checked = 0
    for group, offsets in groups.items():
        found = positions(setup.target, group)
        for (topic, partition), offset in offsets.items():
            position = found[rename(topic), partition].offset
            for record in there[topic][partition]:
                unread = source_offset(record) >= offset
                assert (record.offset >= position) == unread, (group, topic, partition, offset, position, record)
            checked += 1
    return checked


# -- the white paper's case ---------------------------------------------------------------------------------------


def test_ten_thousand_written_8000_read_9998_copied_1998_to_read(
    east: KafkaSite, west: KafkaSite, unique_topic: Name
) -> None:
    topic = create_topic(east, unique_topic("paper"))
    groups = {new_name(f"{protocol}-reader"): protocol for protocol in ("classic", "consumer")}
    produce(east, topic, numbered(9998))
    for group, protocol in groups.items():
        got = read_on(east, group, topic, most=8000, auto_offset_reset="earliest", group_protocol=protocol)
        assert len(got[0]) == 8000
        commit(east, group, {(topic, 0): 8000})
    setup = one_link(east, west, [topic], sync={"groups": list(groups)})
    copy_until_caught_up(setup)
    produce(east, topic, numbered(2, start=9998))  # and there the source is lost
    assert len(read(west, topic)[0]) == 9998

    done = sync(setup)
    assert {name: row["why"] for name, row in done.items()} == dict.fromkeys(groups, "1 partition: 1 by map")
    for group, protocol in groups.items():
        got = read_on(west, group, topic, commit=True, group_protocol=protocol)
        assert [value.split()[1] for value in got[0]] == [b"%d" % n for n in range(8000, 9998)]
        assert len(got[0]) == 1998

    # Had it not been lost: the groups have moved on at the destination, and are not taken back.
    copy_until_caught_up(setup)
    done = sync(setup)
    for group in groups:
        assert done[group]["why"] == "1 partition is further at the destination"
    assert [value.split()[1] for value in read_on(west, group, topic)[0]] == [b"9998", b"9999"]


# -- every place that a position can have --------------------------------------------------------------------------


def test_every_place_of_a_log(east: KafkaSite, west: KafkaSite, unique_topic: Name, seed: int) -> None:
    """Ends, starts, empty logs, transactions, aborted ones, deleted records, compacted holes, and renamed topics."""
    chance = random.Random(seed)
    set_config(east, ResourceType.BROKER, "1", log_cleaner_backoff_ms="100")
    plain = create_topic(east, unique_topic("places"), 6)
    holes = create_topic(
        east, unique_topic("holes"), cleanup_policy="compact", segment_ms="200", min_cleanable_dirty_ratio="0.01"
    )
    produce(east, holes, [Message(b"value %d" % n, b"key-%d" % (n % 40)) for n in range(400)])
    produce(east, plain, numbered(300, partition=0))
    produce(east, plain, numbered(200, partition=1))
    delete_records(east, plain, {1: 120})
    # Partition 2 stays empty; 3 has transactions that ended either way; 4 is all deleted, 5 ends in an aborted one.
    for number in range(6):
        with transaction(east, commit=number % 2 == 0) as producer:
            send(producer, plain, numbered(10, 10 * number, partition=3))
    produce(east, plain, numbered(30, partition=4))
    delete_records(east, plain, {4: 30})
    produce(east, plain, numbered(10, partition=5))
    with transaction(east, commit=False) as producer:
        send(producer, plain, numbered(10, partition=5))

    def compacted() -> bool:
        # A segment is rolled by the append that comes after its time, and only rolled ones are compacted.
        produce(east, holes, [Message(b"later", b"key-%d" % chance.randrange(40))])
        return len(read(east, holes)[0]) < 250

    wait_for(compacted, "compaction", 60)
    set_config(east, ResourceType.TOPIC, holes, min_compaction_lag_ms="3600000")
    setup = one_link(east, west, [plain, holes], rename="{source}.{topic}", sync={"groups": "/place-.*/"})

    def rename(topic: str) -> str:
        return f"{east.name}.{topic}"

    copy_until_caught_up(setup)
    last = ends(east, plain)
    chosen: dict[str, Offsets] = {
        "place-end": {(plain, p): last[p] for p in range(6)},
        "place-start": {(plain, p): 0 for p in range(6)},
        "place-before-the-start": {(plain, 1): 60, (plain, 4): 15},
        "place-in-an-aborted-transaction": {(plain, 3): 15, (plain, 5): 14},
        "place-at-markers": {(plain, 3): 10, (plain, 5): 20},
    }
    for number in range(12):
        places = {(plain, p): chance.randrange(last[p] + 1) for p in range(6)}
        chosen[f"place-{number}"] = {**places, (holes, 0): chance.randrange(ends(east, holes)[0] + 1)}
    for group, offsets in chosen.items():
        commit(east, group, offsets, f"note of {group}")
    commit(east, "another", {(plain, 0): 7})  # which the link does not choose

    done = sync(setup)
    assert set(done) == set(chosen)
    assert judge(setup, chosen, rename) == sum(len(offsets) for offsets in chosen.values())
    for group, offsets in chosen.items():
        topic, partition = next(iter(offsets))
        assert committed(west, group, rename(topic), partition).metadata == f"note of {group}"
    assert committed(west, "another", rename(plain)).offset < 0
    # A stock member goes on everywhere, also where nothing stands yet.
    assert read_on(west, "place-end", rename(plain)) == {}
    assert {row["why"] for row in sync(setup).values()} == {"in place"}

    # What comes later comes behind the positions of those who were at the end, markers or not.
    for p in range(6):
        produce(east, plain, numbered(4, 1000, partition=p))
    copy_until_caught_up(setup)
    later = read_on(west, "place-end", rename(plain))
    assert {p: [v.split()[1] for v in values] for p, values in later.items()} == {
        p: [b"1000", b"1001", b"1002", b"1003"] for p in range(6)
    }
    # The destination has lost the beginning: a position before it would send a client to wherever it likes.
    commit(east, "place-late", {(plain, 0): 5})
    delete_records(west, rename(plain), {0: 100})
    assert sync(setup, "place-late")["place-late"]["action"] == "create"
    assert committed(west, "place-late", rename(plain)).offset == 100
    with Client(setup.config) as client:
        (row,) = client.translate_group(setup.link, "place-late")
        assert (row.target, row.position and row.position.offset) == (rename(plain), 100)


# -- what is left alone, and why --------------------------------------------------------------------------------------


def test_members_mismatches_and_positions_ahead(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic = create_topic(east, unique_topic("left"), 2)
    missing = create_topic(east, unique_topic("missing"))
    for p in range(2):
        produce(east, topic, numbered(100, partition=p))
    quiet, busy, ahead, there, new = (new_name(stem) for stem in ("quiet", "busy", "ahead", "there", "new"))
    # KIP-848's groups refuse a commit under their members' feet just as classic ones do.
    protocols = {there: "classic", new: "consumer"}
    setup = one_link(east, west, [topic], sync={"groups": [quiet, busy, ahead, there, new]})
    copy_until_caught_up(setup)
    for group in (quiet, busy, ahead, there, new):
        commit(east, group, {(topic, 0): 50, (topic, 1): 50})
    commit(west, ahead, {(topic, 0): 80, (topic, 1): 20})
    grow_topic(east, topic, 3)
    produce(east, topic, numbered(10, partition=2))
    commit(east, quiet, {(topic, 2): 5})
    wider = changed(setup, topics=[topic, missing])
    commit(east, quiet, {(missing, 0): 0})

    with contextlib.ExitStack() as stack:
        link = wider.config.links[wider.link]
        connected = stack.enter_context(Ends(link, wider.config.sites[link.source], wider.config.sites[link.target]))
        resource = Groups()
        before = connected.loop.run(resource.plan, connected)
        stack.enter_context(member(east, busy, topic))
        for group, protocol in protocols.items():
            stack.enter_context(member(west, group, topic, group_protocol=protocol))
        # A member that came after the plan was made: the broker refuses.
        told = {o.change.name: o.error for o in connected.loop.run(resource.apply, connected, before)}
        for group in (there, new):
            assert "has members there now" in told[group]
        done = sync(wider, code=6)
        assert "has members at the source" in done[busy]["why"]
        for group in (there, new):
            assert "has members at the destination" in done[group]["why"]
        assert done[quiet]["action"] == "keep"
        assert done[f"{quiet} {topic}[2]"]["action"] == "blocked"
        assert "only 2 at the destination" in done[f"{quiet} {topic}[2]"]["why"]
        assert "no topic" in done[f"{quiet} {missing}[0]"]["why"]
        # All that are not dead: the position of a group that is reading follows, too.
        everybody = changed(setup, sync={"groups": {"include": [busy], "only_empty": False}})
        assert sync(everybody)[busy]["why"] in ("in place", "2 partitions: 2 by map")
    # Neither moved back nor held back: partition 0 was ahead, partition 1 was not.
    assert committed(west, ahead, topic, 0).offset == 80
    assert committed(west, ahead, topic, 1).offset >= 50
    judge(setup, {ahead: {(topic, 1): 50}, quiet: {(topic, 0): 50, (topic, 1): 50}})
    # Two at once, and once more: the same in the end.
    link = setup.config.links[setup.link]
    outcomes = in_threads([lambda: sync_link(setup.config, link, None)] * 2)
    assert all(outcome.done for _, some in outcomes for outcome in some)
    judge(setup, {g: {(topic, 0): 50, (topic, 1): 50} for g in (quiet, there, new)})


def test_a_topic_that_was_created_again(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    """Positions of the old topic mean nothing in the new one; and copies under an older name are not meant either."""
    topic, group = create_topic(east, unique_topic("moved")), new_name("mover")
    produce(east, topic, numbered(50))
    setup = one_link(east, west, [topic], rename="old.{topic}", sync={"groups": [group]})
    copy_until_caught_up(setup)
    renamed = changed(setup, rename="new.{topic}")
    produce(east, topic, numbered(50, 50))
    copy_until_caught_up(renamed)
    commit(east, group, {(topic, 0): 70})
    sync(renamed)
    judge(renamed, {group: {(topic, 0): 70}}, lambda name: f"new.{name}")
    early = new_name("early")
    commit(east, early, {(topic, 0): 20})
    sync(changed(renamed, sync={"groups": [early]}))
    values = read_on(west, early, f"new.{topic}")[0]
    assert values[0].startswith(b"value 50 ")
    assert len(values) == 50


# -- topics that another tool has copied ---------------------------------------------------------------------------


def copied_elsewhere(east: KafkaSite, west: KafkaSite, topic: str, headers: bool, transactions: bool) -> None:
    """What another tool would do: same records, same times, other offsets, perhaps a header with the source offset."""
    with transaction(west) as producer:
        send(producer, topic, numbered(7))  # something that was there before, of unknown origin
    delete_records(west, topic, {0: 8})

    def copy(record: Record) -> Message:
        told = [(OFFSET_HEADER, record.offset.to_bytes(8, "big"))] if headers else []
        return Message(record.value, record.key, [*record.headers, *told], record.timestamp)

    copies = [copy(record) for record in read(east, topic)[0]]
    if not transactions:
        produce(west, topic, copies)
        return
    for start in range(0, len(copies), 100):  # each at its second attempt
        with transaction(west, commit=False) as producer:
            send(producer, topic, copies[start : start + 30])
        with transaction(west) as producer:
            send(producer, topic, copies[start : start + 100])


@pytest.mark.parametrize(
    ("headers", "transactions", "again"),
    [(True, True, 0), (False, True, 70), (False, False, 12)],
    ids=["with a header", "by time, among markers", "by time"],
)
def test_a_topic_that_another_tool_has_copied(
    east: KafkaSite, west: KafkaSite, unique_topic: Name, headers: bool, transactions: bool, again: int, seed: int
) -> None:
    chance, topic = random.Random(seed), unique_topic("foreign")
    create_topic(east, topic)
    create_topic(west, topic)
    now = int(time.time() * 1000) - 1_000_000
    # A second each; times repeat, and step back now and then, as they do.
    times = [now + 3000 * (n // 3) - (2500 if n % 17 == 0 else 0) for n in range(400)]
    produce(east, topic, [Message(b"value %d" % n, b"k", timestamp=t) for n, t in enumerate(times)])
    copied_elsewhere(east, west, topic, headers, transactions)
    offsets = [0, 1, 399, 400, *(chance.randrange(400) for _ in range(8))]
    groups = {new_name("foreign-reader"): offset for offset in offsets}
    for group, offset in groups.items():
        commit(east, group, {(topic, 0): offset})
    setup = one_link(east, west, [topic], sync={"groups": list(groups)})
    method = "header" if headers else "timestamp"
    assert {row["why"] for row in sync(setup).values()} == {f"1 partition: 1 by {method}"}
    if headers:
        judge(setup, {group: {(topic, 0): offset} for group, offset in groups.items()})
    values = [r.value for r in read(east, topic)[0]]
    there = read(west, topic)[0]
    for group, offset in groups.items():
        position = committed(west, group, topic).offset
        left = [r.value for r in there if r.offset >= position]
        # Nothing is left out; by time, some come again: those of the same time, and of the minute before among markers.
        assert left[len(left) - (400 - offset) :] == values[offset:]
        assert len(left) - (400 - offset) <= again, (offset, position)
    answer = isthmus(setup, "groups", "translate", next(iter(groups)), "--json")
    assert answer.document["partitions"][0]["method"] == method


def test_another_tool_and_other_partitions(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic, empty, group = unique_topic("dealt"), unique_topic("nothing"), new_name("dealt")
    create_topic(east, topic, 2)
    create_topic(west, topic, 3)
    for site in (east, west):
        create_topic(site, empty)
    produce(east, topic, numbered(10))
    commit(east, group, {(topic, 0): 5, (topic, 1): 0, (empty, 0): 0})
    setup = one_link(east, west, [topic, empty], sync={"groups": [group]})
    done = sync(setup, code=6)
    for p in range(2):
        assert "2 partitions at the source and 3 at the destination" in done[f"{group} {topic}[{p}]"]["why"]
    assert committed(west, group, empty).offset == 0


# -- the verbs ---------------------------------------------------------------------------------------------------------


def test_the_verbs(east: KafkaSite, west: KafkaSite, unique_topic: Name, tmp_path: Path) -> None:
    topic, group = create_topic(east, unique_topic("verbs"), 2), new_name('verbs, "all" of them')
    start = int(time.time() * 1000) - 3_600_000
    for p in range(2):
        produce(east, topic, [Message(b"v", b"k", timestamp=start + 1000 * n, partition=p) for n in range(100)])
    setup = one_link(east, west, [topic], sync={"groups": [group]})
    copy_until_caught_up(setup)
    commit(east, group, {(topic, 0): 40, (topic, 1): 60}, 'meta, "data"')

    (listed,) = isthmus(setup, "groups", "list", "--json").document
    assert (listed["group"], listed["kind"], listed["state"], listed["to_write"]) == (group, "classic", "Empty", 2)
    translated = isthmus(setup, "groups", "translate", group, "--json").document["partitions"]
    assert [(row["offset"], row["method"], row["exact"]) for row in translated] == [
        (40, "map", True),
        (60, "map", True),
    ]
    with Client(setup.config) as client:
        rows = client.translate_group(setup.link, group)
        assert [row.position.offset for row in rows if row.position] == [row["to_offset"] for row in translated]
    assert isthmus(setup, "groups", "translate", "nobody").code == 6
    assert sync(setup, "--dry-run")[group]["action"] == "create"
    assert committed(west, group, topic).offset < 0

    # Out to a file, in again, in both forms; what is there already is not moved back unless told to.
    for form in ("csv", "json"):
        file = tmp_path / f"positions.{form}"
        file.write_text(isthmus(setup, "groups", "export", group, "--format", form).out)
        answer = isthmus(setup, "groups", "import", str(file), "--json")
        assert answer.code == 0, answer
        found = committed(west, group, topic)
        assert (found.offset, found.metadata) == (translated[0]["to_offset"], 'meta, "data"')
    as_they_are = isthmus(setup, "groups", "export", "--site", west.name, "--format", "json").document
    assert [e["offset"] for e in as_they_are if e["group"] == group] == [row["to_offset"] for row in translated]
    plain = tmp_path / "kafkas-own.csv"
    quoted = group.replace('"', '""')
    plain.write_text(f'"{quoted}",{topic},0,3\n')
    assert isthmus(setup, "groups", "import", str(plain)).code == 0
    assert committed(west, group, topic).offset == translated[0]["to_offset"]
    assert isthmus(setup, "groups", "import", str(plain), "--rewind", "--json").code == 0
    assert committed(west, group, topic).offset == 3
    (tmp_path / "wrong.csv").write_text("g,t,0,minus one\n")
    wrong = isthmus(setup, "groups", "import", str(tmp_path / "wrong.csv"))
    assert (wrong.code, "line 1" in wrong.err) == (2, True)
    assert isthmus(setup, "groups", "import", str(tmp_path / "none.csv")).code == 2
    (tmp_path / "own.csv").write_text(f"_isthmus.{setup.link},{topic},0,5\n")
    assert isthmus(setup, "groups", "import", str(tmp_path / "own.csv")).code == 6

    # By time: the first record that is not older, as the destination's own clock of records tells.
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start / 1000 + 30))
    moved = isthmus(setup, "groups", "reset", group, "--to-datetime", moment, "--json")
    assert moved.code == 0, moved
    wanted = min(r.offset for r in read(west, topic)[0] if r.timestamp >= (start // 1000 + 30) * 1000)
    assert [row["after"] for row in moved.document if row["partition"] == 0] == [wanted]
    assert committed(west, group, topic).offset == wanted
    assert isthmus(setup, "groups", "reset", group, "--to", "latest", "--topic", topic).code == 0
    assert read_on(west, group, topic) == {}
    with member(west, group, topic):
        refused = isthmus(setup, "groups", "reset", group, "--to", "earliest", "--json")
        assert (refused.code, "has members" in refused.document["message"]) == (6, True)
    for arguments in (["--to-datetime", "yesterday"], [], ["--to", "latest", "--to-datetime", moment]):
        assert isthmus(setup, "groups", "reset", group, *arguments).code == 2
    assert isthmus(setup, "groups", "reset", f"_isthmus.{setup.link}", "--to", "latest").code == 6
    assert isthmus(setup, "groups", "list", "--link", "nowhere").code == 2


# -- what is told of it all ---------------------------------------------------------------------------------------------


def test_metrics_of_a_real_link(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    topic, group = create_topic(east, unique_topic("measured"), 2), new_name("measured")
    produce(east, topic, numbered(10))
    setup = one_link(east, west, [topic], sync={"groups": [group]})
    copy_until_caught_up(setup)
    commit(east, group, {(topic, 0): 4})
    link = setup.config.links[setup.link]
    apply_link(setup.config, link, ["groups"])
    produce(east, topic, numbered(5))
    # Of what is there before anybody looks, the records themselves tell how long they have waited.
    hour_ago = int((time.time() - 3600) * 1000)
    produce(east, topic, [Message(b"old", timestamp=hour_ago, partition=1), Message(b"new", partition=1)])
    exporter, backlog = Exporter(redpanda_names=True), Backlog()
    with (
        Observer(link, setup.config.sites[link.source], setup.config.sites[link.target]).connect() as observer,
        Ends.of(setup.config, link) as both,
    ):
        assert both.loop.run(backlog.look, both)
        for _ in range(2):
            exporter.take([observer.look()])
            time.sleep(0.3)
        exporter.take([observer.look()])
        with MetricsServer(("127.0.0.1", 0), lambda: "token", exporter.text) as server:
            url = f"http://127.0.0.1:{server.port}/metrics"
            request = urllib.request.Request(url, headers={"Authorization": "Bearer token"})
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
                lines = told(answer.read().decode())
        labels = f'link="{setup.link}",topic="{topic}",partition="0"'
        assert (lines[f"isthmus_lag_records{{{labels}}}"], lines[f"redpanda_lag{{{labels}}}"]) == ("5", "5")
        assert 0.5 < float(lines[f"isthmus_lag_seconds{{{labels}}}"]) < 1800
        waited = f'isthmus_lag_seconds{{link="{setup.link}",topic="{topic}",partition="1"}}'
        assert 3600 <= float(lines[waited]) < 5400
        copy_until_caught_up(setup)
        assert not both.loop.run(backlog.look, both), "nothing is left of it"
        exporter.take([observer.look()])
        assert told(exporter.text())[waited] == "0"
    assert lines[f'isthmus_group_offsets_committed_total{{link="{setup.link}",group="{group}"}}'] == "1"
    assert lines[f'isthmus_control_apply_seconds_count{{link="{setup.link}",resource="groups"}}'] == "1"


def told(text: str) -> dict[str, str]:
    """Names and values of metrics."""
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")


def test_a_map_that_was_made_anew(east: KafkaSite, unique_topic: Name) -> None:
    """As after a re-seed: what was remembered of the old topic is nothing in the new one, be that shorter or longer."""
    link = unique_topic("link")
    topic = create_topic(east, map_topic(link))
    produce(east, topic, [Message(b"old", b"old-%d" % n) for n in range(10)])
    with Cluster(Site(name=east.name, bootstrap=east.admin_bootstrap.split(","))) as cluster:
        cluster.call(cluster.connect)
        kept = MapRecords(link)
        assert len(cluster.call(kept.look, cluster)) == 10
        for first, end in ((0, 3), (3, 15)):
            if not first:
                delete_topic(east, topic)
                create_topic(east, topic)
            produce(east, topic, [Message(b"new", b"new-%d" % n) for n in range(first, end)])
            seen = cluster.call(kept.look, cluster)
            assert seen == [(b"new-%d" % n, b"new") for n in range(end)]
            assert kept.whole
            assert kept.grew


def test_progress_without_a_map(east: KafkaSite, west: KafkaSite, unique_topic: Name) -> None:
    """Somebody has deleted the map: the end of the log is no answer for a group that has not read all."""
    topic = create_topic(east, unique_topic("unmapped"))
    group = f"{topic}-readers"
    setup = one_link(east, west, [topic], sync={"groups": {"include": [group], "only_empty": False}})
    produce(east, topic, numbered(50))
    copy_until_caught_up(setup)
    commit(east, group, {(topic, 0): 20})
    delete_topic(west, map_topic(setup.link))
    assert "the link's map is gone" in isthmus(setup, "groups", "sync", "--json").out
    assert committed(west, group, topic).offset < 0
    create_topic(west, map_topic(setup.link), cleanup_policy="compact")  # as the next run does
    sync(setup)
    assert read_on(west, group, topic) == {0: [record.value for record in read(east, topic)[0][20:]]}
