"""What the OpenAPI document allows, and what it does not: the service answers as the document says, and never fails."""

from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode

from served import in_thread
from undertow.serve import Client, application
from undertow.serve.calls import CALLS

CASES = {GenerationMode.POSITIVE: 80, GenerationMode.NEGATIVE: 20}  # of each call


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with in_thread(application(f"sqlite:///{tmp_path_factory.mktemp('schema')}/a.db")) as url:
        with Client(url) as client:
            client.create("contexts", "linucb", ["bike", "van"], context_dim=1, feature_dim=2)
            client.create("plain", "ucb", ["bike", "van"])
        yield url


@pytest.fixture(scope="module")
def schema(url: str) -> Any:
    return schemathesis.openapi.from_url(f"{url}/openapi.json")


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.function.__name__)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
def test_the_service_is_as_its_document_says(schema: Any, call: Any, mode: GenerationMode) -> None:
    path = call.path.replace(":path", "")
    operation = schema[path][call.method]
    # What the schema allows can still not fit the bandit
    excluded = schemathesis.checks.CHECKS.get_by_names(["positive_data_acceptance"])
    made = 0

    @hypothesis.settings(
        max_examples=CASES[mode],
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(operation.as_strategy(generation_mode=mode))
    def attempt(case: Any) -> None:
        nonlocal made
        made += 1
        if made % 3 and "name" in case.path_parameters:  # mostly of bandits that exist
            case.path_parameters["name"] = ("contexts", "plain")[made % 2]
        response = case.call()
        assert response.status_code < 500
        if response.status_code == 413:  # which the document's limits of lists allow
            return
        case.validate_response(response, excluded_checks=excluded)

    attempt()
    assert made >= CASES[mode]


def test_there_are_a_thousand_cases() -> None:
    assert sum(CASES.values()) * len(CALLS) >= 1000
