import importlib
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

import compression
import controllers
import costs
import first_look
import learning_rate
import lineup
import pricing
import queries
import routing
from channels import fading
from tools.pieces import PIECES
from undertow import InvalidInputError, make
from undertow.contracts import check_policy
from undertow.policies import UCB
from undertow.problems.datasets import dataset, follow_average

ROOT = Path(__file__).parents[2]
COSTS = ("compression", "controllers", "queries")
ROUNDS = {"channels": 200, "forecasters": 200, "learning_rate": 12, "portfolio": 200, "pricing": 150, "stations": 40}


@pytest.mark.usefixtures("same_registry")
def test_the_skeleton_of_a_policy_keeps_the_contract() -> None:
    skeleton = importlib.import_module("policy_skeleton")
    tried = check_policy(lambda system, rng: skeleton.MyPolicy(arms=system.arm_count, rng=rng))
    assert {"steps stay within their state", "arms can be reordered"} <= set(tried)
    with pytest.raises(InvalidInputError, match="discount: expected above 0 and at most 1, got 2"):
        skeleton.MyPolicy(arms=2, discount=2)
    with pytest.raises(InvalidInputError, match="exploration: expected at least 0, got -1"):
        skeleton.MyPolicy(arms=2, exploration=-1)


def test_first_look(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first_look.main(["--runs", "2", "--out", str(tmp_path / "figure.png")])
    shares = [
        float(number) for number in re.findall(r"^\|.*\| +([\d.]+) \| +[\d.]+ \|$", capsys.readouterr().out, re.M)
    ]
    assert len(shares) == 5
    assert shares == sorted(shares)  # averages, forgets, regresses, learns, knows
    assert (tmp_path / "figure.png").stat().st_size > 10_000


@pytest.mark.parametrize("name", ROUNDS)
def test_an_example_prints_the_table_of_its_page(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = tmp_path / "new" / "figure.png"
    example = importlib.import_module(name)
    example.main(["--seeds", "1", "--rounds", str(ROUNDS[name]), "--out", str(figure)])
    printed, page = capsys.readouterr().out, (ROOT / "docs" / "examples" / f"{name}.md").read_text()
    assert figure.stat().st_size > 10_000
    # Numbers depend on seeds and rounds; whatever is no number does not.
    assert frames(printed)
    assert "\n".join(frames(printed)) in "\n".join(frames(page))
    assert f"python examples/{name}.py" in page
    assert f"({name}.png)" in page


@pytest.mark.parametrize("name", COSTS)
def test_an_example_on_costs_prints_the_table_of_its_page(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = tmp_path / "new" / "figure.png"
    importlib.import_module(name).main(["--worlds", "1", "--rounds", "60", "--out", str(figure)])
    printed, page = capsys.readouterr().out, (ROOT / "docs" / "examples" / f"{name}.md").read_text()
    assert figure.stat().st_size > 10_000
    assert frames(printed)
    assert "\n".join(frames(printed)) in "\n".join(frames(page))
    assert "Autopilot, its own time" in page
    assert f"({name}.png)" in page


def test_recordings_keep_costs_to_a_thousandth(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    measured, features = np.exp(5 * rng.standard_normal((2, 30, 3))), rng.standard_normal((2, 30, 1))
    costs.Recording(["a", "b", "c"], measured, features, costs.here()).save(tmp_path / "file.npz")
    again = costs.Recording.load(tmp_path / "file.npz")
    np.testing.assert_allclose(again.costs, measured, rtol=6e-4)
    np.testing.assert_allclose(again.features, features, rtol=1e-3)
    assert (again.names, again.about) == (["a", "b", "c"], costs.here())
    assert len(again.worlds(rounds=7)[1]().features) == 7


@pytest.mark.parametrize("name", ["queries", "compression"])
def test_recordings_are_small_and_whole(name: str) -> None:
    file = costs.FOLDER / f"{name}.npz"
    assert file.stat().st_size < 200_000
    recording = costs.Recording.load(file)
    assert np.isfinite(recording.costs).all()
    assert (recording.costs > 0).all()
    assert "machine" in recording.about


def test_totals_are_relative_to_the_best_fixed_choice_of_each_world() -> None:
    worlds = [
        costs.Table(["a", "b"], np.array(rows), np.zeros((2, 0))) for rows in ([[1.0, 2], [1, 4]], [[3.0, 1], [3, 1]])
    ]
    runs = [costs.play_fixed(world, lambda t: t) for world in worlds]
    played = {"Autopilot": [run._replace(own=np.ones(2)) for run in runs]}
    for arm, name in enumerate("ab"):
        played[f"always {name}"] = [costs.play_fixed(world, [arm, arm].__getitem__) for world in worlds]
    assert costs.relative(played, "Autopilot", own=False)[:, 0].tolist() == [5 / 2, 4 / 2]
    assert costs.relative(played, "Autopilot", own=True)[:, 0].tolist() == [7 / 2, 6 / 2]
    assert costs.relative(played, "Autopilot", own=False, start=0).tolist() == [[1, 5 / 2], [3, 2]]


def test_plans_answer_alike_and_a_scan_costs_the_same_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = queries.fill(np.random.default_rng(0), places=2000)
    asked, sides = queries.rectangles(np.random.default_rng(1), 20)
    for bounds in asked.tolist():
        answers = [database.execute(queries.QUERY.format(plan), bounds).fetchone() for plan in queries.PLANS.values()]
        assert answers[0] == pytest.approx(answers[1])
        assert answers[0] == pytest.approx(answers[2])
    inside = (asked > 0).all(axis=1) & (asked < 1).all(axis=1)
    np.testing.assert_allclose((asked[:, 1] - asked[:, 0])[inside], np.exp(sides[:, 0])[inside])
    recording = queries.record(1, 10, 0, places=2000)
    assert recording.costs.shape == (1, 10, 3)
    assert recording.about["planner"][0] in (0, 1, 2)
    queries.live(30, 0, tmp_path / "live.png", places=2000)
    assert "| index on x |" in capsys.readouterr().out


def test_each_gain_is_best_for_its_own_inertia() -> None:
    crane = controllers.Crane(1, 0)
    crane.push = np.random.default_rng(0).standard_normal((1, 100_000))
    for place, inertia in enumerate(controllers.INERTIAS):
        crane.plants = [controllers.linearise(inertia)]
        assert np.argmin([crane.begin().play(0, arm) for arm in range(5)]) == place
        crane.load[0] = np.log2(inertia)
        assert controllers.nearest(crane, 0) == place


def test_a_stream_costs_what_its_pieces_took_and_the_link_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compression.sysconfig.get_path", lambda name: Path(np.__file__).parent)  # fewer files
    measured = compression.record(0, per_kind=2)
    seconds, sizes = measured.costs
    assert (sizes[:, 0] == compression.PIECE).all()
    assert (sizes[:2, 1:] < compression.PIECE / 2).all()  # sources
    assert (sizes[-2:] >= compression.PIECE).all()  # noise
    stream = compression.streams(measured, 1, 50)
    sent = np.ptp(stream.costs[0], axis=1)
    assert stream.costs.shape == (1, 50, 5)
    assert (sent > 0).all()
    assert (stream.costs[0].min(axis=1) > seconds.min()).all()


@pytest.mark.parametrize("name", [*ROUNDS, *COSTS])
def test_every_command_of_a_page_has_a_place_for_what_it_prints(name: str) -> None:
    page = (ROOT / "docs" / "examples" / f"{name}.md").read_text()
    commands = re.findall(r"^    python (examples/.*)$", page, re.M)
    shown = re.findall(r"^<!-- results: ([\w-]+)\.printed -->$", page, re.M)
    assert [" ".join(PIECES[piece].command).split(" --out")[0] for piece in shown] == commands
    assert shown


def frames(text: str) -> list[str]:
    """Return the lines of the tables in a text, with every number replaced by its digits after the point."""
    lines = re.findall(r"^\|.*\|$", text, re.M)
    return [re.sub(r" *-?\d+\.(\d+) \|", lambda number: f" .{'0' * len(number[1])} |", line) for line in lines]


@pytest.mark.parametrize(
    ("page", "data", "rounds"),
    [
        ("forecasters", "bike-sharing", None),
        ("forecasters", "victoria", None),
        ("portfolio", "stocks", None),
        ("stations", "chicago", 730),
        ("stations", "chicago", 5698),
    ],
)
def test_references_on_recorded_data_are_those_of_the_page(page: str, data: str, rounds: int | None) -> None:
    rewards = lineup.repeat(dataset(data), seeds=1, rounds=rounds).rewards
    text = (ROOT / "docs" / "examples" / f"{page}.md").read_text()
    for line in lineup.table(lineup.references(rewards)).splitlines():
        assert line in text


def test_references_on_channels_are_those_of_the_page() -> None:
    rewards = np.stack([fading(2000, seed).rewards for seed in range(10)])
    text = (ROOT / "docs" / "examples" / "channels.md").read_text()
    for line in lineup.table(lineup.references(rewards)).splitlines():
        assert line in text


def test_references_of_a_table_by_hand() -> None:
    rewards = np.array([[[1.0, 0.0], [0.0, 3.0], [2.0, 0.0]]])
    earned = lineup.references(rewards)
    assert earned[lineup.BEST_FIXED].tolist() == [[1, 0, 2]]  # both sum to 3, and the first of equals is taken
    assert earned[lineup.FULL_AVERAGE].tolist() == [[1, 0, 0]]  # averages 0, 0; .1, 0; .09, .3
    assert earned[lineup.CLAIRVOYANT].tolist() == [[1, 3, 2]]
    assert lineup.share_won(earned, lineup.CLAIRVOYANT).tolist() == [[100]]
    assert lineup.share_won(earned, lineup.FULL_AVERAGE) == pytest.approx(100 * (1 - 3) / (6 - 3))
    assert lineup.share_won(earned, lineup.FULL_AVERAGE, start=0)[0, 0] == 100


def test_the_full_information_average_is_that_of_the_trials() -> None:
    data = dataset("victoria")
    rewards = data.trajectory.rewards
    follow = rewards[np.arange(len(rewards)), follow_average(data, lineup.DECAY)]
    np.testing.assert_array_equal(lineup.references(rewards[None])[lineup.FULL_AVERAGE][0], follow)


def test_who_does_not_randomise_plays_a_recorded_table_once() -> None:
    paths = lineup.repeat(dataset("stocks"), seeds=2, rounds=50)
    played = {label: len(rewards) for label, rewards in lineup.play_table(paths).items()}
    assert {label for label, runs in played.items() if runs == 2} == {"Autopilot", "LearnedKalman", "StructuralKalman"}
    assert set(played.values()) == {1, 2}


def test_the_verdict_counts_seeds() -> None:
    scores = {"Autopilot": np.array([1.0, 4.0]), "LinUCB": np.array([2.0]), "ARES": np.array([0.0])}
    assert "Best other policy: LinUCB, 2.0 %. Autopilot is ahead of it in 1 of 2 seeds" in lineup.verdict(
        scores, unit=" %"
    )
    assert "Best other policy: ARES, 0.0. Autopilot is ahead of it in 0 of 2" in lineup.verdict(scores, least=True)


def test_the_clairvoyant_price_plan_is_the_best_of_all() -> None:
    def market() -> pricing.Market:
        drawn = pricing.Market.draw(4, seed=1)
        drawn.visitors *= 1e6  # so that whole numbers of buyers and luck do not matter
        drawn.luck[:] = 0
        drawn.willing[:] = 9, 15, 12, 6
        return drawn

    def revenue(plan: tuple[int, ...]) -> float:
        days = market()
        return sum(days.sell(day, arm) for day, arm in enumerate(plan))

    best = max(map(revenue, itertools.product(range(6), repeat=4)))
    assert pricing.play_clairvoyant(market()).sum() == pytest.approx(best, rel=1e-6)
    assert max(revenue((arm,) * 4) for arm in range(6)) < 0.9 * best


def test_a_price_is_remembered() -> None:
    market = pricing.Market.draw(2, seed=0)
    before = market.revenues(1)
    market.sell(0, arm=5)
    assert market.remembered == pytest.approx(0.9 * 11 + 0.1 * 16)
    assert (market.revenues(1) >= before).all()
    assert (market.revenues(1) > before).any()


def test_the_network_has_the_gradient_of_its_loss() -> None:
    batch = learning_rate.drifting_digits(1, seed=0)[0]
    network = learning_rate.Network(seed=0)
    network.train([batch] * 3, rate=0.5)
    _, gradient = network.gradient(batch)
    direction = [np.random.default_rng(0).standard_normal(part.shape) for part in gradient]
    losses = []
    for step in (1e-5, -2e-5):
        for part, change in zip(network.weights, direction, strict=True):
            part += step * change
        losses.append(network.gradient(batch)[0])
    slope = sum(np.vdot(part, change) for part, change in zip(gradient, direction, strict=True))
    assert (losses[0] - losses[1]) / 2e-5 == pytest.approx(slope, rel=1e-5)


def test_a_clairvoyant_of_one_round_is_as_good_as_the_best_rate() -> None:
    batches = learning_rate.drifting_digits(1, seed=3)
    totals = []
    for rate in learning_rate.RATES:
        network = learning_rate.Network(3)
        losses, _ = network.train(batches[:-1], rate)
        totals.append((losses[1:].sum() + network.gradient(batches[-1])[0], losses))
    _, best = min(totals, key=lambda total: total[0])
    ahead = learning_rate.play_looking_ahead(batches, 3, ahead=learning_rate.HORIZON, decay=0.0)
    np.testing.assert_array_equal(ahead, best)


def test_labels_drift_by_swaps() -> None:
    batches = learning_rate.drifting_digits(4, seed=0)
    assert len(batches) == 4 * learning_rate.HORIZON + 1
    labels = [{tuple(image): label.argmax() for image, label in zip(*batch, strict=True)} for batch in batches]
    images, digits = load_digits(return_X_y=True)
    true = {tuple(image / 16): digit for image, digit in zip(images, digits, strict=True)}
    moved = [{true[image] for image, label in batch.items() if label != true[image]} for batch in labels]
    first = learning_rate.SWAP - 1
    assert not set().union(*moved[:first])
    assert len(set().union(*moved[first : first + learning_rate.SWAP])) == 2


def test_successive_halving_ends_with_the_best_rate() -> None:
    policy, played = learning_rate.SuccessiveHalving(rounds=80), []
    for _ in range(80):
        decision = policy.decide()
        policy.learn(decision, reward=[0, 2, 1, 4, 3][decision.arm])
        played.append(decision.arm)
    left = [set(played[first : first + 20]) for first in range(0, 80, 20)]
    assert left == [{0, 1, 2, 3, 4}, {1, 3, 4}, {3, 4}, {3}]


def test_routing_counts_regret_by_quality_less_price(capsys: pytest.CaptureFixture[str]) -> None:
    world = routing.world("price changes", seed=3, rounds=100)
    worth = world.chances - world.prices
    policy = UCB(arms=list(routing.MODELS))
    policy.pin("largest")
    assert routing.play(policy, world) == pytest.approx(100 * (worth.max(axis=1) - worth[:, 3]).mean())
    assert policy.costs == dict(zip(routing.MODELS, routing.RISEN, strict=True))
    late = routing.world("late feedback", seed=3, rounds=400)
    policy = UCB(arms=list(routing.MODELS))
    routing.play(policy, late)
    assert policy.pending == sum(delay < 0 or t + 1 + delay > 399 for t, delay in enumerate(late.delays))
    ours, theirs = routing.Thompson(0.9, seed=1), make("beta-thompson", arms=4, discount=0.9)
    for arm, quality in ((0, 1.0), (2, 0.0), (0, 0.0)):
        theirs.learn(theirs.decide(available=[arm]), quality)
        ours.decide()
        ours.learn(f"{ours.made - 1}:{arm}", quality)
    np.testing.assert_allclose(theirs.forecast().forecast, ours.right / (ours.right + ours.wrong))
    routing.main(["--seeds", "2", "--first", "1000", "--rounds", "40"])
    printed = capsys.readouterr().out
    assert all(f"| {title} |" in printed for title in routing.KINDS.values())
    assert "Lost to the best rival by more than a standard error:" in printed
