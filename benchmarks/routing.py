"""The cost of a policy to a request through LiteLLM's router: with and without it in turn, providers that take no time.

The decision and the reward, with LiteLLM's own work for a strategy and a callback. Written to out/bench/routing.json.
"""

import asyncio
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else importing it asks the network for prices

import litellm
from litellm.litellm_core_utils.logging_worker import GLOBAL_LOGGING_WORKER
from litellm.router import Router

import undertow
from benchmarks.report import OUT, Report
from undertow.adapters.litellm import UndertowRouting
from undertow.policies import UCB, Autopilot, StructuralKalman

MODELS = ["small", "large"]
REQUESTS, TURNS, WARM_UP = 200, 5, 100


def router() -> Router:
    """Return a router whose models answer immediately."""
    return Router(
        model_list=[
            {
                "model_name": "chat",
                "litellm_params": {"model": f"openai/{name}", "mock_response": name},
                "model_info": {"id": name},
            }
            for name in MODELS
        ]
    )


async def requests(choosing: Router, count: int) -> float:
    """Make requests one after another; return the milliseconds of one, its callback included."""
    start = time.perf_counter()
    for _ in range(count):
        await choosing.acompletion(model="chat", messages=[{"role": "user", "content": "Hello"}])
    await GLOBAL_LOGGING_WORKER.flush()
    return 1e3 * (time.perf_counter() - start) / count


async def measured(policies: dict[str, Callable[[], Any] | None]) -> dict[str, list[float]]:
    """Return the milliseconds of a request with every policy, in turn."""
    times: dict[str, list[float]] = {name: [] for name in policies}
    made = {name: None if make is None else make() for name, make in policies.items()}
    for turn in range(TURNS + 1):
        for name, policy in made.items():
            choosing = router()
            routing = None if policy is None else UndertowRouting(choosing, policy, quality=lambda *_: 0.5)
            found = await requests(choosing, REQUESTS if turn else WARM_UP)
            if turn:
                times[name].append(found)
            if routing is not None:
                routing.close()
    return times


def main() -> None:
    """Measure a router alone, with policies in memory, and with one in a store."""
    logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
    litellm.suppress_debug_info = True
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        times = asyncio.run(
            measured(
                {
                    "LiteLLM's own choice": None,
                    "UCB": lambda: UCB(arms=MODELS),
                    "StructuralKalman": lambda: StructuralKalman(arms=MODELS, refit="background"),
                    "Autopilot": lambda: Autopilot(arms=MODELS, refit="background"),
                    "StructuralKalman, SQLite": lambda: undertow.open(
                        f"sqlite:///{folder}/models.db", "chat", StructuralKalman(arms=MODELS, refit="background")
                    ),
                }
            )
        )
    alone = statistics.median(times["LiteLLM's own choice"])
    rows = {
        name: [f"{statistics.median(found):.2f}", f"{statistics.median(found) - alone:+.2f}"]
        for name, found in times.items()
    }
    report.grid("A request through LiteLLM's router", ["ms a request", "more than by itself"], rows)
    report.save(OUT / "routing.json")


if __name__ == "__main__":
    main()
