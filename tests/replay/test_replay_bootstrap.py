import numpy as np
import pytest
import scipy.signal

from undertow import InvalidInputError
from undertow.replay.bootstrap import block_length, check_block, interval, resampled_means


def autoregression(n: int, φ: float, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal(n + 200)
    return np.asarray(scipy.signal.lfilter([1], [1, -φ], noise)[200:])


def test_all_series_share_their_blocks() -> None:
    x = np.random.default_rng(0).standard_normal(100)
    means = resampled_means(np.stack([x, 3 * x - 2], axis=1), block=7, resamples=200, seed=1)
    assert means[:, 1] == pytest.approx(3 * means[:, 0] - 2)
    assert np.ptp(means[:, 0]) > 0


def test_a_resample_is_made_of_whole_blocks_that_wrap_around() -> None:
    """With marks that tell how often each round was drawn: n rounds in all, in runs of whole blocks and one cut one."""
    n, block = 23, 5
    counts = n * resampled_means(np.eye(n), block=block, resamples=300, seed=2)
    assert counts == pytest.approx(np.round(counts))
    assert counts.sum(axis=1) == pytest.approx(n)
    # a block of five begins where the count rises; around the circle it rises at five places at the most
    assert ((counts > np.roll(counts, 1, axis=1) + 0.5).sum(axis=1) <= 5).all()
    # every round is drawn equally often, whether at the edge or not: 300 · 23 draws, five standard errors
    drawn = counts.mean(axis=0)
    assert np.abs(drawn - 1).max() < 5 * counts.std(axis=0).max() / np.sqrt(300)
    assert resampled_means(np.arange(9.0)[:, None], block=9, resamples=20)[:, 0] == pytest.approx(4.0)


def test_single_rounds_have_the_variance_of_a_mean() -> None:
    x = np.random.default_rng(3).standard_normal(400)
    means = resampled_means(x[:, None], block=1, resamples=4000, seed=0)[:, 0]
    error = x.std() / 20
    assert abs(means.std() / error - 1) < 5 / np.sqrt(2 * 4000)
    assert abs(means.mean() - x.mean()) < 5 * error / np.sqrt(4000)


def test_a_seed_fixes_everything() -> None:
    x = np.random.default_rng(0).standard_normal((50, 2))
    assert (resampled_means(x, block=4, seed=5) == resampled_means(x, block=4, seed=5)).all()
    assert (resampled_means(x, block=4, seed=5) != resampled_means(x, block=4, seed=6)).any()


@pytest.mark.parametrize("φ", [0.5, 0.8])
def test_block_length_is_near_the_best_for_an_autoregression(φ: float) -> None:
    """Closed form for AR(1): G/g = 2φ/(1 − φ²), so b = (1.5 (2φ/(1 − φ²))²)^(1/3) n^(1/3); 40 seeds, within 15 %."""
    n = 5000
    best = (1.5 * (2 * φ / (1 - φ**2)) ** 2) ** (1 / 3) * n ** (1 / 3)
    found = [block_length(autoregression(n, φ, seed)) for seed in range(40)]
    assert abs(np.median(found) / best - 1) < 0.15


def test_block_length_agrees_with_another_implementation() -> None:
    """What arch 8.0.0, optimal_block_length(…)["circular"], says of these series: 132.84, 100.37 and 36.58."""
    noise = np.random.default_rng(0).standard_normal(5000)
    assert block_length(np.convolve(noise, np.ones(50), "valid")) == 133
    rough = np.random.default_rng(5000).standard_normal(5500)
    assert block_length(scipy.signal.lfilter([1], [1, -0.95], rough)[500:]) == 101
    assert abs(block_length(scipy.signal.lfilter([1], [1, -0.7], rough)[500:]) - 36.58) < 2


def test_block_length_of_plain_series() -> None:
    assert block_length(np.zeros(100)) == 1
    assert block_length(np.full(100, 1e9)) == 1
    assert block_length(np.arange(5.0)) == 1
    assert block_length(np.arange(900.0)) <= 90  # at most 3 √n
    assert np.median([block_length(autoregression(1000, 0.0, seed)) for seed in range(20)]) <= 3


def test_intervals_cover_about_as_often_as_they_say() -> None:
    """95 % intervals of the mean of AR(0.6), n = 600, seeds 0 to 299: between 88 and 97 %; single rounds: far less."""
    hits, naive = 0, 0
    for seed in range(300):
        x = autoregression(600, 0.6, seed)[:, None]
        low, high = interval(
            resampled_means(x, block=block_length(x[:, 0]), resamples=400, seed=seed), lambda m: m[:, 0]
        )
        hits += low <= 0 <= high
        low, high = interval(resampled_means(x, block=1, resamples=400, seed=seed), lambda m: m[:, 0])
        naive += low <= 0 <= high
    assert 0.88 < hits / 300 < 0.97
    assert naive / 300 < 0.75


def test_interval_of_nothing() -> None:
    low, high = interval(np.zeros((10, 2)), lambda m: m[:, 0] / m[:, 1])
    assert np.isnan(low)
    assert np.isnan(high)


@pytest.mark.parametrize("unit", [1e-13, 1.0, 1e160])
def test_units_do_not_change_the_length_of_blocks(unit: float) -> None:
    series = np.convolve(np.random.default_rng(0).standard_normal(2000), np.ones(20), "valid")
    assert block_length(unit * series) == block_length(series) > 1


def test_blocks_are_at_most_a_third_of_the_rounds() -> None:
    check_block(None, 60)
    check_block(20, 60)
    with pytest.raises(InvalidInputError, match="block: expected at most 20, a third of the 60 rounds judged, got 21"):
        check_block(21, 60)
