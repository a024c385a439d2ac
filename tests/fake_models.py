"""A provider of language models that needs no network, and fails, is slow or breaks off as often as it is told to."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import litellm
from litellm.exceptions import Timeout
from litellm.llms.custom_llm import CustomLLM, CustomLLMError
from litellm.utils import custom_llm_setup


class FakeProvider(CustomLLM):
    """Every model answers with its own name."""

    def __init__(self, *, error: float = 0.0, timeout: float = 0.0, slow: float = 0.0, seed: int = 0) -> None:
        super().__init__()
        self.error, self.timeout, self.slow = error, timeout, slow
        self.random, self.broken, self.calls = random.Random(seed), set[str](), Counter[str]()

    def attempt(self, model: str) -> None:
        self.calls[model] += 1
        fate = self.random.random()
        if model in self.broken or fate < self.error:
            raise CustomLLMError(500, f"{model} is down")  # type: ignore[no-untyped-call]
        if fate < self.error + self.timeout:
            raise Timeout("too slow", model, "fake")

    def answer(self, **asked: Any) -> Any:
        return litellm.mock_completion(model=asked["model"], messages=asked["messages"], mock_response=asked["model"])

    def completion(self, *_: Any, **asked: Any) -> Any:
        self.attempt(asked["model"])
        return self.answer(**asked)

    async def acompletion(self, *_: Any, **asked: Any) -> Any:
        self.attempt(asked["model"])
        await asyncio.sleep(self.slow * self.random.random())
        return self.answer(**asked)

    async def astreaming(self, *_: Any, **asked: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        parts = self.random.randrange(1, 5)
        for part in range(parts):
            await asyncio.sleep(0)
            if part == parts - 1:
                self.attempt(asked["model"])  # at its end: before the first part, or after some
            last = part == parts - 1
            text = asked["model"] if part == 0 else " "
            common = {"index": 0, "tool_use": None, "usage": None}
            yield {"finish_reason": "stop" if last else None, "is_finished": last, "text": text, **common}


def provide(provider: FakeProvider) -> None:
    """Have LiteLLM ask a provider for the models fake/…"""
    litellm.custom_provider_map = [{"provider": "fake", "custom_handler": provider}]
    custom_llm_setup()  # type: ignore[no-untyped-call]


def deployment(name: str, group: str = "chat") -> dict[str, Any]:
    return {"model_name": group, "litellm_params": {"model": f"fake/{name}"}, "model_info": {"id": name}}
