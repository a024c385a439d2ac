"""Requests through LiteLLM's own router, with a provider that needs no network."""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import litellm
import numpy as np
import pytest
from litellm.exceptions import InternalServerError
from litellm.integrations.custom_logger import CustomLogger
from litellm.litellm_core_utils.logging_worker import GLOBAL_LOGGING_WORKER
from litellm.router import Router

import undertow
from fake_models import FakeProvider, deployment, provide
from undertow import InvalidInputError, UnknownDecisionError
from undertow.adapters.litellm import UndertowRouting
from undertow.live.events import Decided, Event, Rewarded
from undertow.policies import UCB, LinUCB, LivePolicy

pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine 'FakeProvider:RuntimeWarning"),  # dropped when a request is cancelled
]
WORTH = {"small": 0.1, "middle": 0.2, "large": 0.3, "spare": 0.4}
ASK: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture(autouse=True)
def _no_callbacks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kinds = ("callbacks", "success_callback", "failure_callback", "_async_success_callback", "_async_failure_callback")
    before = {kind: list(getattr(litellm, kind)) for kind in kinds}
    monkeypatch.setattr(litellm, "suppress_debug_info", True)
    logging.getLogger("LiteLLM Router").setLevel(logging.CRITICAL)
    yield
    for kind, callbacks in before.items():
        getattr(litellm, kind)[:] = callbacks


def router(*names: str, **options: Any) -> Router:
    models = [deployment(name) for name in names or ("small", "middle", "large")]
    return Router(model_list=[*models, deployment("spare", "spare")], **({"num_retries": 0} | options))


def hidden(answer: Any) -> dict[str, Any]:
    """What LiteLLM says of an answer."""
    found: dict[str, Any] = attrgetter("_hidden_params")(answer)
    return found


def worth(messages: Any, answer: Any) -> float:
    return WORTH[answer.choices[0].message.content.strip()]


def followed(policy: Any) -> list[Event]:
    events: list[Event] = []
    policy.events(events.append)
    return events


def decided(events: list[Event]) -> dict[str, Decided]:
    return {event.id: event for event in events if isinstance(event, Decided)}


def rewarded(events: list[Event]) -> dict[str, float]:
    return {event.id: event.reward for event in events if isinstance(event, Rewarded)}


async def called_back() -> None:
    """Wait for LiteLLM, which calls back after it has answered."""
    await asyncio.sleep(0.05)
    await GLOBAL_LOGGING_WORKER.flush()
    await asyncio.sleep(0.05)


async def ask(routing: UndertowRouting, choosing: Router, number: int, metadata: dict[str, Any]) -> Any:
    """Make a request of some kind; return how it ended and, if there was an answer, its decision's id and model."""
    try:
        if number % 4 == 0:
            stream, text = await choosing.acompletion(**ASK, stream=True, metadata=metadata), ""
            async for part in stream:
                text += part.choices[0].delta.content or ""
                if number % 16 == 0:
                    return ("broken off",)
            return "streamed", routing.decision_id(stream), text.strip()
        if number % 7 == 0:
            await asyncio.wait_for(choosing.acompletion(**ASK, metadata=metadata), 0.003)
            return ("in time",)
        answer = await choosing.acompletion(**ASK, metadata=metadata)
        return "answered", routing.decision_id(answer), answer.choices[0].message.content
    except TimeoutError:
        return ("cancelled",)
    except Exception as error:
        return (type(error).__name__,)


async def random_failures(requests: int, seed: int) -> Counter[str]:
    """Make requests of which many fail; every answer has its reward, and every reward is that of who answered."""
    provide(FakeProvider(error=0.1, timeout=0.05, slow=0.01, seed=seed))
    policy = UCB(arms=list(WORTH))
    events = followed(policy)
    choosing = router(fallbacks=[{"chat": ["spare"]}], num_retries=1, retry_after=0, disable_cooldowns=True)
    routing, shared, ended = UndertowRouting(choosing, policy, quality=worth), {"user": "7"}, Counter[str]()
    room = asyncio.Semaphore(50)

    async def request(number: int) -> Any:
        async with room:
            return await ask(routing, choosing, number, shared)

    found = await asyncio.gather(*map(request, range(requests)))
    answers = [rest for _, *rest in found if rest]
    await called_back()
    decisions, rewards = decided(events), rewarded(events)
    for id, reward in rewards.items():
        assert reward == WORTH[policy.names[decisions[id].arm]]
    for id, model in answers:
        assert (policy.names[decisions[id].arm], rewards[id]) == (model, WORTH[model])
    ended.update(how for how, *_ in found)
    ended["filed as spare"] = sum(policy.names[event.arm] == "spare" for event in decisions.values())
    assert all(each.propensity == 1 for each in decisions.values() if policy.names[each.arm] == "spare")
    routing.close()
    return ended


def test_every_answer_is_credited_to_the_model_that_gave_it() -> None:
    ended = asyncio.run(random_failures(300, seed=3))
    assert all(ended[kind] > 0 for kind in ("answered", "streamed", "broken off", "cancelled", "filed as spare"))


@pytest.mark.slow
def test_in_ten_thousand_requests_no_reward_is_lost_or_credited_to_another_model() -> None:
    assert asyncio.run(random_failures(10_000, seed=5)).total() > 10_000


def test_a_model_in_cool_down_cannot_be_chosen() -> None:
    provider = FakeProvider()
    provider.broken = {"large"}
    provide(provider)
    policy = UCB(arms=["small", "large"])
    events, choosing = followed(policy), router("small", "large", allowed_fails=0, cooldown_time=60)
    routing = UndertowRouting(choosing, policy, quality=worth)

    async def requests() -> None:
        for _ in range(12):
            try:
                await choosing.acompletion(**ASK)
            except InternalServerError:
                await asyncio.sleep(0.1)  # the model is in cool-down once LiteLLM has logged the failure
        await called_back()

    asyncio.run(requests())
    assert provider.calls["large"] == 1
    assert [each.available for each in decided(events).values()][-5:] == [(0,)] * 5
    assert len(rewarded(events)) == 11
    routing.close()


def test_a_failure_has_the_quality_that_it_was_given() -> None:
    provider = FakeProvider()
    provider.broken = {"large"}
    provide(provider)
    policy = UCB(arms=["small", "large"])
    events, choosing = followed(policy), router("small", "large", disable_cooldowns=True)
    routing = UndertowRouting(choosing, policy, quality=worth, failure=0.0)

    async def requests() -> None:
        for _ in range(6):
            with contextlib.suppress(InternalServerError):
                await choosing.acompletion(**ASK)
            await asyncio.sleep(0.02)
        await called_back()

    asyncio.run(requests())
    names = {id: policy.names[event.arm] for id, event in decided(events).items()}
    assert {names[id]: reward for id, reward in rewarded(events).items()} == {"small": 0.1, "large": 0.0}
    routing.close()


def test_quality_may_be_a_coroutine_fail_or_come_later_by_id(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    provide(FakeProvider())
    url, choosing = f"sqlite:///{tmp_path}/models.db", router("small", "large")
    policy: Any = undertow.open(url, "chat", UCB(arms=["small", "large"]))
    events, qualities = followed(policy), iter([0.7, None, RuntimeError("no judge"), 0.3])

    heard: list[Any] = []

    class Listener(CustomLogger):
        async def async_log_success_event(self, kwargs: Any, *_: Any, **__: Any) -> None:
            heard.append(kwargs)

    async def judge(messages: Any, answer: Any) -> float | None:
        quality = next(qualities)
        if isinstance(quality, Exception):
            raise quality
        return quality

    routing = UndertowRouting(choosing, policy, quality=judge)
    litellm.callbacks.append(Listener())

    async def requests() -> list[str]:
        ids = [routing.decision_id(await choosing.acompletion(**ASK)) for _ in range(3)]
        await called_back()
        return ids

    first, second, third = asyncio.run(requests())
    assert rewarded(events) == {first: 0.7}
    assert f"quality failed for decision {third}" in caplog.text
    again: Any = undertow.open(url, "chat")  # in another process, days later
    again.learn(second, 0.9)
    routing.learn(third, 0.2)
    routing.learn(third, 0.2)  # a repeat
    assert again.pending == 0
    asyncio.run(routing.async_log_success_event(heard[2], None, None, None))  # a repeat, with another quality
    assert f"quality of decision {third} was refused" in caplog.text
    routing.close()


def test_synchronous_requests_are_decided_and_learned() -> None:
    provide(FakeProvider())
    policy = UCB(arms=["small", "large"])
    events, choosing = followed(policy), router("small", "large")
    routing = UndertowRouting(choosing, policy, quality=worth)
    ids = [routing.decision_id(choosing.completion(**ASK)) for _ in range(4)]
    time.sleep(0.2)  # LiteLLM calls back on a thread
    assert list(decided(events)) == ids
    assert rewarded(events) == {id: WORTH[policy.names[decided(events)[id].arm]] for id in ids}
    routing.close()


def test_an_answer_from_the_cache_teaches_nothing() -> None:
    provide(FakeProvider())
    policy = UCB(arms=["small", "large"])
    events, choosing = followed(policy), router("small", "large")
    routing, heard = UndertowRouting(choosing, policy), dict[str, Any]()

    class Listener(CustomLogger):
        async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
            heard.update(kwargs=kwargs | {"cache_hit": True}, response_obj=response_obj)

    litellm.callbacks.append(Listener())

    async def requests() -> Any:
        answer = await choosing.acompletion(**ASK)
        await called_back()
        routing.quality = worth
        await routing.async_log_success_event(**heard, start_time=None, end_time=None)  # LiteLLM's cache has a server
        return answer

    answer = asyncio.run(requests())
    hidden(answer)["cache_hit"] = True
    with pytest.raises(UnknownDecisionError, match="not from a cache"):
        routing.learn(answer, 0.5)
    assert len(decided(events)) == 1
    assert not rewarded(events)
    routing.close()


def test_features_of_a_request_are_features_of_the_round() -> None:
    provide(FakeProvider())
    policy = LinUCB(arms=["small", "large"], feature_dim=1)
    events, choosing = followed(policy), router("small", "large")

    def length(messages: Any, request: Any) -> list[float]:
        assert request["metadata"]["user"] == "7"
        return [float(len(messages[0]["content"]))]

    routing = UndertowRouting(choosing, policy, quality=worth, features=length)
    asyncio.run(choosing.acompletion(**ASK, metadata={"user": "7"}))
    (event,) = decided(events).values()
    np.testing.assert_array_equal(event.features, [5.0])
    routing.close()


def test_a_fallback_to_a_model_that_is_no_arm_teaches_nothing() -> None:
    provider = FakeProvider()
    provider.broken = {"small", "large"}
    provide(provider)
    policy = UCB(arms=["small", "large"])
    events, choosing = followed(policy), router("small", "large", fallbacks=[{"chat": ["spare"]}], num_retries=1)
    routing = UndertowRouting(choosing, policy, quality=worth)

    async def request() -> Any:
        answer = await choosing.acompletion(**ASK)
        await called_back()
        return answer

    answer = asyncio.run(request())
    assert answer.choices[0].message.content == "spare"
    assert len(decided(events)) >= 1
    assert not rewarded(events)
    with pytest.raises(UnknownDecisionError):
        routing.learn(answer, 1.0)
    routing.close()


def test_two_routers_do_not_hear_of_each_others_requests(caplog: pytest.LogCaptureFixture) -> None:
    provide(FakeProvider())
    policies = [UCB(arms=["small", "large"]) for _ in range(2)]
    heard, routers = [followed(policy) for policy in policies], [router("small", "large") for _ in range(2)]
    routings = [UndertowRouting(*pair, quality=worth) for pair in zip(routers, policies, strict=True)]

    async def requests() -> None:
        for number in (0, 1, 1):
            await routers[number].acompletion(**ASK)
        await called_back()

    asyncio.run(requests())
    assert [len(rewarded(events)) for events in heard] == [1, 2]
    assert "was refused" not in caplog.text
    for routing in routings:
        routing.close()


def test_other_groups_and_a_closed_routing_are_left_to_litellm() -> None:
    provide(FakeProvider())
    policy = UCB(arms=["small", "large"])
    events, choosing = followed(policy), router("small", "large")
    routing = UndertowRouting(choosing, policy, quality=worth)
    answer = asyncio.run(choosing.acompletion(**(ASK | {"model": "spare"})))
    assert answer.choices[0].message.content == "spare"
    assert not events
    routing.close()
    assert asyncio.run(choosing.acompletion(**ASK)).choices[0].message.content in {"small", "large"}
    assert not events
    assert routing not in litellm.callbacks


def test_several_deployments_may_be_one_arm() -> None:
    provider = FakeProvider()
    provide(provider)
    models = [deployment(name) for name in ("small", "large")]
    models += [{**deployment("large"), "model_info": {"id": "large, elsewhere"}}]
    choosing, policy = Router(model_list=models), UCB(arms=["fake/small", "fake/large"])
    events = followed(policy)
    routing = UndertowRouting(choosing, policy, quality=worth)
    used = {hidden(choosing.completion(**ASK))["model_id"] for _ in range(40)}
    assert used == {"small", "large", "large, elsewhere"}
    assert {event.available for event in decided(events).values()} == {(0, 1)}
    policy.retire_arm("fake/large")
    assert {hidden(choosing.completion(**ASK))["model_id"] for _ in range(5)} == {"small"}
    routing.close()


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        (LinUCB(arms=["small", "large"], context_dim=1), {}, "policy: requests overlap, so contexts have no order"),
        (UCB(arms=["one", "two"]), {}, "policy: none of its arms one, two is a deployment of the router"),
        (UCB(arms=["small", "large"]), {"quality": 0.5}, "quality: expected a function, or None, got 0.5"),
        (UCB(arms=["small", "large"]), {"failure": float("nan")}, "failure: expected"),
    ],
)
def test_what_cannot_be_routed_is_refused(policy: LivePolicy, options: dict[str, Any], message: str) -> None:
    choosing = router("small", "large")
    before = list(litellm.callbacks)
    with pytest.raises(InvalidInputError, match=message):
        UndertowRouting(choosing, policy, **options)
    assert litellm.callbacks == before


def test_only_answers_of_the_router_have_a_decision() -> None:
    provide(FakeProvider())
    routing = UndertowRouting(router("small", "large"), UCB(arms=["small", "large"]))
    with pytest.raises(UnknownDecisionError, match="answer: expected an answer or a stream of this router"):
        routing.learn(object(), 1.0)
    routing.close()
