"""The health of a policy, as a status summary."""

import math
from typing import Any, NamedTuple

from undertow.errors import InvalidInputError
from undertow.live import wire
from undertow.support.checks import FloatArray
from undertow.support.display import html_table

__all__ = ["ALARM", "FitRecord", "Health"]

_REFUSED = 10  # of the last rewards that may be refused without a problem
ALARM = 2.0  # mean squared innovation above which a model no longer holds


class FitRecord(NamedTuple):
    """The outcome of one fit: its model and round, its result, or the reason of its failure."""

    model: str
    round: int
    order: int
    log_likelihood: float
    tried: int
    failure: str | None


class Health(NamedTuple):
    """The health of a policy; policies that learn no model have nothing from `innovations` on.

    Attributes
    ----------
    policy, round
        The name of the policy, and the number of rounds that have begun.
    pending, waited
        Number of pending decisions, and for how many rounds the oldest has been pending.
    refused
        Number of refused rewards, by reason: "unknown" decision, "repeated", "defaulted" (it came after the default
        reward), "forgotten" (more than `max_pending` are pending), "late" (more than `max_delay` rounds), "different"
        (not the decision's arm or round), "invalid" (not a number).
    refused_lately
        Number of refused rewards among the last 100, without repeated ones; more than 10 are a problem.
    innovations
        For each model, the standardized differences between the last rewards and its forecasts, oldest first: about
        N(0, 1) while the model holds.
    level
        Running mean of the squared innovations, contexts included, of a shared system and of structural levels once
        they are fitted; an alarm is raised at 2.
    alarms
        Number of alarms.
    fits
        The last fits of all models, with the reason if one failed.
    under_way
        The models that are being fitted in the background.

    Examples
    --------
    >>> import undertow
    >>> policy = undertow.make("ucb", arms=3)
    >>> _ = policy.decide()
    >>> print(policy.health())
    ucb is ok in round 1: 1 waiting, the oldest for 0 rounds
    """

    policy: str
    round: int
    pending: int
    waited: int
    refused: dict[str, int]
    refused_lately: int
    innovations: dict[str, FloatArray]
    level: dict[str, float]
    alarms: dict[str, int]
    fits: tuple[FitRecord, ...]
    under_way: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems, in words: refused rewards, models that no longer fit the data, models whose last fit failed."""
        last = {record.model: record for record in self.fits}
        failed = [record for record in last.values() if record.failure is not None]
        loose = [(name, level) for name, level in self.level.items() if not level <= ALARM]
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.refused.items() if reason != "repeated")
        refused = f"{self.refused_lately} of the last rewards were refused (so far {reasons})"
        return (
            *((refused,) if self.refused_lately > _REFUSED else ()),
            *(f"{name}: mean squared innovation {level:.1f}, about 1 if the model holds" for name, level in loose),
            *(f"{each.model}: the last fit failed in round {each.round} ({each.failure})" for each in failed),
        )

    def __str__(self) -> str:
        facts = [f"{self.pending} waiting" + (f", the oldest for {self.waited} rounds" if self.pending else "")]
        facts += [f"{name} {level:.2f}" for name, level in self.level.items()]
        facts += [f"{len(self.fits)} fits remembered"] if self.fits else []
        facts += [f"fitting the {' and the '.join(self.under_way)}"] if self.under_way else []
        state = "ok" if self.ok else f"not ok ({'; '.join(self.problems)})"
        return " ".join(f"{self.policy} is {state} in round {self.round}: {', '.join(facts)}".split())

    def _repr_html_(self) -> str:
        last = {record.model: record for record in self.fits}
        rows = [
            (
                name,
                self.level.get(name),
                self.alarms[name],
                last[name].round if name in last else None,
                (last[name].failure or "found") if name in last else None,
            )
            for name in self.alarms
        ]
        head = ["model", "mean squared innovation", "alarms", "last fit in round", "outcome"] if rows else []
        return html_table("Health", rows, head, str(self))

    def to_json(self) -> str:
        """Return everything as a JSON object, with `ok` and `problems`; NaN is null."""
        return wire.write(
            {
                **{name: getattr(self, name) for name in ("policy", "ok", "problems", "round", "pending", "waited")},
                **{name: getattr(self, name) for name in ("refused", "refused_lately")},
                "innovations": {
                    name: wire.write_numbers(values, math.nan) for name, values in self.innovations.items()
                },
                "level": {name: wire.write_number(level, math.nan) for name, level in self.level.items()},
                "alarms": self.alarms,
                "fits": [
                    record._asdict() | {"log_likelihood": wire.write_number(record.log_likelihood, math.nan)}
                    for record in self.fits
                ],
                "under_way": self.under_way,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "Health":
        """Parse the output of `to_json`."""
        try:
            entries = wire.read(text, ("ok", "problems", *cls._fields))
            health = cls(
                wire.read_text(entries["policy"]),
                wire.read_count(entries["round"]),
                wire.read_count(entries["pending"]),
                wire.read_count(entries["waited"]),
                {reason: wire.read_count(count) for reason, count in entries["refused"].items()},
                wire.read_count(entries["refused_lately"]),
                {name: wire.read_numbers(values, math.nan) for name, values in entries["innovations"].items()},
                {name: wire.read_number(level, math.nan) for name, level in entries["level"].items()},
                {name: wire.read_count(count) for name, count in entries["alarms"].items()},
                tuple(_record(entry) for entry in wire.read_list(entries["fits"])),
                tuple(wire.read_text(name) for name in wire.read_list(entries["under_way"])),
            )
            if (entries["ok"], entries["problems"]) != (health.ok, list(health.problems)):
                raise ValueError("ok and problems contradict the rest")
        except wire.DAMAGE as error:
            raise InvalidInputError(f"health: expected JSON from Health.to_json, got {text!r:.60} ({error})") from error
        return health


def _record(entry: Any) -> FitRecord:
    fields = wire.read_object(entry, FitRecord._fields)
    return FitRecord(
        wire.read_text(fields["model"]),
        wire.read_count(fields["round"]),
        wire.read_count(fields["order"]),
        wire.read_number(fields["log_likelihood"], math.nan),
        wire.read_count(fields["tried"]),
        None if fields["failure"] is None else wire.read_text(fields["failure"]),
    )
