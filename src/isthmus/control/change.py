"""What a plan is made of.

Invariants:
- a plan is plain data: it can be printed, compared and carried out, and making one changes nothing;
- carrying a change out is idempotent: whoever repeats it, or does it beside somebody else, ends in the same state;
- a change that fails is an ``Outcome`` with its reason, and never keeps the others from being tried.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Action = Literal["create", "grow", "alter", "delete", "stage", "keep", "blocked"]
# What apply would do; the rest is told, not done: "keep" is right as it is or must not be touched, "blocked" should change and
# cannot. "stage" is held back until promotion: apply writes it down, once (the ``order`` is what).
DONE_BY_APPLY: frozenset[Action] = frozenset({"create", "grow", "alter", "delete"})


@dataclass(frozen=True, slots=True)
class Diff:
    """One value that differs; ``None`` is "not set"."""

    key: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Change:
    """What should become of one thing at the destination, and why."""

    resource: str
    name: str
    action: Action
    why: str
    diff: tuple[Diff, ...] = ()
    # What the resource needs to carry it out; never shown.
    order: Any = field(default=None, compare=False, repr=False)
    # Rights that are missing, each as the ACL to grant.
    needs: tuple[str, ...] = ()
    # Whether what is kept is worth a line of its own; where nobody says, it is if something differs.
    loud: bool | None = None

    @property
    def told(self) -> bool:
        """Whether somebody who reads a plan should see it, and not only how many there are of them."""
        return self.action != "keep" or (bool(self.diff) if self.loud is None else self.loud)

    @property
    def to_do(self) -> bool:
        return self.action in DONE_BY_APPLY or (self.action == "stage" and self.order is not None)

    def to_json(self) -> dict[str, Any]:
        return {
            "resource": self.resource,
            "name": self.name,
            "action": self.action,
            "why": self.why,
            "diff": [{"key": d.key, "before": d.before, "after": d.after} for d in self.diff],
            "needs": list(self.needs),
        }


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a change: done, or why not. With a ``note`` it is settled, but otherwise than it was planned: the site cannot do it, and nothing
    is left to try."""

    change: Change
    error: str = ""
    needs: tuple[str, ...] = ()
    note: str = ""

    @property
    def done(self) -> bool:
        return not self.error

    def to_json(self) -> dict[str, Any]:
        return {
            **self.change.to_json(),
            "done": self.done,
            "error": self.error,
            "note": self.note,
            "needs": list(self.needs),
        }
