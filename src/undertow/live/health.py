"""The health of a policy, as a status summary."""

from typing import NamedTuple

import msgspec

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
        """Return everything as a JSON object, with `ok` and `problems`; null is NaN, "inf" and "-inf" are infinite."""
        entries = {name: getattr(self, name) for name in _Health.__struct_fields__}
        level = {name: wire.plain(level) for name, level in self.level.items()}
        fits = [record._asdict() | {"log_likelihood": wire.plain(record.log_likelihood)} for record in self.fits]
        return wire.write(entries | {"level": level, "fits": fits})

    @classmethod
    def from_json(cls, text: str) -> "Health":
        """Parse the output of `to_json`."""
        return wire.read(cls, text, _Health)


class _FitRecord(wire.Form):
    model: str
    round: wire.Count
    order: wire.Count
    log_likelihood: wire.Number
    tried: wire.Count
    failure: str | None

    def made(self) -> FitRecord:
        likelihood = wire.number(self.log_likelihood)
        return FitRecord(*msgspec.structs.astuple(self))._replace(log_likelihood=likelihood)


class _Health(wire.Form):
    policy: str
    ok: bool
    problems: tuple[str, ...]
    round: wire.Count
    pending: wire.Count
    waited: wire.Count
    refused: dict[str, wire.Count]
    refused_lately: wire.Count
    innovations: dict[str, wire.Numbers]
    level: dict[str, wire.Number]
    alarms: dict[str, wire.Count]
    fits: tuple[_FitRecord, ...]
    under_way: tuple[str, ...]

    def made(self) -> Health:
        health = Health(*(getattr(self, name) for name in Health._fields))._replace(
            innovations={name: wire.array(values) for name, values in self.innovations.items()},
            level={name: wire.number(level) for name, level in self.level.items()},
            fits=tuple(record.made() for record in self.fits),
        )
        if (self.ok, self.problems) != (health.ok, health.problems):
            raise ValueError("ok and problems contradict the rest")
        return health
