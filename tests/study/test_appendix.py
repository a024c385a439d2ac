from pathlib import Path

import numpy as np
import polars as pl
import pytest

from undertow import InvalidInputError, paper_system, random_system, simulate
from undertow.policies import ARES
from undertow.study.appendix import vary_choices
from undertow.study.chunks import Tables, open_folder, run_plan
from undertow.study.claims import check_claims
from undertow.study.evidence import FAILS, HOLDS, UNDECIDED
from undertow.study.plan import paper_plan
from undertow.study.readings import BUILT, READINGS, play_ares
from undertow.study.run import run_study
from undertow.study.statements import EXACT
from undertow.theory import true_noise_bound


@pytest.mark.parametrize("contexts", [1, 2])
def test_no_choice_changed_is_ares(contexts: int) -> None:
    system = paper_system(1) if contexts == 1 else random_system(3, 2, 3, rng=0)
    paths, bound = system.sample(300, rng=1, runs=3), true_noise_bound(system)
    plain = play_ares(paths, bound)
    policy = ARES(arms=system.arm_count, context_dim=contexts, noise_bound=bound)
    ours = simulate(policy, paths, record=["widths", "windows", "errors"], threads=1)
    for name in ("arms", "windows", "rewards", "regret"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(ours, name))
    for name in ("widths", "errors"):
        np.testing.assert_allclose(getattr(plain, name), getattr(ours, name), rtol=1e-7, atol=1e-9)


def test_what_the_readings_change() -> None:
    """In its first rounds the shortest window costs least, so that nobody wants one that is not filled: A6 is idle."""
    paths = paper_system(2).sample(200, rng=0, runs=4)
    built = play_ares(paths, 3.0, BUILT)
    for reading in (reading for reading in READINGS if not reading.parameters):
        other = play_ares(paths, 3.0, reading)
        assert other.windows is not None
        idle = reading.row == "A6"
        assert (other.arms == built.arms).all() == idle, reading
        early = bool((other.windows[:, :10] > np.arange(10)[:, None]).any())
        assert early == reading.fallback, reading


def test_a_zeta_without_its_factor_is_a_smaller_penalty() -> None:
    """Without 1 − α every error counts a hundredfold, so the choice is that of ν / 100: played with fresh eyes."""
    system = paper_system(3)
    paths, bound = system.sample(400, rng=2), true_noise_bound(system)
    λ, α, ν, S, δ = 1.0, 0.99, 0.1, 10, 0.1
    ζ, V = np.zeros((2, S + 1)), np.tile(λ * np.eye(S + 1), (2, 1, 1))
    J, b = np.zeros((2, S + 1)), np.zeros((2, S + 1))
    small = simulate(
        ARES(arms=2, context_dim=1, noise_bound=bound, window_penalty=ν * (1 - α)), paths, record=["windows"]
    )
    assert small.windows is not None
    for t in range(400):
        Θ = np.array([1.0, *(paths.contexts[t - i, 0] if i <= t else 0.0 for i in range(1, S + 1))])
        assert J[:, : min(S, t) + 1].argmin(axis=1).tolist() == small.windows[t].tolist(), t
        a, X = small.arms[t], paths.rewards[t, small.arms[t]]
        for s in range(S + 1):
            p = s + 1
            ζ[a, s] = α * ζ[a, s] + abs(X - Θ[:p] @ np.linalg.solve(V[a, :p, :p], b[a, :p]))
        V[a] += np.outer(Θ, Θ)
        b[a] += X * Θ
        for s in range(S + 1):
            inverse = np.linalg.inv(V[a, : s + 1, : s + 1])
            e = bound * np.sqrt(2 * np.log(1 / δ) - np.linalg.slogdet(inverse)[1]) + 100 * np.sqrt(np.trace(inverse))
            J[a, s] = ζ[a, s] + ν * e * np.sqrt(Θ[: s + 1] @ inverse @ Θ[: s + 1])


def test_an_appendix_names_the_verdicts_that_change(tmp_path: Path) -> None:
    words = ["Oracle", "ARES", "pies", "UCB", "Sliding-window UCB", "Rexp3", "Random"]
    plan = paper_plan().select(words, runs=3, rounds=120, burn_in=0)
    tables = run_plan(plan, open_folder(plan, tmp_path))
    found, committed = vary_choices(plan, tables, runs=2)
    assert [entry.row for entry in found] == ["", "", *(reading.row for reading in READINGS)]
    assert list(committed) == [spec.label for spec in plan.systems]
    assert all(0 <= share <= 1 for shares in committed.values() for share in shares)
    built, pies, *others = found
    few = plan.select(runs=2)
    early = pl.col("run") < few.runs
    first = Tables(tables.regret.filter(early), tables.detail.filter(early), 0.0)
    verdicts = {claim.label: claim.verdict for claim in check_claims(few, first, committed)}
    assert {label for label in verdicts if label not in built.verdicts} == EXACT
    assert all(verdicts[label] == verdict for label, verdict in built.verdicts.items() if not label.startswith("11"))
    assert verdicts["11a"] in (HOLDS, UNDECIDED, FAILS)
    for entry in found:
        assert entry.changed == [label for label in entry.verdicts if entry.verdicts[label] != built.verdicts[label]]
        assert len(entry.marks) == len(entry.verdicts)
    assert any(entry.changed for entry in others)
    frozen = next(entry for entry in found if entry.row == "A10")
    assert frozen.policy == pies.policy == "PIES(10)"
    assert frozen.relative["psi = 1"] > pies.relative["psi = 1"]  # who stops learning loses


def test_a_study_reports_its_appendix(tmp_path: Path) -> None:
    plan = paper_plan(psi=[1]).select(["Oracle", "ARES", "PIES(10)"], runs=2, rounds=100, burn_in=0)
    seen: list[tuple[int, int]] = []
    outcome = run_study(plan, tmp_path, appendix=True, progress=lambda done, total: seen.append((done, total)))
    there = [reading for reading in READINGS if reading.policy in ("ares", "pies")]
    assert seen[-1] == (len(plan.chunks) + len(there),) * 2
    report = outcome.report.read_text()
    assert "Appendix: other readings of the paper" in report
    assert outcome.appendix[-1].words in report


def test_a_plan_without_what_is_varied_is_refused_before_any_work(tmp_path: Path) -> None:
    plan = paper_plan(psi=[1]).select(["Oracle", "Random"], runs=1, rounds=10, burn_in=0)
    with pytest.raises(InvalidInputError, match="the appendix varies ARES, and the plan has none"):
        run_study(plan, tmp_path, appendix=True)
    assert not list(tmp_path.iterdir())
