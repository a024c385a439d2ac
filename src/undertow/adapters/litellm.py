"""A policy that chooses the language model of each request of LiteLLM's router.

A request is a round, an arm is a model, the reward is the quality of the answer. The id of the decision is in the
request's metadata, so that quality is credited to the model that answered, however often LiteLLM retried.
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

from undertow.errors import InvalidInputError, UndertowError, UnknownDecisionError
from undertow.live import LivePolicy
from undertow.support import checks

with checks.needing("this adapter", "litellm"):
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

    It registers as the router's strategy, and with `litellm.callbacks` for the outcomes of requests. Groups of
    deployments without an arm are routed as before.

    Parameters
    ----------
    router
        The router. A deployment is the arm that has its `model_info.id`, its `litellm_params.model` or its
        `model_name`, the first of them that is an arm. If several deployments are one arm, one is chosen at random.
    policy
        The policy, or a bandit of `undertow.open`; its arms are models. Known prices are its `cost`.
    quality
        A function of the request's messages and the answer that returns the answer's quality, or None if unknown so
        far; it may be a coroutine. It runs after the answer has been returned. Without it, report the quality with
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
                "policy: requests overlap, so contexts have no order; build it with "
                "context_dim=0, and pass features of the request"
            )
        for name, given in (("quality", quality), ("features", features)):
            if given is not None and not callable(given):
                raise InvalidInputError(f"{name}: expected a function, or None, got {given!r:.60}")
        self.policy, self.quality, self.features = policy, quality, features
        self.failure = None if failure is None else checks.number("failure", failure)
        self._router = router
        # Key of a request's metadata, for this routing alone; public, since LiteLLM takes loggers of a class for one if
        # all their public strings and numbers are equal.
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
        """Restore the router's own strategy."""
        self._router.set_custom_routing_strategy(self._before)
        litellm.logging_callback_manager.remove_callback_from_all_lists(self)

    # Quality

    def decision_id(self, answer: Any) -> str:
        """Return the id of the decision behind an answer, or behind a stream once it has begun."""
        hidden = getattr(answer, "_hidden_params", None)
        if not isinstance(hidden, dict) or "litellm_call_id" not in hidden or hidden.get("cache_hit"):
            raise UnknownDecisionError(
                f"answer: expected an answer or a stream of this router, not from a cache; got {answer!r:.60}"
            )
        return str(hidden["litellm_call_id"])

    def learn(self, answer: Any, quality: float) -> None:
        """Learn the quality of an answer (or of its decision's id), now or days later."""
        self.policy.learn(answer if isinstance(answer, str) else self.decision_id(answer), quality)

    # Called by LiteLLM: the choice

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
            self._mark(request, None)  # the decision was an earlier attempt, not this one
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
        """Choose in a synchronous call; LiteLLM knows cool-downs in asynchronous ones only."""
        return _in_thread(
            self.async_get_available_deployment(model, messages, input, specific_deployment, request_kwargs)
        )

    def _choose(self, offered: Mapping[str, Sequence[_Deployment]], messages: Any, request: dict[str, Any]) -> Any:
        features = () if self.features is None else (self.features(messages, request),)
        decision = self.policy.decide(*features, available=list(offered))
        self._mark(request, decision.id)
        return random.choice(offered[decision.name])

    def _mark(self, request: dict[str, Any], id: str | None) -> None:
        """Attach a decision to a request, in a copy of its metadata, since requests may share theirs."""
        bucket = next((name for name in _BUCKETS if request.get(name)), "metadata")
        kept = {key: value for key, value in (request.get(bucket) or {}).items() if key != self.key}
        if id is not None:
            request["litellm_call_id"] = kept[self.key] = id  # the answer has the first, callbacks have both
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

    # Called by LiteLLM: the outcome, with exactly these argument names

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Learn the quality of an answer, unless it is from a cache."""
        id = self._decision_of(kwargs)
        if id is None or self.quality is None or kwargs.get("cache_hit"):
            return
        try:
            quality = self.quality(kwargs.get("messages"), response_obj)
            if inspect.isawaitable(quality):
                quality = await quality
        except Exception:
            _LOG.exception("quality failed for decision %s, which gets no automatic reward", id)
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
        """Return the id of a request's decision."""
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
    except RuntimeError:  # the interpreter is ending and starts no more threads
        return call(*given)
    return await called


def _in_thread(call: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end; LiteLLM makes synchronous calls inside its own loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, call).result()
