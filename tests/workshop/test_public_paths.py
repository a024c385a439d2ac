"""Public paths and names: a move inside the package takes none of them away, and a retired name says its new one."""

import importlib
import operator
from pathlib import Path
from typing import Any

import pytest

import undertow
from tables import Terminal
from undertow import UCB, Decision
from undertow.live import LivePolicy
from undertow.support.renamed import OF_POLICIES

PATHS = dict(line.split(maxsplit=1) for line in Path(__file__).with_name("public.txt").read_text().splitlines())


@pytest.mark.parametrize("module", PATHS)
def test_public_names_stay_where_they_are(module: str) -> None:
    found = importlib.import_module(module)
    assert [name for name in PATHS[module].split() if not hasattr(found, name)] == []


def test_the_root_lists_its_names() -> None:
    assert sorted(undertow.__all__) == PATHS["undertow"].split()


@pytest.mark.parametrize(
    ("module", "name", "now"),
    [
        ("undertow", "warm_up", "precompile"),
        ("undertow.live", "Claims", "Capabilities"),
        ("undertow.policies", "Claims", "Capabilities"),
        ("undertow.compiled", "present_moment", "present_time_step"),
        ("undertow.simulation", "play_by_hand", "play_in_python"),
    ],
)
def test_a_retired_name_says_its_new_one(module: str, name: str, now: str) -> None:
    with pytest.raises(ImportError, match=f"{module}.{name} is called {now} since"):
        exec(f"from {module} import {name}")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = importlib.import_module(module).nothing


def test_retired_attributes_parameters_and_hooks_say_their_new_names() -> None:
    policy: Any = UCB(arms=2)
    decision: Any = policy.decide()
    with pytest.raises(AttributeError, match=r"'moment', it is called time_step since"):
        _ = decision.moment
    for name, now in OF_POLICIES.items():
        with pytest.raises(AttributeError, match=f"{name!r}, it is called {now} since"):
            getattr(policy, name)
        operator.attrgetter(now)(policy)  # is there
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        _ = policy.nothing
    with pytest.raises(TypeError, match="minimise: it is called minimize since"):
        UCB(arms=2, minimise=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Mine\._welcome: it is called _init_arm since"):
        type("Mine", (LivePolicy,), {"_welcome": None})


def test_a_retired_command_says_its_new_name(command: Terminal) -> None:
    done = command("warm", "linucb")
    assert (done.status, done.err) == (2, "undertow: warm: it is called precompile since undertow 0.3.0\n")


def test_a_decision_of_an_earlier_version_is_read() -> None:
    decision = UCB(arms=2).decide()
    assert Decision.from_json(decision.to_json().replace("time_step", "moment")).time_step == decision.time_step == 0
