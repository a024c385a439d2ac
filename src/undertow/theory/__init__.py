"""The paper's theory, computable: regret of oracles, bounds, and their failures (docs/theory.md)."""

from undertow.theory.bounds import (
    BoundTerms,
    StackedContexts,
    bias_factor,
    bound_terms,
    corrected_regret_bound,
    cost_inequality,
    model_error_bound,
    noise_width,
    norm_bound,
    prediction_error_bound,
    printed_regret_bound,
    regret_rate,
    stacked_contexts,
    true_noise_bound,
)
from undertow.theory.lower import lower_bound, printed_lower_bound, repaired_lower_bound
from undertow.theory.oracles import (
    Estimate,
    context_oracle_regret,
    expected_maximum,
    full_information_regret,
    greedy_regret,
    noise_sum,
    random_regret,
)
from undertow.theory.reach import conditional_regret_bound, informative_rounds, sufficient_window

__all__ = [
    "BoundTerms",
    "Estimate",
    "StackedContexts",
    "bias_factor",
    "bound_terms",
    "conditional_regret_bound",
    "context_oracle_regret",
    "corrected_regret_bound",
    "cost_inequality",
    "expected_maximum",
    "full_information_regret",
    "greedy_regret",
    "informative_rounds",
    "lower_bound",
    "model_error_bound",
    "noise_sum",
    "noise_width",
    "norm_bound",
    "prediction_error_bound",
    "printed_lower_bound",
    "printed_regret_bound",
    "random_regret",
    "regret_rate",
    "repaired_lower_bound",
    "stacked_contexts",
    "sufficient_window",
    "true_noise_bound",
]
