"""A policy that chooses the language model of each request of LiteLLM's router.

A request is a round, an arm is a model, the reward is the quality of the answer. The id of the decision travels in the
request's metadata, so that quality is credited to the model that answered, however often LiteLLM tried again before.
"""

import asyncio
import inspect
import logging
import random
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from undertow import _checks
from undertow.errors import InvalidInputError, UndertowError, UnknownDecisionError
from undertow.live import LivePolicy

with _checks.needing("this adapter", "litellm"):
    import litellm
    from litellm.integrations.custom_logger import CustomLogger
    from litellm.router import Router
    from litellm.types.router import CustomRoutingStrategyBase

__all__ = ["UndertowRouting"]

_LOG = logging.getLogger("undertow.adapters.litellm")
_BUCKETS = ("litellm_metadata", "metadata")  # where LiteLLM keeps a request's metadata, by the kind of call
_Deployment = Mapping[str, Any]


class UndertowRouting(CustomRoutingStrategyBase, CustomLogger):
    """A policy that chooses the model of each request.

    It registers itself as the router's strategy, and with `litellm.callbacks` for what becomes of the requests. Groups
    of deployments of which none is an arm are routed as before.

    Parameters
    ----------
    router
        The router. A deployment is the arm that has its `model_info.id`, its `litellm_params.model` or its
        `model_name`, the first of them that is an arm. If several deployments are one arm, one is drawn at random.
    policy
        The policy, or a bandit of `undertow.open`; its arms are models. Known prices are its `cost`.
    quality
        A function of the request's messages and the answer that returns the answer's quality, or None if that is not
        known yet; it may be a coroutine. It runs after the answer has been given. Without it, say the quality by
        `learn`.
    features
        A function of the request's messages and its keyword arguments that returns the policy's features.
    failure
        Quality of a request that ended with an error or a time-out. By default such a decision gets no reward.

    See docs/router.md for an example.
    """

    def __init__(
        self,
        router: Router,
        policy: LivePolicy,
        *,
        quality: Callable[[Any, Any], Any] | None = None,
        features: Callable[[Any, Mapping[str, Any]], Any] | None = None,
        failure: float | None = None,
    ) -> None:
        super().__init__()
        if getattr(policy, "context_dim", 0):
            raise InvalidInputError(
                "policy: requests overlap, so there are no contexts in turn; build it with context_dim=0, and give "
                "what is known of a request as features"
            )
        for name, given in (("quality", quality), ("features", features)):
            if given is not None and not callable(given):
                raise InvalidInputError(f"{name}: expected a function, or None, got {given!r:.60}")
        self.policy, self.quality, self.features = policy, quality, features
        self.failure = None if failure is None else _checks.number("failure", failure)
        self._router = router
        # Of a request's metadata, for this routing alone; public, since LiteLLM takes loggers of a class for one if all
        # their public strings and numbers are equal.
        self.key = f"undertow_{secrets.token_hex(4)}"
        self._before: Any = SimpleNamespace(
            get_available_deployment=router.get_available_deployment,
            async_get_available_deployment=router.async_get_available_deployment,
        )
        if not self._by_arm(router.model_list):
            raise InvalidInputError(
                f"policy: none of its arms {', '.join(policy.names):.80} is a deployment of the router; name arms by "
                f"model_info.id, litellm_params.model or model_name"
            )
        router.set_custom_routing_strategy(self)
        litellm.logging_callback_manager.add_litellm_callback(self)

    def close(self) -> None:
        """Let the router choose by itself again."""
        self._router.set_custom_routing_strategy(self._before)
        litellm.logging_callback_manager.remove_callback_from_all_lists(self)

    # Quality

    def decision_id(self, answer: Any) -> str:
        """Return the id of the decision behind an answer; behind a stream, when it has begun."""
        hidden = getattr(answer, "_hidden_params", None)
        if not isinstance(hidden, dict) or "litellm_call_id" not in hidden or hidden.get("cache_hit"):
            raise UnknownDecisionError(
                f"answer: expected an answer of this router, or the stream it returned, and none that was cached; got "
                f"{answer!r:.60}"
            )
        return str(hidden["litellm_call_id"])

    def learn(self, answer: Any, quality: float) -> None:
        """Learn the quality of an answer, given as the answer or as its decision's id, now or days later."""
        self.policy.learn(answer if isinstance(answer, str) else self.decision_id(answer), quality)

    # What LiteLLM calls: the choice

    async def async_get_available_deployment(
        self,
        model: str,
        messages: Any = None,
        input: Any = None,
        specific_deployment: bool | None = False,
        request_kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Choose among the deployments that are not in cool-down."""
        given = {"model": model, "messages": messages, "input": input, "specific_deployment": specific_deployment}
        request: dict[str, Any] = {} if request_kwargs is None else request_kwargs
        healthy = await self._router.async_get_healthy_deployments(**given, request_kwargs=request)
        offered = await _aside(self._by_arm, [healthy] if isinstance(healthy, dict) else healthy)
        if not offered:
            self._mark(request, None)  # an earlier attempt was a decision; who answers now is none
            return await self._before.async_get_available_deployment(**given, request_kwargs=request)
        return await _aside(self._choose, offered, messages, request)

    def get_available_deployment(
        self,
        model: str,
        messages: Any = None,
        input: Any = None,
        specific_deployment: bool | None = False,
        request_kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Choose in a synchronous call; LiteLLM finds out who is in cool-down in asynchronous ones only."""
        return _in_thread(
            self.async_get_available_deployment(model, messages, input, specific_deployment, request_kwargs)
        )

    def _choose(self, offered: Mapping[str, Sequence[_Deployment]], messages: Any, request: dict[str, Any]) -> Any:
        features = () if self.features is None else (self.features(messages, request),)
        decision = self.policy.decide(*features, available=list(offered))
        self._mark(request, decision.id)
        return random.choice(offered[decision.name])

    def _mark(self, request: dict[str, Any], id: str | None) -> None:
        """Have a request carry its decision: in a copy of its metadata, since requests may share theirs."""
        bucket = next((name for name in _BUCKETS if request.get(name)), "metadata")
        kept = {key: value for key, value in (request.get(bucket) or {}).items() if key != self.key}
        if id is not None:
            request["litellm_call_id"] = kept[self.key] = id  # the answer shows the first, callbacks both
        elif len(kept) < len(request.get(bucket) or {}):
            del request["litellm_call_id"]
        request[bucket] = kept

    def _by_arm(self, deployments: Sequence[_Deployment]) -> dict[str, list[_Deployment]]:
        """Return the deployments of each arm that can be played."""
        arms, found = set(self.policy.names).difference(self.policy.retired), dict[str, list[_Deployment]]()
        for deployment in deployments:
            names = deployment.get("model_info", {}).get("id"), deployment["litellm_params"]["model"]
            arm = next((name for name in (*names, deployment["model_name"]) if name in arms), None)
            if arm is not None:
                found.setdefault(arm, []).append(deployment)
        return found

    # What LiteLLM calls: what became of it, with these very names of arguments

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Learn the quality of an answer, unless it is one that was remembered."""
        id = self._decision_of(kwargs)
        if id is None or self.quality is None or kwargs.get("cache_hit"):
            return
        try:
            quality = self.quality(kwargs.get("messages"), response_obj)
            if inspect.isawaitable(quality):
                quality = await quality
        except Exception:
            _LOG.exception("quality failed for decision %s, which gets no reward by itself", id)
            return
        await _aside(self._learn, id, quality)

    async def async_log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Learn the quality of a request that ended with an error or a time-out, if it has one."""
        id = self._decision_of(kwargs)
        if id is not None:
            await _aside(self._learn, id, self.failure)

    def log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Learn the quality of an answer in a synchronous call."""
        _in_thread(self.async_log_success_event(kwargs, response_obj, start_time, end_time))

    def log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Learn the quality of a failure in a synchronous call."""
        _in_thread(self.async_log_failure_event(kwargs, response_obj, start_time, end_time))

    def _decision_of(self, kwargs: Mapping[str, Any]) -> str | None:
        """Return the id of the decision that a request carries."""
        given = kwargs.get("litellm_params") or {}
        return next((found for name in _BUCKETS if (found := (given.get(name) or {}).get(self.key))), None)

    def _learn(self, id: str, quality: float | None) -> None:
        if quality is None:
            return
        try:
            self.policy.learn(id, quality)
        except UndertowError as error:
            _LOG.warning("quality of decision %s was refused: %s", id, error)


async def _aside(call: Callable[..., Any], *given: Any) -> Any:
    """Call a function on a thread, since a durable policy waits for the disk."""
    try:
        called = asyncio.get_running_loop().run_in_executor(None, call, *given)
    except RuntimeError:  # the interpreter ends, and starts no more threads
        return call(*given)
    return await called


def _in_thread(call: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end; LiteLLM makes synchronous calls inside a loop of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, call).result()
