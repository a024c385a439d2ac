"""What exploring an arm is worth, against the definition, and what it does."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from undertow.compiled.kernel import plain
from undertow.models.worth import beta, lifetime, worth


def gain(difference: float, deviation: float) -> float:
    """Return E[max(0, N(−Δ, σ²))] by quadrature."""
    value, _ = quad(lambda x: x * norm.pdf(x, -difference, deviation), 0.0, 12.0 * deviation)
    return float(value)


@pytest.mark.parametrize("rounds", [0.02, 1.0, 17.0, 400.0, 2e5])
def test_beta_is_where_one_play_pays_for_itself(rounds: float) -> None:
    x = plain(beta)(rounds)
    assert rounds * gain(x, 1.0) == pytest.approx(x, rel=0.02)  # the table is linear between its entries


@pytest.mark.parametrize("noise", [0.0, 0.3, 4.0, 90.0, 2500.0])
@pytest.mark.parametrize("rounds", [3.0, 60.0, 5000.0])
def test_the_width_is_the_largest_distance_at_which_some_number_of_plays_pays(noise: float, rounds: float) -> None:
    """By search over all numbers of plays; three of them are tried in the kernel."""
    unknown, best = 2.0, 0.0
    for n in np.geomspace(1.0, max(1.0, 20.0 * noise), 200):
        best = max(best, math.sqrt(unknown * n / (n + noise / unknown)) * plain(beta)(rounds / n))
    assert plain(worth)(unknown, noise, rounds) == pytest.approx(best, rel=0.1)
    assert plain(worth)(unknown, noise, rounds) <= best * (1 + 1e-9)


def test_what_is_known_is_not_explored() -> None:
    assert plain(worth)(0.0, 1.0, 100.0) == 0.0
    widths = [plain(worth)(1.0 / n, 1.0, 1000.0) for n in (1, 10, 100, 1000)]
    assert widths == sorted(widths, reverse=True)


def test_knowledge_lasts_as_long_as_the_level_and_the_game() -> None:
    assert plain(lifetime)(0.9, 1000) == pytest.approx(sum(0.9**h for h in range(1000)))
    assert plain(lifetime)(-0.5, 1000) == pytest.approx(2.0)
    assert plain(lifetime)(1.0, 99) == 100.0
    assert plain(lifetime)(0.9999, 99) == 100.0
