"""Who may write where, and where groups go on: what operations ask of the control plane, in words that fit a journal.

Invariant: each of these can be done again; what is done is done, and the answer is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import kafka.errors as kerrors

from isthmus.config import Config, Link
from isthmus.config.names import is_internal
from isthmus.control import fence as acl_fence
from isthmus.control import memory
from isthmus.control import promote as promotion
from isthmus.control.change import Change, Outcome
from isthmus.control.ends import Ends
from isthmus.control.group_verbs import explained
from isthmus.control.group_verbs import move_groups as move
from isthmus.control.groups import survey
from isthmus.engine.state import SITES_TOPIC
from isthmus.engine.table import read_table, write_table
from isthmus.errors import DataError
from isthmus.kafka.cluster import Cluster
from isthmus.kafka.groups import list_groups, offsets_of_groups
from isthmus.kafka.offsets import log_ranges
from isthmus.kafka.peek import Glimpse, peek
from isthmus.recovery.allowed import has_authoriser
from isthmus.recovery.fencing import HOOK, How, run_hook
from isthmus.recovery.seeded import seeded_by
from isthmus.recovery.stage import Stage
from isthmus.recovery.standing import SERVED, standing

# -- fencing -------------------------------------------------------------------------------------------------


def chosen_fence(stage: Stage, site: str, wanted: How | None) -> How:
    """How a site is fenced: as asked, else by its hook, else by its ACLs; "none" only where nothing is there to fence it with."""
    hooks = stage.config.sites[site].hooks
    has_hook = hooks is not None and hooks.fence is not None
    if wanted == "hook" and not has_hook:
        raise DataError(f"site {site} has no hook to fence it: set sites.{site}.hooks.fence")
    if wanted is not None:
        return wanted
    if has_hook:
        return "hook"
    return "acls" if stage.at(site, "asking whether it has an authoriser", has_authoriser) else "none"


def refuse_unfenced(site: str) -> DataError:
    """What a planned move says where nothing would keep writers away, and nobody has said that this is meant."""
    return DataError(
        f"site {site} cannot be fenced: it has no authoriser, and no hook (sites.{site}.hooks.fence). Records that are written there "
        "during the move may stay behind. Set a hook; or stop all its producers yourself and give --fence none. Nothing was changed"
    )


def fence(stage: Stage, site: str, topics: Sequence[str], how: How, operation: str) -> dict[str, Any]:
    """Keep writers away from a site."""
    if how == "hook":
        for name in stage.config.sites:
            if stage.answers(name):
                stage.at(name, "writing the fence down", write_table, SITES_TOPIC, {HOOK + site: {"by": operation}})
        return {"how": how, "said": run_hook(stage.config.sites[site], "fence", operation)}
    if how == "acls":
        taken = stage.at(site, "fencing it by its ACLs", acl_fence.fence, topics)
        return {"how": how, "taken": [str(each.acl) for each in taken]}
    return {"how": how}


def fence_words(stage: Stage, site: str, topics: Sequence[str], how: How) -> list[str]:
    if how == "hook":
        hooks = stage.config.sites[site].hooks
        return [f"run {hooks.fence[0]}"] if hooks is not None and hooks.fence is not None else []
    if how == "acls":
        taken = stage.at(site, "reading ACLs", acl_fence.to_take, topics)
        return [f"take away {each.acl}" for each in taken] or ["no ACL lets anybody write to these topics"]
    return [f"{site} is not fenced: stop its producers yourself"]


def unfence(stage: Stage, site: str, operation: str) -> list[str]:
    """Let writers in again, if an earlier operation kept them away; what was given back."""
    back = [str(each.acl) for each in stage.at(site, "giving ACLs back", acl_fence.restore)]
    here = [name for name in stage.config.sites if stage.answers(name)]
    noted = [name for name in here if HOOK + site in stage.at(name, "reading fences", read_table, SITES_TOPIC)]
    if noted:
        said = run_hook(stage.config.sites[site], "unfence", operation)
        for name in noted:
            stage.at(name, "taking the fence away", write_table, SITES_TOPIC, {HOOK + site: None})
        back.append(said or "hook")
    return back


# -- promotion -----------------------------------------------------------------------------------------------


def promote(stage: Stage, links: Sequence[Link], site: str) -> dict[str, Any]:
    """Let everybody write at a site that was a standby of these links."""
    found: dict[str, Any] = {"links": {}}
    for link in links:
        stage.at(site, "remembering that it serves", _remember_service, link)
        outcomes: list[Outcome] = stage.at(site, f"promoting it for link {link.name}", promotion.promote, link)
        found["links"][link.name] = _told(outcomes)
    return found


async def _remember_service(cluster: Cluster, link: Link) -> None:
    await memory.remember(cluster, link.name, {SERVED: {}})


def demote(stage: Stage, links: Sequence[Link], site: str) -> dict[str, Any]:
    """Make a site a standby of these links again."""
    found: dict[str, Any] = {"links": {}}
    for link in links:
        outcomes: list[Outcome] = stage.at(site, f"making it a standby of link {link.name}", promotion.demote, link)
        found["links"][link.name] = _told(outcomes)
    return found


def _told(outcomes: Sequence[Outcome]) -> dict[str, list[str]]:
    return {
        "done": [f"{o.change.action} {o.change.resource} {o.change.name}" for o in outcomes if o.done],
        "failed": [f"{o.change.name}: {o.error}" for o in outcomes if not o.done],
    }


def promote_words(stage: Stage, links: Sequence[Link], site: str) -> list[str]:
    lines: list[str] = []
    for link in links:
        changes: list[Change] = stage.at(site, "planning the promotion", promotion.plan_promotion, link)
        lines += [f"{change.action} {change.resource} {change.name}: {change.why}" for change in changes]
    return lines or ["nothing is held back there"]


# -- groups and ends -------------------------------------------------------------------------------------------


def move_groups(config: Config, link: Link) -> list[dict[str, Any]]:
    """Put every group that follows the link where it stopped; what became of each."""
    with Ends.of(config, link) as ends:
        try:
            return [asdict(each) for each in ends.loop.run(move, ends)]
        except kerrors.KafkaError as error:
            raise explained(ends, error) from error


def clients(config: Config, site: str, moved: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """What clients of a site need: where to connect, and which groups are ready there (``moved``, by link)."""
    found = config.sites[site]
    return {
        "bootstrap": ",".join(found.bootstrap),
        "registry": found.registry.url if found.registry is not None else None,
        "groups": sorted({row["group"] for rows in moved.values() for row in rows}),
    }


def has_members(moved: dict[str, Any]) -> bool:
    """Whether a group was left alone because somebody reads at the destination."""
    return any("members" in reason for reason in moved["reasons"])


def groups_words(config: Config, link: Link) -> list[str]:
    everybody = link.sync.groups.model_copy(update={"only_empty": False})
    with Ends.of(config, link) as ends:
        try:
            views = ends.loop.run(survey, ends, everybody)
        except kerrors.KafkaError as error:
            raise explained(ends, error) from error
    lines = []
    for view in views:
        moves = sum(row.moves for row in view.rows)
        words = view.left or f"{moves} of {len(view.rows)} positions to write"
        if view.state not in ("Empty", "Dead", ""):
            words += f"; it has members at {link.source} ({view.state}): stop them"
        lines.append(f"group {view.group}: {words}")
    return lines or [f"no group follows link {link.name}"]


def groups_at(stage: Stage, link: Link, site: str) -> list[dict[str, Any]]:
    """The groups that have positions in a link's copies, wherever those come from."""

    async def look(cluster: Cluster) -> list[dict[str, Any]]:
        copies = set((await standing(cluster, link)).targets.values())
        names = sorted(name for name in await list_groups(cluster) if not is_internal(name))
        found = []
        for group, offsets in (await offsets_of_groups(cluster, names)).items():
            if isinstance(offsets, dict):
                count = sum(topic in copies for topic, _ in offsets)
                if count:
                    found.append({"group": group, "positions": count})
        return found

    rows: list[dict[str, Any]] = stage.at(site, "reading groups", look)
    return rows


def ends_of_copies(stage: Stage, links: Sequence[Link], site: str) -> dict[str, dict[str, int]]:
    """Behind the last copy of each partition, by topic and partition: everything from there on is the site's own. By the map and not by the log:
    clients may have written before the site was promoted. To be asked when the links rest."""

    async def look(cluster: Cluster) -> dict[str, dict[str, int]]:
        marks: dict[tuple[str, int], int | None] = {}
        for link in links:
            for each in await seeded_by(cluster, link):
                # Where a link did not begin at the first record, somebody else may have brought what was there before.
                unknown = not len(each.runs) and link.start != "earliest"
                marks[each.there, each.partition] = None if unknown else each.end
        logs = await log_ranges(cluster, sorted(marks), committed_only=False)
        if silent := sorted(marks.keys() - logs.keys()):
            topic, partition = silent[0]
            raise DataError(f"site {site} does not tell the end of {topic}[{partition}]; are all its brokers there?")
        behind = {key: logs[key][1] if mark is None else max(mark, logs[key][0]) for key, mark in marks.items()}
        # Behind the last copy stands the marker of its transaction, which is no record; retention may take it like one.
        seen = await peek(cluster, {key: mark for key, mark in behind.items() if mark < logs[key][1]})
        found: dict[str, dict[str, int]] = {}
        for (topic, partition), mark in sorted(behind.items()):
            glimpse = seen.get((topic, partition))
            if isinstance(glimpse, Glimpse) and all(record.offset < mark for record in glimpse.records):
                mark = max(mark, glimpse.end)
            found.setdefault(topic, {})[str(partition)] = mark
        return found

    ends: dict[str, dict[str, int]] = stage.at(site, "reading where copies end", look)
    return ends
