"""The paper's statements on its evaluation: its words, the criterion, and the reason if it fails."""

from collections.abc import Callable
from typing import NamedTuple

from undertow.study import evidence
from undertow.study.evidence import (
    ALIKE,
    CHOSEN,
    COMMITS,
    EQUAL,
    ERRORS,
    LONGEST,
    MORE,
    NEAR,
    STEADY,
    SURE,
    Evidence,
    Measured,
)

__all__ = ["EXACT", "STATEMENTS", "Statement"]


class Statement(NamedTuple):
    """A statement of the paper, read in one way."""

    label: str
    title: str
    quote: str
    criterion: str
    discussion: str
    test: Callable[[Measured], Evidence]


_BY = f"by more than {ERRORS:g} standard errors over runs"
_ERROR_OF = (
    f"Errors are those of the best forecast from s = 0, …, {LONGEST} contexts: exact, free of the scatter of runs."
)

STATEMENTS = (
    Statement(
        "1",
        "ARES and PIES beat the policies without contexts",
        "It appears that both PIES and ARES perform better than any of the other comparison algorithms.",
        f"At every psi, ARES and PIES with every window have less regret, {_BY}, than UCB, sliding-window UCB, Rexp3 "
        "and Random. The Oracle knows the system and is left out.",
        "At psi = 4 even the best forecast from the last ten contexts is hardly better than none, so ARES and PIES "
        "are little better than Random there. With few runs the differences are within chance.",
        evidence.beats_others,
    ),
    Statement(
        "2",
        "PIES is worst at s = 1 and best at s = 10",
        "… parameter s = 1 is where PIES has the highest regret value while parameter s = 10 is where PIES has the "
        "lowest regret value.",
        "At every psi, PIES's median regret is highest at s = 1 and lowest at s = 10. It holds if that is so in "
        f"{100 * SURE:g} % of 2000 bootstrap resamples of the runs, and fails if in {100 * (1 - SURE):.0f} %.",
        "At psi = 4 contexts hardly help, and the windows differ by less than their scatter over runs. Which of them "
        "is highest or lowest is then chance.",
        evidence.pies_order,
    ),
    Statement(
        "3a",
        "some PIES beats ARES at psi = 1, 2, 3, by at most 10 % at 1 and 3",
        "For ψ = 1,2,3, there exists a parameter s value such that PIES does better than ARES. … For ψ = 1,3, there "
        "exists a parameter s value such that PIES performs better than ARES, where ARES's regret is at most 10% more "
        "than than PIES regret.",
        f"Read as: some window. At psi = 1, 2, 3 ARES has more regret than PIES at some window, {_BY}; at psi = 1 and "
        f"3 there is such a window with at most {100 * MORE:g} % less. The best window may be further away.",
        "ARES explores arms, and has to find its windows, so it can be further behind every window that beats it. It "
        "can also be ahead of all windows.",
        evidence.some_window_beats_ares,
    ),
    Statement(
        "3b",
        "ARES is within 10 % of the best PIES at psi = 1 and 3",
        "For ψ = 1,3, … ARES's regret is at most 10% more than than PIES regret.",
        f"Read as: the best window. At psi = 1 and 3 ARES has at most {100 * MORE:g} % more regret than the best PIES.",
        "The penalty on long windows, with the ν = 0.1 of Table 1, keeps ARES for long from the windows that serve it "
        "best. With a third of that penalty, or with another reading of the cost, the statement holds.",
        evidence.near_the_best_window,
    ),
    Statement(
        "4",
        "ARES beats every PIES at psi = 4",
        "It appears that as max_a c_a'Pc_a + σ_η² and ρ(Ψ − ΨKC_θ) increase, ARES starts to perform better than PIES "
        "for any preset parameter s = 1, …, 10 value.",
        f"At psi = 4, where both are largest, ARES has less regret than PIES at every window, {_BY}.",
        "ARES wins at psi = 4 if the errors of its windows decide, since these carry its own recent rewards into the "
        "choice of an arm. With the ν = 0.1 of Table 1 the penalty keeps the windows near 0 there, and nothing is left "
        "to decide.",
        evidence.ares_beats_pies,
    ),
    Statement(
        "5",
        "ARES and PIES are nearer to the Oracle, the smaller psi",
        "… ARES and PIES normalized regrets appear to get closer to 1 (the Oracle's regret value) as ψ is closer to 1.",
        "Regret is divided by the Oracle's. For ARES, and for PIES at the two windows that the paper plots, the mean "
        f"ratio is further from 1 at each psi (1, 2, 3, 4) than at the one before, {_BY}.",
        "As psi grows the Oracle itself loses more, and the ratio of Random, which caps that of any sensible policy, "
        "falls towards 1. The ratios of ARES and PIES(10) at psi = 4, and that of PIES(1) at every psi, fall with it.",
        evidence.nearer_to_oracle,
    ),
    Statement(
        "6",
        "windows are longer at psi = 1, 2, 3 than at 4; 8 and 10 at psi = 2",
        "… the average parameter s value for each action is larger for ψ = 1,2,3 in comparison to the average "
        "parameter s value for ψ = 4. … ARES chooses the smallest parameter s value action a = 1 which is s = 8, while "
        "ARES chooses parameter s = 10 for action a = 2 …",
        "In the last fifth of the rounds ARES's mean window is larger at psi = 1, 2, 3 than at psi = 4, for both arms, "
        f"and at psi = 2, the “third lowest plot”, within {NEAR:g} of 8 and 10.",
        "ARES begins with short windows, and its penalty on long ones fades only as arms are played. If windows grow "
        "for longer, or settle elsewhere, they miss the two numbers.",
        evidence.windows,
    ),
    Statement(
        "7a",
        "both arms have about the same width",
        "Note that the average parameter u_a values for each ψ value is approximately the same.",
        "Read as: at every psi, those of both actions. Their mean widths in the last fifth of the rounds have a ratio "
        f"between {1 / ALIKE:g} and {ALIKE:g}.",
        "A width shrinks with the plays of its arm and with how much its window explains, so arms that differ in "
        "these differ in width. Where contexts say little, one arm can be played for long while the width of "
        "the other stays.",
        evidence.widths_of_arms,
    ),
    Statement(
        "7b",
        "widths are about the same at every psi",
        "Note that the average parameter u_a values for each ψ value is approximately the same. However, for the right "
        "plots, the average parameter s value for each action is larger for ψ = 1,2,3 …",
        "Read as: across psi, with which the next sentence compares. The largest mean width in the last fifth of the "
        f"rounds, over both arms, is at most {ALIKE:g} times the smallest.",
        "A width grows with B_R, and so with psi, and with the largest of the arms' windows, which is small at psi = "
        "4. The two do not cancel.",
        evidence.widths_of_systems,
    ),
    Statement(
        "8",
        "of windows that predict alike, ARES takes the shortest",
        "… if the prediction errors are approximately the same for a subset of parameter s values, ARES will choose "
        "the minimum parameter s value from the subset.",
        f"In the last fifth of the rounds ARES's mean window is, for every psi and arm, within {CHOSEN:g} of the "
        f"smallest s whose error is within {100 * EQUAL:g} % of the least. {_ERROR_OF}",
        "Where every further context saves little and the noise is large, as at psi = 3, ARES's penalty ν e √(Θ'V⁻¹Θ) "
        "on long windows outweighs the smaller error. With a small penalty, chance among errors that are alike "
        "decides, and windows are longer than the smallest.",
        evidence.smallest_window,
    ),
    Statement(
        "9",
        "after round 2500 windows grow at psi = 1, 3 and stay at 2, 4",
        "… for ψ = 1,3 the average parameter s for each action slowly increases while for ψ = 2,4 the values stay "
        "approximately constant after round t = 2500.",
        "From rounds 2500 to 5000 of 10,000 to the last fifth, the mean window of each arm rises at psi = 1 and 3, and "
        f"moves by less than {STEADY:g} at psi = 2 and 4.",
        "The penalty falls with the plays of an arm, at every psi alike. Windows that are still short when it matters "
        "keep growing.",
        evidence.windows_move,
    ),
    Statement(
        "10a",
        "ARES takes the window with the least error",
        "… it appears that ARES on average chooses the parameter s value that minimizes the prediction error … the "
        "most for each action.",
        f"Read as: that window. In the last fifth of the rounds ARES's mean window is within {CHOSEN:g} of the one "
        f"with the least error. {_ERROR_OF}",
        "A longer window never has a larger error in the long run, so the least is at s = 10 throughout. ARES stays "
        "shorter wherever the penalty, or chance, outweighs what the last contexts add.",
        evidence.least_error,
    ),
    Statement(
        "10b",
        "ARES takes a window as good as the one with the least error",
        "… it appears that ARES on average chooses the parameter s value that minimizes the prediction error … the "
        "most for each action.",
        "Read as: a window that is as good. The error at ARES's mean window in the last fifth of the rounds is at "
        f"most {100 * EQUAL:g} % above the least. {_ERROR_OF}",
        "At psi = 3 the error falls late, between 5 and 10 contexts, and ARES's mean window is shorter than that. "
        "There it pays for what the penalty keeps it from.",
        evidence.little_error,
    ),
    Statement(
        "11a",
        "without lines 19 and 20 only the arm with the longest window is played",
        "Not implementing lines 19 and 20 will cause the algorithm to commit to the action with the highest s_a value "
        "instead of exploring all the actions.",
        f"Read as: it commits. With each arm's width from its own window, the arm with the larger window is played in "
        f"more than {100 * COMMITS:g} % of the rounds in which the windows differ.",
        "A longer window has a larger width, which is a lead but no more. Forecasts and plays still decide many "
        "rounds.",
        evidence.commits,
    ),
    Statement(
        "11b",
        "without lines 19 and 20 the arm with the longest window is played more",
        "Not implementing lines 19 and 20 will cause the algorithm to commit to the action with the highest s_a value "
        "instead of exploring all the actions.",
        "Read as: it leans to it. With each arm's width from its own window, the arm with the larger window is played "
        f"in more than half of the rounds in which the windows differ, {_BY}.",
        "A longer window has a larger width, but an arm that is played more has a smaller one. Where both belong to "
        "the same arm, they cancel.",
        evidence.leans,
    ),
    Statement(
        "12",
        "ρ(Ψ − ΨKC) rises with psi",
        "… the spectral radius ρ(Ψ − ΨKC_θ) increases as ψ increases …",
        "Exact: ρ(Ψ − ΨKC), and max c'Pc + σ² which the paper says to rise with it, at psi = 1, 2, 3, 4.",
        "",
        evidence.harder,
    ),
    Statement(
        "13a",
        "the window matters less, the larger psi",
        "… implying that the parameter s value is less impactful …",
        "Exact: by how much the error of the best forecast falls from s = 1 to s = 10 becomes less at each psi.",
        "Arm 2 gains less from more contexts at psi = 1 than at psi = 2. The first one tells it most of what there is.",
        evidence.less_to_gain,
    ),
    Statement(
        "13b",
        "the larger psi, the shorter a window may be",
        "… and therefore small s values are sufficient.",
        "Exact: the smallest s whose best forecast has at most 1 % more error variance than the filter does not rise "
        "with psi.",
        "The inference is the wrong way round: the larger ρ is, the more slowly the past is forgotten, and the longer "
        "a window has to be. Within ten contexts all windows are alike at psi = 4 because none of them is long enough.",
        evidence.small_windows_suffice,
    ),
    Statement(
        "14",
        "the bias falls as the window grows (Remark 3)",
        "… ‖(Γ − ΓKC_θ)^s‖₂ decreases as s increases which implies that |β_a^t| decreases as s increases (Remark 3).",
        "Exact: the stationary standard deviation of β falls with every step from s = 0 to 10, for every psi and arm.",
        "Γ − ΓKC is stable but not normal, so its powers grow before they fall. At psi = 4 no window that ARES may "
        "choose has a smaller bias than none at all.",
        evidence.bias_falls,
    ),
)

EXACT = frozenset(("12", "13a", "13b", "14"))  # follow from the systems, whatever the policies
