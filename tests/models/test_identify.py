"""The shared system's fit: likelihood, score, steps and prior against slow twins, and the fit on sound and odd data."""

import dataclasses
import math
import re
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from statsmodels.tsa.statespace.mlemodel import MLEModel

from helpers import with_gaps
from twins import naive_identify as naive
from undertow import InvalidInputError, LinearGaussianSystem, kalman, paper_system, random_system
from undertow.identify import FittedSystem, fit
from undertow.models.shared_system.descent import fit_model
from undertow.models.shared_system.em import em_step
from undertow.models.shared_system.information import (
    invert_information,
    limit_radius,
    precondition,
    renew_prior,
    spectral_radius,
)
from undertow.models.shared_system.score import filter_table, information_size, score, store_size
from undertow.models.shared_system.search import Search, fit_one
from undertow.models.shared_system.vector import (
    Prior,
    Scales,
    VectorModel,
    cold_model,
    grown_model,
    rescaled,
    scales_of,
    split_vector,
    standardized,
    to_system,
    vector_size,
)
from undertow.models.table import mostly_one_value

Array = naive.Array
NAN = math.nan
SIZES = [(1, 0, 1), (1, 1, 1), (2, 0, 3), (3, 2, 2), (2, 3, 1), (8, 1, 2)]  # d, m, k
TINY = 1e-12
FIELDS = [field.name for field in dataclasses.fields(LinearGaussianSystem)]


class Scored(NamedTuple):
    objective: float
    log_likelihood: float
    gradient: Array
    information: Array
    disturbed: Array


def random_model(d: int, m: int, k: int, seed: int) -> Array:
    """The vector of a model in which nothing is zero, with a spectral radius of 0.9."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((d, d))
    A *= 0.9 / np.abs(np.linalg.eigvals(A)).max()
    noise = rng.uniform(0.3, 2, m + 1)[np.minimum(np.arange(m + k), m)]
    b, C, D = 0.3 * rng.standard_normal(d), rng.standard_normal((m + k, d)), rng.standard_normal(m + k)
    return naive.pack(naive.Matrices(A, b, C, D, noise), m)


def random_table(n: int, m: int, k: int, seed: int) -> Array:
    """Context entries missing, rounds without an arm, plays without a reward, and one round with nothing at all."""
    rng = np.random.default_rng(seed)
    arms = rng.integers(-1, k, n)
    table = np.column_stack([
        with_gaps(rng.standard_normal((n, m)), 0.3, seed),
        arms,
        with_gaps(rng.standard_normal(n), 0.2, seed + 1),
    ])  # fmt: skip
    table[n // 2] = [NAN] * m + [-1, NAN]
    return table


def sampled_table(π: Array, d: int, m: int, k: int, n: int, seed: int, silent: int = 0) -> Array:
    """A path of a model with random plays and a tenth of the contexts missing, after some rounds without anything."""
    model = VectorModel(d, π, prior_of(m, 1.5))
    path = to_system(model, Scales(np.zeros(m + 1), np.ones(m + 1))).sample(n, rng=seed)
    arms = np.random.default_rng(seed).integers(0, k, n)
    table = np.column_stack([with_gaps(path.contexts, 0.1, seed), arms, path.rewards[np.arange(n), arms]])
    table[:silent] = [NAN] * m + [-1, NAN]
    return table


def prior_of(m: int, variance: float, weight: float = 1.0) -> Array:
    """A prior in which no two numbers agree; its penalties on loadings and offsets are multiplied by a weight."""
    used = np.linspace(0.4, 1.3, m + 1)
    return np.array([variance, 0.7 * weight, 0.3 * weight, 1.9 * weight, 0.4, 0.6 * weight, 0.05, *used])


def scored(π: Array, d: int, m: int, k: int, table: Array, prior: Array) -> Scored:
    store = np.full(store_size(len(table), m), NAN)  # nothing may be read before it is written
    gradient, information = np.full(len(π), NAN), np.full(information_size(m, k), NAN)
    disturbed = np.full((17, 8), NAN)
    both = score(π, d, m, k, table, prior, store, gradient, information, disturbed)
    return Scored(*both, gradient, information, disturbed)


def inverse_of(π: Array, d: int, m: int, k: int, information: Array, prior: Array) -> Array:
    inverse = np.full(len(information), NAN)
    assert invert_information(π, d, m, k, information, prior, inverse)
    return inverse


def after_em(π: Array, d: int, m: int, k: int, table: Array, prior: Array, expand: bool) -> Array:
    at = scored(π, d, m, k, table, prior)
    inverse = inverse_of(π, d, m, k, at.information, prior)
    result = π.copy()
    em_step(result, d, m, k, prior, at.gradient, at.information, at.disturbed, inverse, expand)
    return result


def improved(
    π: Array, d: int, m: int, k: int, table: Array, em_steps: int, evaluations: int
) -> tuple[VectorModel, Array]:
    """What `fit_model` makes of a model, and the log likelihood, freedom and evaluations that it tells."""
    π, prior = π.copy(), prior_of(m, 1.5)
    room = np.empty(store_size(len(table), m)), np.empty(information_size(m, k)), np.empty(information_size(m, k))
    told = fit_model(π, d, m, k, table, prior, em_steps, evaluations, *room)
    return VectorModel(d, π, prior, *told[:2]), np.array(told)


def blocks_of(information: Array, d: int) -> Array:
    """The (d + 1, d + 1) blocks of an information, the constant last."""
    kept = [*range(d), 8]
    return np.asarray(information.reshape(-1, 9, 9)[:, kept][:, :, kept])


def rotation(d: int, seed: int) -> Array:
    return np.asarray(np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0])


# Likelihood


@pytest.mark.parametrize(("d", "m", "k"), SIZES)
def test_likelihood_against_the_twin_and_the_joint_gaussian(d: int, m: int, k: int) -> None:
    π, table = random_model(d, m, k, seed=d), random_table(20, m, k, seed=m)
    store = np.full(store_size(20, m), NAN)
    found = filter_table(π, d, m, k, table, 1.7, store)
    expected, innovations = naive.run_filter(π, d, m, k, table, 1.7)
    assert found == pytest.approx(expected, rel=1e-8)
    assert found == pytest.approx(naive.joint(π, d, m, k, table, 1.7)[0], rel=1e-8)
    search = Search.on(table, m, k)._replace(store=store)
    v, F = search.innovations()
    np.testing.assert_allclose(v / np.sqrt(F), innovations, rtol=1e-8, atol=1e-10)


def test_nothing_seen_has_likelihood_one() -> None:
    π, table = random_model(3, 2, 2, seed=0), np.tile([NAN, NAN, -1, NAN], (5, 1))
    assert filter_table(π, 3, 2, 2, table, 1.0, np.empty(store_size(5, 2))) == 0.0


def test_a_reward_without_an_arm_is_not_looked_at() -> None:
    π, table = random_model(2, 1, 2, seed=0), random_table(10, 1, 2, seed=0)
    spoilt = np.where((table[:, 1] < 0)[:, None], [NAN, -1, 1e9], table)
    silent = np.where((table[:, 1] < 0)[:, None], [NAN, -1, NAN], table)
    store = np.empty(store_size(10, 1))
    assert filter_table(π, 2, 1, 2, spoilt, 1.0, store) == filter_table(π, 2, 1, 2, silent, 1.0, store)


@pytest.mark.parametrize(("m", "k"), [(2, 2), (0, 1)])
def test_likelihood_of_a_fit_against_statsmodels(m: int, k: int) -> None:
    table = sampled_table(random_model(3, m, k, seed=1), 3, m, k, 300, seed=2)
    arms, contexts = table[:, m].astype(int), table[:, :m]
    found = fit(arms, table[:, m + 1], contexts=contexts if m else None, order=3)
    system, rewards = found.system, one_reward_a_round(arms, table[:, m + 1], k)
    model = MLEModel(np.hstack([contexts, rewards]), k_states=3, k_posdef=3)
    model["design"] = np.vstack([system.context_map, system.arms])
    model["obs_intercept"] = np.concatenate([system.context_offset, system.reward_offset])
    model["obs_cov"] = np.diag(np.concatenate([np.diag(system.context_noise), system.reward_noise]))
    model["transition"] = system.dynamics
    model["state_intercept"] = system.drift
    model["selection"] = np.eye(3)
    model["state_cov"] = np.eye(3)
    model.ssm.initialize_known(system.initial_mean, system.initial_covariance)
    assert found.log_likelihood == pytest.approx(model.ssm.filter().llf, rel=1e-8)


# Score


@pytest.mark.parametrize(("d", "m", "k"), SIZES)
def test_score_against_finite_differences_and_fishers_identity(d: int, m: int, k: int) -> None:
    π, table, prior = random_model(d, m, k, seed=d), random_table(20, m, k, seed=m), prior_of(m, 1.7)
    at = scored(π, d, m, k, table, prior)
    assert at.objective == pytest.approx(naive.objective(π, d, m, k, table, prior), rel=1e-8)
    assert at.log_likelihood == pytest.approx(naive.joint(π, d, m, k, table, 1.7)[0], rel=1e-8)
    scale = np.abs(at.gradient).max()
    active = naive.active(d, m, k)
    slopes = naive.numerical_gradient(lambda x: naive.objective(x, d, m, k, table, prior), π, active)
    np.testing.assert_allclose(at.gradient, slopes, atol=1e-6 * scale, rtol=0)
    np.testing.assert_allclose(
        at.gradient, naive.fisher_gradient(π, d, m, k, table, prior), atol=1e-10 * scale, rtol=1e-8
    )
    assert not np.delete(at.gradient, active).any()


@pytest.mark.parametrize(("d", "m", "k"), SIZES)
def test_information_against_the_joint_gaussian(d: int, m: int, k: int) -> None:
    π, table, prior = random_model(d, m, k, seed=d), random_table(20, m, k, seed=m), prior_of(m, 1.7)
    found = scored(π, d, m, k, table, prior).information
    _, moments = naive.joint(π, d, m, k, table, 1.7)
    expected = np.array(naive.information(moments, table, m, k))
    np.testing.assert_allclose(blocks_of(found, d), expected, rtol=1e-8, atol=1e-9)
    assert np.abs(found).sum() == pytest.approx(np.abs(blocks_of(found, d)).sum())  # nothing beyond the order


def test_a_single_round_has_a_score() -> None:
    π, prior = random_model(2, 1, 1, seed=0), prior_of(1, 1.7)
    table = np.array([[0.3, 0.0, -1.2]])
    at = scored(π, 2, 1, 1, table, prior)
    slopes = naive.numerical_gradient(lambda x: naive.objective(x, 2, 1, 1, table, prior), π, naive.active(2, 1, 1))
    np.testing.assert_allclose(at.gradient, slopes, atol=1e-7)


# Basis and padding


@pytest.mark.parametrize(("d", "m", "k"), [(3, 2, 2), (8, 0, 2)])
def test_an_orthogonal_change_of_basis_changes_nothing(d: int, m: int, k: int) -> None:
    π, table, prior = random_model(d, m, k, seed=1), random_table(60, m, k, seed=2), prior_of(m, 1.7)
    turned = naive.pack(naive.rebased(naive.unpack(π, d, m, k), rotation(d, seed=3)), m)
    one, other = scored(π, d, m, k, table, prior), scored(turned, d, m, k, table, prior)
    assert other.log_likelihood == pytest.approx(one.log_likelihood, rel=1e-9)
    assert other.objective == pytest.approx(one.objective, rel=1e-9)
    units = Scales(np.linspace(-1, 2, m + 1), np.linspace(0.5, 3, m + 1))
    rewards = one_reward_a_round(table[:, m].astype(int), table[:, m + 1], k)
    likelihoods = [
        kalman.filter(to_system(VectorModel(d, x, prior), units), table[:, :m], rewards).log_likelihood
        for x in (π, turned)
    ]
    assert likelihoods[0] == pytest.approx(likelihoods[1], rel=1e-9)


def test_a_change_of_basis_turns_the_step_of_em_along() -> None:
    d, m, k = 3, 2, 2
    π, table, prior = random_model(d, m, k, seed=1), random_table(60, m, k, seed=2), prior_of(m, 1.7)
    T = rotation(d, seed=3)
    turned = naive.pack(naive.rebased(naive.unpack(π, d, m, k), T), m)
    before = naive.unpack(after_em(π, d, m, k, table, prior, expand=False), d, m, k)
    after = after_em(turned, d, m, k, table, prior, expand=False)
    np.testing.assert_allclose(after, naive.pack(naive.rebased(before, T), m), atol=1e-9)


def test_a_mode_that_nothing_loads_on_changes_nothing() -> None:
    π, table = random_model(3, 2, 2, seed=1), random_table(40, 2, 2, seed=2)
    model = naive.unpack(π, 3, 2, 2)
    A = np.zeros((5, 5))
    A[:3, :3], A[3:, 3:], A[3:, :3] = model.A, 0.5 * np.eye(2), 0.3  # the new modes listen and say nothing
    larger = model._replace(A=A, b=np.append(model.b, [1.0, 2.0]), C=np.hstack([model.C, np.zeros((4, 2))]))
    store = np.empty(store_size(40, 2))
    one = filter_table(π, 3, 2, 2, table, 1.7, store)
    assert filter_table(naive.pack(larger, 2), 5, 2, 2, table, 1.7, store) == pytest.approx(one, rel=1e-12)


@pytest.mark.parametrize(("d", "m", "k"), [(1, 0, 1), (3, 2, 2), (7, 1, 3)])
def test_what_lies_beyond_the_order_stays_zero(d: int, m: int, k: int) -> None:
    table = sampled_table(random_model(2, m, k, seed=1), 2, m, k, 200, seed=2)
    for start in (cold_model(d, m, k, np.random.default_rng(0)).vector, random_model(d, m, k, seed=3)):
        assert len(start) == vector_size(m, k)
        model, _ = improved(start, d, m, k, table, em_steps=3, evaluations=25)
        assert not np.delete(model.vector, naive.active(d, m, k)).any()
        assert np.count_nonzero(model.vector) == len(naive.active(d, m, k))


def test_a_grown_model_begins_as_what_it_grew_from() -> None:
    small = cold_model(2, 2, 3, np.random.default_rng(0))
    grown = grown_model(small, 3, 2, 3, np.random.default_rng(1))
    before, after = naive.unpack(small.vector, 2, 2, 3), naive.unpack(grown.vector, 5, 2, 3)
    assert grown.order == 5
    np.testing.assert_array_equal(after.A[:2, :2], before.A)
    np.testing.assert_array_equal(after.C[:, :2], before.C)
    assert not after.A[2:, :2].any()  # the old modes go on as before
    assert not np.delete(grown.vector, naive.active(5, 2, 3)).any()


@pytest.mark.parametrize("d", range(1, 9))
def test_a_cold_start_is_stable_and_explains_half(d: int) -> None:
    for seed in range(20):
        model = cold_model(d, 1, 2, np.random.default_rng(seed))
        A = naive.unpack(model.vector, d, 1, 2).A
        assert 0.6 <= np.abs(np.linalg.eigvals(A)).min() <= np.abs(np.linalg.eigvals(A)).max() <= 0.98
        stationary = sum(np.linalg.matrix_power(A, i) @ np.linalg.matrix_power(A, i).T for i in range(800))
        assert np.trace(stationary) == pytest.approx(Prior(model.prior, 0).context_loading_precision, rel=1e-6)


# Steps


@pytest.mark.parametrize(("d", "m", "k"), SIZES)
def test_a_step_of_em_against_the_twin(d: int, m: int, k: int) -> None:
    π, table, prior = random_model(d, m, k, seed=d), random_table(40, m, k, seed=m), prior_of(m, 1.7)
    model, Q = naive.em(π, d, m, k, table, prior)
    plain = after_em(π, d, m, k, table, prior, expand=False)
    np.testing.assert_allclose(plain, naive.pack(model, m), rtol=1e-7, atol=1e-9)
    expanded = after_em(π, d, m, k, table, prior, expand=True)
    T = np.linalg.inv(np.linalg.cholesky(Q))
    np.testing.assert_allclose(expanded, naive.pack(naive.rebased(model, T), m), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(("d", "m", "k", "seed"), [(2, 1, 2, 0), (3, 2, 3, 1), (4, 0, 2, 2)])
def test_plain_em_never_raises_the_objective(d: int, m: int, k: int, seed: int) -> None:
    table = sampled_table(random_model(3, m, k, seed), 3, m, k, 150, seed)
    π, prior = random_model(d, m, k, seed + 10), prior_of(m, 1.7)
    path = [scored(π, d, m, k, table, prior).objective]
    for _ in range(20):
        π = after_em(π, d, m, k, table, prior, expand=False)
        path.append(scored(π, d, m, k, table, prior).objective)
    assert (np.diff(path) <= 1e-9 * abs(path[0])).all()
    assert path[-1] < path[0] - 1


@pytest.mark.parametrize(("d", "m", "k", "seed"), [(2, 1, 2, 0), (3, 2, 3, 1), (4, 0, 2, 2)])
def test_expanded_em_never_lowers_the_likelihood_but_for_the_penalty(d: int, m: int, k: int, seed: int) -> None:
    """A step maximises likelihood minus penalty over models with free state noise, then changes the basis.

    The basis leaves the likelihood alone but for the law of the first state, which is not rescaled: nothing is seen in
    the first 300 rounds, after which nothing is left of it. And it leaves the likelihood alone, not the penalty: what
    cannot fall is the new likelihood minus the penalty before the change of basis, that is, of the plain step.
    """
    table = sampled_table(random_model(3, m, k, seed), 3, m, k, 600, seed, silent=300)
    π, prior = random_model(d, m, k, seed + 10), prior_of(m, 1.7, weight=TINY)
    Prior(prior, 0).noise_scale = TINY  # no penalty on noise; those on A and b have no weight to make small
    naive.spent(prior, m)[:] = 1.0
    before = scored(π, d, m, k, table, prior)
    first = before
    for _ in range(20):
        plain = after_em(π, d, m, k, table, prior, expand=False)
        given = naive.penalty(π, d, m, k, prior) - naive.penalty(plain, d, m, k, prior)
        π = after_em(π, d, m, k, table, prior, expand=True)
        after = scored(π, d, m, k, table, prior)
        assert after.log_likelihood >= before.log_likelihood - given - 1e-6
        assert after.log_likelihood >= before.log_likelihood - 1e-6  # no theorem, but half ‖A‖² is little here
        before = after
    assert spectral_radius(π, d) < 0.97  # of the first state's variance there is left less than 0.97^600 = 10^-8
    assert before.log_likelihood > first.log_likelihood + 1


def test_the_preconditioned_gradient_is_the_step_of_em() -> None:
    d, m, k = 3, 2, 2
    π, table, prior = random_model(d, m, k, seed=1), random_table(60, m, k, seed=2), prior_of(m, 1.7)
    at = scored(π, d, m, k, table, prior)
    inverse = inverse_of(π, d, m, k, at.information, prior)
    step = np.full(len(π), NAN)
    precondition(at.gradient, d, m, k, at.information, inverse, step)
    loadings = slice(None, len(π) - m - 1)
    np.testing.assert_allclose((π - step)[loadings], after_em(π, d, m, k, table, prior, expand=False)[loadings])


@pytest.mark.parametrize("d", range(1, 9))
def test_spectral_radius_against_numpy(d: int) -> None:
    for seed in range(10):
        π = np.random.default_rng(seed).standard_normal(vector_size(1, 1))
        A = split_vector(π, 1, 1).A[:d, :d]
        assert spectral_radius(π, d) == pytest.approx(np.abs(np.linalg.eigvals(A)).max(), rel=1e-4)


def test_spectral_radius_of_peculiar_matrices() -> None:
    π, nilpotent, defective = np.zeros(vector_size(0, 1)), np.zeros((8, 8)), np.zeros((8, 8))
    assert spectral_radius(π, 3) == 0.0
    nilpotent[0, 1] = nilpotent[1, 2] = 5.0
    defective[:2, :2] = [[0.5, 1.0], [0.0, 0.5]]
    for A, d, radius in [(nilpotent, 3, 0.0), (defective, 2, 0.5), (1e100 * np.eye(8), 8, 1e100)]:
        split_vector(π, 0, 1).A[:] = A
        assert spectral_radius(π, d) == pytest.approx(radius, rel=1e-4)


def test_limit_radius() -> None:
    π = random_model(4, 1, 1, seed=0)
    before = π.copy()
    limit_radius(π, 4, 0.95)
    np.testing.assert_array_equal(π, before)
    limit_radius(π, 4, 0.45)
    (A, *rest), (A_before, *rest_before) = split_vector(π, 1, 1), split_vector(before, 1, 1)
    np.testing.assert_allclose(A, A_before / 2, rtol=1e-4)
    for after, unchanged in zip(rest, rest_before, strict=True):
        np.testing.assert_array_equal(after, unchanged)
    assert spectral_radius(π, 4) == pytest.approx(0.45, rel=1e-9)


# Information and prior


@pytest.mark.parametrize(("d", "m", "k"), SIZES)
def test_inverse_information_against_numpy(d: int, m: int, k: int) -> None:
    π, table, prior = random_model(d, m, k, seed=d), random_table(60, m, k, seed=m), prior_of(m, 1.7)
    information = scored(π, d, m, k, table, prior).information
    found = inverse_of(π, d, m, k, information, prior).reshape(-1, 9, 9)
    expected = naive.inverse_blocks(π, d, m, k, list(blocks_of(information, d)), prior)
    np.testing.assert_allclose(found[:, : d + 1, : d + 1], expected, rtol=1e-7, atol=1e-12)
    assert not found[:, d + 1 :].any()
    assert not found[:, :, d + 1 :].any()


def test_an_information_that_is_none_is_not_inverted() -> None:
    π, prior = random_model(2, 1, 1, seed=0), prior_of(1, 1.7)
    for value in (-5.0, NAN):
        information = np.zeros(information_size(1, 1))
        information[0] = value
        assert not invert_information(π, 2, 1, 1, information, prior, np.empty(len(information)))


@pytest.mark.parametrize(("d", "m", "k"), [*SIZES, (2, 1, 12)])
def test_renewed_prior_against_the_plain_formula(d: int, m: int, k: int) -> None:
    π, table, prior = random_model(d, m, k, seed=d), random_table(30, m, k, seed=m), prior_of(m, 1.7)
    information = scored(π, d, m, k, table, prior).information
    inverse = inverse_of(π, d, m, k, information, prior)
    expected, freedom = naive.renewed(π, d, m, k, list(blocks_of(information, d)), prior)
    assert renew_prior(π, d, m, k, information, prior, inverse) == pytest.approx(freedom, rel=1e-9)
    np.testing.assert_allclose(prior, expected, rtol=1e-9)


def test_degrees_of_freedom_lie_between_the_noises_and_all_parameters() -> None:
    d, m, k = 3, 2, 2
    for n in (1, 30, 3000):
        π, table, prior = random_model(d, m, k, seed=1), random_table(n, m, k, seed=2), prior_of(m, 1.7)
        information = scored(π, d, m, k, table, prior).information
        freedom = renew_prior(π, d, m, k, information, prior, inverse_of(π, d, m, k, information, prior))
        assert m + 1 <= freedom <= len(naive.active(d, m, k))
    # in the end the data determine everything, but for the basis of the state
    assert freedom > len(naive.active(d, m, k)) - d * (d - 1) / 2 - 1


# Descent


@pytest.mark.parametrize(("d", "m", "k"), [(1, 0, 1), (3, 2, 2), (4, 1, 3)])
def test_fit_model_tells_of_the_model_it_returns(d: int, m: int, k: int) -> None:
    table = sampled_table(random_model(2, m, k, seed=1), 2, m, k, 200, seed=2)
    start = random_model(d, m, k, seed=3)
    before, after = improved(start, d, m, k, table, 2, 3)[0], improved(start, d, m, k, table, 2, 40)[0]
    assert after.criterion > before.criterion
    assert naive.run_filter(start, d, m, k, table, 1.5)[0] < before.log_likelihood
    assert spectral_radius(after.vector, d) <= 1 + 1e-9
    assert 0 < after.freedom <= len(naive.active(d, m, k))
    # The prior that is returned is newer than the one that the likelihood was computed with: one more look at it.
    search = Search.on(table, m, k)
    settled, used = fit_one(search, after, em_steps=0, evaluations=1)
    assert used == 1
    np.testing.assert_array_equal(settled.vector, after.vector)
    assert settled.log_likelihood == pytest.approx(
        naive.run_filter(after.vector, d, m, k, table, Prior(after.prior, 0).start_variance)[0], rel=1e-9
    )


def test_the_descent_ends_where_the_gradient_is_small() -> None:
    """At fixed prior the objective cannot be improved by what stops the descent, 10^-3 nats, along the step of EM."""
    d, m, k = 2, 1, 2
    table = sampled_table(random_model(2, m, k, seed=1), 2, m, k, 400, seed=2)
    model, told = improved(random_model(d, m, k, seed=3), d, m, k, table, 3, 300)
    assert told[2] < 300
    prior = model.prior.copy()
    room = np.empty(store_size(len(table), m)), np.empty(information_size(m, k)), np.empty(information_size(m, k))
    for _ in range(5):  # to where the prior does not change any more, either
        fit_model(model.vector, d, m, k, table, prior, 0, 300, *room)
    at = scored(model.vector, d, m, k, table, prior)
    step = np.empty(len(model.vector))
    precondition(at.gradient, d, m, k, at.information, inverse_of(model.vector, d, m, k, at.information, prior), step)
    assert step @ at.gradient < 1e-2


def test_a_hopeless_start_is_told_as_such() -> None:
    table = random_table(20, 1, 1, seed=0)
    start = cold_model(2, 1, 1, np.random.default_rng(0))
    start.vector[0] = NAN
    fitted, _ = fit_one(Search.on(table, 1, 1), start, em_steps=2, evaluations=5)
    assert fitted.log_likelihood == -math.inf
    assert fitted.criterion == -math.inf


# Units


def test_rewards_of_which_most_are_the_same() -> None:
    """On average over arms played twice or more: a safe arm, however often it is played, is one of them."""
    draw = np.random.default_rng(0)
    clicks, arms = (draw.random(600) < 0.03).astype(float), draw.integers(0, 4, 600).astype(float)
    assert mostly_one_value(clicks, arms)
    assert mostly_one_value(clicks - 0.1 * arms, arms)
    assert not mostly_one_value((draw.random(600) < 0.5).astype(float) + 0.5 * (draw.random(600) < 0.5), arms)
    assert not mostly_one_value(np.where(arms > 0, draw.standard_normal(600), 0.0), arms)
    assert not mostly_one_value(np.where(draw.random(600) < 0.9, 0.0, 1.0), np.arange(600.0))
    assert not mostly_one_value(np.full(5, np.nan), np.zeros(5))


def test_units_of_odd_columns() -> None:
    table = np.column_stack([
        [3.0, 3.0, 3.0, NAN],  # constant
        [NAN, NAN, NAN, NAN],  # missing
        [0.0, 0.0, 0.0, 0.0],  # constant at zero
        [0.1 + 0.2, 0.3, 0.3, 0.3],  # constant but for rounding
        [1.0, 2.0, 3.0, NAN],
        [0, -1, 0, 0],
        [5.0, NAN, 7.0, NAN],
    ])  # fmt: skip
    units = scales_of(table, 5)
    np.testing.assert_allclose(units.mean, [3, 0, 0, 0.3, 2, 6], atol=1e-15)
    np.testing.assert_allclose(units.scale, [3, 1, 1, 0.3, math.sqrt(2 / 3), 1], atol=1e-15)
    result = standardized(table, units)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(table))
    np.testing.assert_array_equal(result[:, 5], table[:, 5])
    np.testing.assert_allclose(result[:3, :4], [[0, NAN, 0, 0]] * 3, atol=1e-15)
    for column in (4, 6):
        values = result[~np.isnan(result[:, column]), column]
        assert values.mean() == pytest.approx(0)
        assert values.std() == pytest.approx(1)


@pytest.mark.parametrize("exponent", [-40, -3, 1, 20])
def test_powers_of_two_do_not_change_a_standardized_table(exponent: int) -> None:
    table = random_table(101, 3, 2, seed=4)
    larger = table * np.array([2.0**exponent, 1.0, 2.0**-exponent, 1.0, 2.0**exponent])
    one, other = (standardized(x, scales_of(x, 3)) for x in (table, larger))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("d", "m", "k"), SIZES)
def test_rescaled_is_the_same_system_in_other_units(d: int, m: int, k: int) -> None:
    rng = np.random.default_rng(d)
    old, new = (Scales(rng.standard_normal(m + 1), rng.uniform(0.2, 5, m + 1)) for _ in range(2))
    model = VectorModel(d, random_model(d, m, k, seed=d), prior_of(m, 1.7))
    moved = rescaled(model, old, new)
    assert_same_system(to_system(moved, new), to_system(model, old))
    assert_same_system(to_system(rescaled(moved, new, old), old), to_system(model, old))

    for prior in (model.prior, moved.prior):  # the prior of the arms moves along
        own = Prior(prior, 0)
        own.context_loading_precision = own.context_offset_precision = own.noise_scale = 0.0
        naive.spent(prior, m)[:] = 1.0
    before, after = (naive.penalty(x.vector, d, m, k, x.prior) for x in (model, moved))
    assert after == pytest.approx(before)


@pytest.mark.parametrize(("d", "m", "k"), SIZES)
def test_likelihood_in_other_units_differs_by_the_scales(d: int, m: int, k: int) -> None:
    raw = random_table(30, m, k, seed=d) * np.append(np.full(m, 7.0), [1.0, 0.2])
    units = scales_of(raw, m)
    model = VectorModel(d, random_model(d, m, k, seed=d), prior_of(m, 1.7))
    inside = naive.run_filter(model.vector, d, m, k, standardized(raw, units), 1.7)[0]
    rewards = one_reward_a_round(raw[:, m].astype(int), raw[:, m + 1], k)
    outside = kalman.filter(to_system(model, units), raw[:, :m], rewards).log_likelihood
    logs = sum(math.log(units.scale[min(o, m)]) for _, o, _ in naive.seen(raw, m))
    assert outside == pytest.approx(inside - logs, rel=1e-9)


def assert_same_system(one: LinearGaussianSystem, other: LinearGaussianSystem) -> None:
    for name in FIELDS:
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-12, atol=1e-12, err_msg=name)


# The fit


def one_reward_a_round(arms: npt.NDArray[np.int64], rewards: Array, k: int) -> Array:
    """Rewards as the filter takes them: (n, k), NaN for all arms but the one played."""
    result = np.full((len(arms), k), NAN)
    for t, a in enumerate(arms):
        if a >= 0:
            result[t, a] = rewards[t]
    return result


def log_of(system: LinearGaussianSystem, n: int, seed: int) -> tuple[npt.NDArray[np.int64], Array, Array]:
    """Arms played at random, their rewards, and the contexts."""
    path = system.sample(n, rng=seed)
    arms = np.random.default_rng(seed).integers(0, system.arm_count, n)
    return arms, path.rewards[np.arange(n), arms], np.array(path.contexts)


def forecast_error(found: LinearGaussianSystem, truth: LinearGaussianSystem, seed: int) -> Array:
    """Mean squared distance of one-step forecasts from the true filter's over their variance, on a new path, by arm."""
    arms, rewards, contexts = log_of(truth, 4000, seed)
    seen = one_reward_a_round(arms, rewards, truth.arm_count)
    ours, theirs = (kalman.filter(system, contexts, seen).forecasts for system in (found, truth))
    return np.asarray(((ours - theirs) ** 2).mean(axis=0) / theirs.var(axis=0))


def assert_sound(found: FittedSystem, arms: npt.ArrayLike, rewards: npt.ArrayLike, contexts: Array | None) -> None:
    """Everything finite, the system usable, and the likelihood that of the system returned."""
    arms, rewards, system = np.asarray(arms), np.asarray(rewards, dtype=float), found.system
    n, m = len(arms), system.context_dim
    for name in FIELDS:
        assert np.isfinite(getattr(system, name)).all(), name
    assert found.order == system.state_dim
    assert system.spectral_radius <= 1 + 1e-9
    assert 0 < found.degrees_of_freedom < math.inf
    θ = np.empty((n, 0)) if contexts is None else contexts
    beliefs = kalman.filter(system, θ, one_reward_a_round(arms, rewards, system.arm_count))
    assert np.isfinite(beliefs.forecasts).all()
    assert found.log_likelihood == pytest.approx(beliefs.log_likelihood, abs=1e-6, rel=1e-9)
    seen = ~np.isnan(np.column_stack([θ, np.where(arms < 0, NAN, rewards)]))
    assert found.innovations.shape == (n, m + 1)
    np.testing.assert_array_equal(np.isfinite(found.innovations), seen)


def test_forecasts_approach_those_of_the_true_filter() -> None:
    """Seeds 0 to 4: at most 2 % of the variance at n = 4000, and less than at n = 500 by 3 standard errors."""
    truth = paper_system(psi=2)
    errors = np.empty((5, 2, 2))
    for seed in range(5):
        for i, n in enumerate((500, 4000)):
            arms, rewards, contexts = log_of(truth, n, seed)
            found = fit(arms, rewards, contexts=contexts, rng=seed)
            errors[seed, i] = forecast_error(found.system, truth, seed=100 + seed)
            assert_sound(found, arms, rewards, contexts)
            # mean square 1, of standard error √(2/n), and no correlation with the round before, of standard error 1/√n
            for column in (found.innovations[:, 0], found.innovations[:, 1]):
                assert abs(np.mean(column**2) - 1) < 4 * math.sqrt(2 / n)
                assert abs(np.mean(column[1:] * column[:-1])) < 4 / math.sqrt(n)
    assert (errors[:, 1] < 0.02).all()
    fallen = errors[:, 0].mean(axis=1) - errors[:, 1].mean(axis=1)
    assert fallen.mean() > 3 * fallen.std(ddof=1) / math.sqrt(5)


@pytest.mark.parametrize("order", [1, 3, 8])
def test_a_given_order_is_kept(order: int) -> None:
    arms, rewards, contexts = log_of(paper_system(psi=2), 300, seed=1)
    found = fit(arms, rewards, contexts=contexts, order=order)
    assert found.order == order
    assert {attempt.order for attempt in found.tried} == {order}
    assert_sound(found, arms, rewards, contexts)


def test_the_same_seed_gives_the_same_system() -> None:
    arms, rewards, contexts = log_of(paper_system(psi=2), 200, seed=1)
    seeds: list[Any] = [5, 5, np.random.SeedSequence(5), 6]
    results = [fit(arms, rewards, contexts=contexts, rng=seed) for seed in seeds]
    for other in results[1:3]:
        assert other.system == results[0].system
        assert other.tried == results[0].tried
        assert other.log_likelihood == results[0].log_likelihood
        np.testing.assert_array_equal(other.innovations, results[0].innovations)
    assert results[3].tried != results[0].tried


@pytest.mark.parametrize("exponents", [(0, 20, 0), (-20, 0, 0), (-20, 20, -20)])
def test_a_millionfold_unit_changes_nothing_but_the_unit(exponents: tuple[int, int, int]) -> None:
    """Units of the rewards and of two contexts: powers of two, so that the fit takes the very same steps."""
    arms, rewards, contexts = log_of(paper_system(psi=2), 300, seed=2)
    contexts = np.column_stack([contexts, contexts[:, 0] ** 2])
    unit, units = 2.0 ** exponents[0], np.exp2(exponents[1:])
    one, other = fit(arms, rewards, contexts=contexts), fit(arms, rewards * unit, contexts=contexts * units)
    np.testing.assert_array_equal(other.system.dynamics, one.system.dynamics)
    np.testing.assert_array_equal(other.system.arms, one.system.arms * unit)
    np.testing.assert_array_equal(other.system.context_map, one.system.context_map * units[:, None])
    np.testing.assert_array_equal(other.innovations, one.innovations)
    assert_sound(other, arms, rewards * unit, contexts * units)


def test_a_log_of_rewards_alone() -> None:
    arms, rewards, _ = log_of(paper_system(psi=1), 400, seed=3)
    found = fit(arms, rewards)
    assert found.system.context_dim == 0
    assert_sound(found, arms, rewards, None)
    assert_sound(fit(arms, rewards, contexts=np.empty((400, 0))), arms, rewards, None)


def test_a_single_arm_that_follows_an_autoregression() -> None:
    """Seed 4: z' = 0.9 z + N(0, 1) seen through N(0, 0.1), forecast as by the true filter to within 2 %."""
    truth = LinearGaussianSystem(
        dynamics=[[0.9]], arms=[[2.0]], state_noise=[[1.0]], reward_noise=0.1, reward_offset=[5.0]
    )
    arms, rewards, _ = log_of(truth, 2000, seed=4)
    found = fit(arms, rewards)
    assert_sound(found, arms, rewards, None)
    assert forecast_error(found.system, truth, seed=5) < 0.02


def test_arms_without_dynamics_get_their_means() -> None:
    """Seed 6: independent rewards; the offsets are the arms' means, and forecasts vary by a few standard errors."""
    rng = np.random.default_rng(6)
    arms = rng.integers(0, 3, 900)
    means = np.array([-1.0, 0.0, 2.0])
    rewards = means[arms] + rng.standard_normal(900)
    found = fit(arms, rewards)
    assert_sound(found, arms, rewards, None)
    forecasts = kalman.filter(found.system, np.empty((900, 0)), one_reward_a_round(arms, rewards, 3)).forecasts
    assert np.sqrt(np.mean((forecasts - means) ** 2, axis=0)).max() < 5 / math.sqrt(300)


def test_gaps_everywhere() -> None:
    arms, rewards, contexts = log_of(paper_system(psi=1), 400, seed=7)
    rng = np.random.default_rng(8)
    arms[rng.random(400) < 0.2] = -1
    rewards, contexts = with_gaps(rewards, 0.2, 9), with_gaps(contexts, 0.4, 10)
    found = fit(arms, rewards, contexts=contexts)
    assert_sound(found, arms, rewards, contexts)
    unlooked = np.where(arms < 0, 1e6, rewards)
    assert fit(arms, unlooked, contexts=contexts).system == found.system


def test_only_contexts() -> None:
    contexts = log_of(paper_system(psi=1), 300, seed=11)[2]
    arms, rewards = np.full(300, -1), np.full(300, NAN)
    found = fit(arms, rewards, contexts=contexts, arm_count=2)
    assert found.system.arm_count == 2
    assert_sound(found, arms, rewards, contexts)


def test_an_arm_that_was_never_played() -> None:
    arms, rewards, contexts = log_of(paper_system(psi=1), 300, seed=12)
    found = fit(arms, rewards, contexts=contexts, arm_count=4)
    assert found.system.arm_count == 4
    assert_sound(found, arms, rewards, contexts)
    np.testing.assert_allclose(found.system.arms[2:], 0, atol=0.05)
    assert found.system.reward_offset[2] == pytest.approx(found.system.reward_offset[3], abs=0.05)


NORMAL = np.random.default_rng(13).standard_normal((60, 2))


@pytest.mark.parametrize(
    ("rewards", "contexts"),
    [
        pytest.param(np.full(60, 3.0), NORMAL, id="rewards all equal"),
        pytest.param(np.zeros(60), None, id="rewards all zero"),
        pytest.param(np.full(60, 0.1) + 1e-17, np.full((60, 1), 1e9), id="everything constant"),
        pytest.param(NORMAL[:, 0], np.column_stack([np.full(60, 1e9), NORMAL[:, 1]]), id="constant column"),
        pytest.param(NORMAL[:, 0], np.column_stack([np.full(60, NAN), NORMAL[:, 1]]), id="missing column"),
        pytest.param(NORMAL[:, 0], NORMAL[:, [0, 0]], id="contexts equal to the reward"),
        pytest.param(np.full(60, NAN), NORMAL, id="rewards all missing"),
        pytest.param(1e9 + NORMAL[:, 0] * 1e3, NORMAL * 1e-9, id="scales far apart"),
        pytest.param(np.arange(60.0), None, id="a straight line"),
        pytest.param(np.exp(np.arange(60.0) / 3), NORMAL, id="an explosion"),
        pytest.param(np.where(np.arange(60) == 30, 1e8, NORMAL[:, 0]), NORMAL, id="one huge reward"),
        pytest.param(NORMAL[:, 0] * 1e-150, NORMAL * 1e150, id="beyond all measure"),
    ],
)
def test_odd_logs(rewards: Array, contexts: Array | None) -> None:
    arms = np.arange(60) % 3
    assert_sound(fit(arms, rewards, contexts=contexts), arms, rewards, contexts)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize("m", [0, 2])
def test_few_rounds(n: int, m: int) -> None:
    rng = np.random.default_rng(n)
    arms, rewards, contexts = np.arange(n) % 2, rng.standard_normal(n), rng.standard_normal((n, m))
    found = fit(arms, rewards, contexts=contexts)
    assert_sound(found, arms, rewards, contexts)
    assert_sound(fit(arms, rewards, contexts=contexts, order=8), arms, rewards, contexts)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"arms": [0.0, 1.0, 0.0]}, "arms: expected integers, -1 if no arm was played"),
        ({"arms": [True, False, True]}, "arms: expected integers"),
        ({"arms": ["a", "b", "a"]}, "arms: expected integers"),
        ({"arms": [[0], [1], [0]]}, "arms: expected shape (n,), got (3, 1)"),
        ({"arms": 0}, "arms: expected shape (n,), got ()"),
        ({"arms": [0, -2, 0]}, "arms: expected numbers from 0 on, -1 if no arm was played, got -2"),
        ({"arms": [], "rewards": [], "contexts": None}, "arms: expected at least one round, got none"),
        ({"rewards": [1.0, 2.0]}, "rewards: expected shape (3,), got (2,)"),
        ({"rewards": [1.0, math.inf, 2.0]}, "rewards: expected finite numbers, or NaN if missing"),
        ({"rewards": [1.0, "two", 2.0]}, "rewards: expected real numbers"),
        ({"rewards": [NAN] * 3, "contexts": None}, "rewards: expected at least one round with a reward or a context"),
        ({"arms": [-1] * 3, "contexts": None}, "rewards: expected at least one round with a reward or a context"),
        ({"rewards": [NAN] * 3, "contexts": [[NAN]] * 3}, "rewards: expected at least one round with a reward"),
        ({"contexts": [1.0, 2.0, 3.0]}, "contexts: expected shape (3, m), got (3,)"),
        ({"contexts": [[1.0], [2.0]]}, "contexts: expected shape (3, m), got (2, 1)"),
        ({"contexts": [[1.0], [-math.inf], [2.0]]}, "contexts: expected finite numbers, or NaN"),
        ({"order": 0}, "order: expected at least 1, got 0"),
        ({"order": 9}, "order: expected at most 8, got 9"),
        ({"order": 2.0}, "order: expected an integer, got 2.0"),
        ({"arm_count": 1}, "arm_count: expected at least 2, as arm 1 was played, got 1"),
        ({"arm_count": 0}, "arm_count: expected at least 1, got 0"),
    ],
)
def test_bad_input_is_named(changed: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"arms": [0, 1, 0], "rewards": [1.0, 2.0, 3.0], "contexts": [[0.1], [0.2], [0.3]]}
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        fit(**(good | changed))


def test_what_is_given_stays_as_it_is() -> None:
    arms, rewards, contexts = log_of(paper_system(psi=1), 50, seed=14)
    arms[::7] = -1
    copies = arms.copy(), rewards.copy(), contexts.copy()
    found = fit(arms, rewards, contexts=contexts, order=1)
    for given, copy in zip((arms, rewards, contexts), copies, strict=True):
        np.testing.assert_array_equal(given, copy)
    with pytest.raises(ValueError, match="read-only"):
        found.innovations[0, 0] = 1.0


def test_a_table_without_arms_is_a_log_in_which_none_is_played() -> None:
    """Of a table with gaps, one-step forecasts come close to those of the filter that knows the system."""
    system = random_system(2, 3, 1, rng=7, spectral_radius=0.95)
    whole = system.sample(1500, rng=8).contexts
    table = np.where(np.random.default_rng(9).random((1000, 3)) < 0.2, np.nan, whole[:1000])
    found = fit(contexts=table)
    same = fit(np.full(1000, -1), np.full(1000, np.nan), contexts=table, arm_count=1)
    assert found.system == same.system
    errors = []
    for one in (found.system, system):
        ahead = kalman.filter(one, whole).predicted_means @ one.context_map.T + one.context_offset
        errors.append(np.sqrt(((whole - ahead)[1000:] ** 2).mean()))
    assert 0.99 < errors[0] / errors[1] < 1.02
    for given in ({}, {"rewards": [1.0], "contexts": [[1.0]]}):
        with pytest.raises(InvalidInputError, match="expected arms with their rewards, or contexts alone"):
            fit(**given)  # type: ignore[arg-type]
