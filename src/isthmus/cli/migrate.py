"""``isthmus migrate``: a whole migration in one command: plan, apply, copy until caught up, groups, count, report."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from isthmus.cli import DEFAULT_CONFIG, ConfigOption, JsonOption, examples, output
from isthmus.cli.links import chosen_links
from isthmus.config import load
from isthmus.errors import DataError


def register(app: typer.Typer) -> None:
    app.command(epilog=examples("isthmus migrate orders-link", "isthmus migrate orders-link --no-count --json"))(
        migrate
    )


def migrate(
    link: Annotated[str, typer.Argument(help="The link.")],
    config: ConfigOption = DEFAULT_CONFIG,
    count: Annotated[
        bool, typer.Option(help="Count the records on both sides in the end; it reads all of them.")
    ] = True,
    json: JsonOption = False,
) -> None:
    """Migrate what a link copies: plan, apply, copy until caught up, move consumer groups, count, report.

    It can be given again at any time: what is done is not done twice, and what was written since is copied. Exits with 0
    when all is there, 6 when counts differ, 21 when something should change and cannot, 20 when consumer groups were left
    and stay to be moved (they still have members, say); and like `isthmus run` when copying fails.
    """
    loaded = load(config)
    (chosen,) = chosen_links(loaded, [link])
    from isthmus.cli.changes import BLOCKED, CHANGES, missing_rights, show_outcomes, show_plan, show_rights
    from isthmus.cli.group_tables import show_left
    from isthmus.cli.run import View, stop_on_signals
    from isthmus.control.configs import after_cut_over
    from isthmus.control.count import count_link
    from isthmus.control.ends import Ends
    from isthmus.control.groups import Left
    from isthmus.control.meter import group_of
    from isthmus.control.resources import apply_link
    from isthmus.engine.runner import Runner

    def step(words: str) -> None:
        output.note(f"migrate {link}: {words}")

    step("plan and apply")
    said, outcomes = apply_link(loaded, chosen, only=("topics", "configs", "acls", "schemas"))
    told = [change for change in said if change.told]
    if not json:
        if told:
            show_plan(chosen, told, everything=True)
        show_outcomes(outcomes)
    stuck = [c for c in said if c.resource == "topics" and c.action == "blocked"]
    stuck_topics = [o for o in outcomes if o.change.resource == "topics" and not o.done]
    report: dict[str, Any] = {
        "link": link,
        "from": chosen.source,
        "to": chosen.target,
        "outcomes": [outcome.to_json() for outcome in outcomes],
        "left": [change.to_json() for change in told],
        "missing_rights": missing_rights([*told, *outcomes]),
    }
    if stuck or stuck_topics:
        step("stopped before copying: topics that cannot be had; mend them, or exclude them from the link")
        if json:
            output.emit(report, json_mode=True)
        else:
            show_rights([*stuck, *stuck_topics])
        raise typer.Exit(BLOCKED)
    step("copy until caught up")
    view = View(json=False)
    runner = Runner(loaded, [link], view.say, view.show)
    with stop_on_signals(runner), view:
        (state,) = runner.run(until_caught_up=True)
    report["lag"] = state.lag
    step("consumer groups")
    rest, moved = apply_link(loaded, chosen, only=("groups",))
    left = [change for change in rest if isinstance(change, Left) or change.action == "blocked"]
    report["groups"] = [outcome.to_json() for outcome in moved]
    report["groups_left"] = [change.to_json() for change in left]
    if not json:
        show_outcomes(moved)
        show_left(left)
    counts = []
    with Ends.of(loaded, chosen) as ends:
        report["after_cut_over"] = ends.loop.run(after_cut_over, ends)
        if count:
            step("count records on both sides")
            counts = ends.loop.run(count_link, ends)
    if count:
        report["counts"] = [each.to_json() for each in counts]
        if not json:
            output.emit([each.to_json() for each in counts], json_mode=False)
    wrong = [each for each in counts if not each.explained]
    failed = [outcome for outcome in (*outcomes, *moved) if not outcome.done]
    blocked = [change for change in (*said, *left) if change.action == "blocked"]
    report["done"] = not (wrong or failed or blocked or left)
    if json:
        output.emit(report, json_mode=True)
    total = sum(each.destination for each in counts)
    step(
        f"{len(counts)} topics, {total} records counted, {sum(o.done for o in moved)} groups moved, "
        f"{len({group_of(change.name) for change in left})} left; {len(wrong)} counts differ, {len(failed)} changes failed, {len(blocked)} blocked"
    )
    if report["after_cut_over"]:
        step(
            "copies need message.timestamp.type=CreateTime and no bound of old timestamps; after the cut-over, when this link runs no more, give "
            "topics back what they had:"
        )
        for command in report["after_cut_over"]:
            output.note(f"    {command}")
    if wrong:
        if json:
            raise typer.Exit(DataError.exit_code)
        raise DataError(f"counts differ in {', '.join(each.topic for each in wrong[:5])}; the reasons are above")
    if failed or blocked:
        raise typer.Exit(BLOCKED)
    if left:
        raise typer.Exit(CHANGES)
