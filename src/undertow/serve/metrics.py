"""Metrics for Prometheus: those of bandits, the same from any worker, and the requests of this worker."""

import os

from starlette.requests import Request
from starlette.responses import Response

from undertow.live.metrics import Measure, exposition
from undertow.serve.endpoints import refusal
from undertow.serve.service import Service

__all__ = ["Metrics"]

_OWN = (
    "refused_rewards_total",
    "problems",
    "fits_under_way",
    "reward_delay_seconds",
)  # different for each worker
_MOST = 200  # bandits of an answer


class Metrics:
    """The metrics of the most recently active bandits, or of one (`?bandit=courier`), and of this worker."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, request: Request) -> Response:
        """Answer a scrape."""
        try:
            self._service.check_role(request.scope, "read")
            text = await self._service.run(self._text, request.query_params.get("bandit"))
        except Exception as error:
            return refusal(error)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    def _text(self, bandit: str | None) -> str:
        bandits = self._service.bandits
        if bandit is None:
            found = sorted(bandits.store.overview(), key=lambda each: -max(each.decided or 0, each.rewarded or 0))
            names = sorted(each.name for each in found[:_MOST] if bandits.serves(each.name))
        else:
            names = [bandit]
        measures: list[Measure] = []
        for name in names:
            measures += map(_with_worker, bandits[name].measures())
        return exposition(measures) + self._service.counters.text()


def _with_worker(measure: Measure) -> Measure:
    """Label metrics that differ between workers."""
    if measure.name not in _OWN:
        return measure
    return measure._replace(labels=measure.labels | {"worker": str(os.getpid())})
