"""Fixed points of a linear Gaussian system: its stationary law and the steady state of its filter.

Everything here works on plain arrays: dynamics Γ, an observation map H with noise covariance R, state noise Q.
"""

import warnings
from typing import NamedTuple

import numpy as np

from undertow.errors import NoStationaryLawError, NoSteadyStateError
from undertow.support.checks import FloatArray

UNIT_CIRCLE = 1e-9  # eigenvalues this close to modulus 1 count as on the circle
_RANK = 1e-10  # relative size of a singular value that counts as zero
_ZERO = 1e-13  # relative size of an eigenvalue of a covariance that counts as zero
_NEGATIVE = 1e-12  # relative size, in each dimension, of a negative eigenvalue that is rounding
_DOUBLINGS = 64
_RESIDUAL = 1e-7  # relative residual that a solution of a matrix equation may leave


class SteadyState(NamedTuple):
    """The limit of the Kalman filter.

    Attributes
    ----------
    prediction_covariance
        P, the covariance of z_t − ẑ_t before the round's observations, (d, d).
    prediction_gain
        ΓK, which takes an innovation to the next prediction, (d, p).
    filter_covariance
        P − KHP, the covariance after the round's observations, (d, d).
    filter_gain
        K = PH'(HPH' + R)⁻¹, which takes an innovation to the filtered state, (d, p).
    closed_loop
        A = Γ − ΓKH, the dynamics of the prediction error, (d, d).
    """

    prediction_covariance: FloatArray
    prediction_gain: FloatArray
    filter_covariance: FloatArray
    filter_gain: FloatArray
    closed_loop: FloatArray


def spectral_radius(Γ: FloatArray) -> float:
    """Return the largest modulus of an eigenvalue."""
    return float(np.abs(np.linalg.eigvals(Γ)).max())


def stationary_mean(Γ: FloatArray, μ: FloatArray) -> FloatArray:
    """Solve z = Γz + μ for a stable Γ."""
    _require_stable(Γ)
    return np.asarray(np.linalg.solve(np.eye(len(Γ)) - Γ, μ))


def stationary_covariance(Γ: FloatArray, Q: FloatArray) -> FloatArray:
    """Solve the Lyapunov equation Z = ΓZΓ' + Q for a stable Γ."""
    from scipy.linalg import LinAlgError, LinAlgWarning, solve_discrete_lyapunov

    _require_stable(Γ)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            Z = np.asarray(solve_discrete_lyapunov(Γ, Q))
        Z = (Z + Z.T) / 2
        values = np.linalg.eigvalsh(Z)
        sound = bool(values[0] >= -_NEGATIVE * len(Z) * values[-1])
    except (LinAlgError, LinAlgWarning, RuntimeWarning):
        sound = False
    return Z if sound else _doubled(Γ, Q)


def _doubled(Γ: FloatArray, Q: FloatArray) -> FloatArray:
    """Sum Γ^i Q Γ'^i, twice as many terms in every step: slower, but a covariance even if Γ is close to the circle."""
    Z, A = Q, Γ
    for _ in range(_DOUBLINGS):
        more = A @ Z @ A.T
        Z = Z + (more + more.T) / 2
        if np.abs(more).max() <= np.finfo(float).eps * np.abs(Z).max():
            break
        A = A @ A
    return Z


def square_root(covariance: FloatArray) -> FloatArray:
    """Return the symmetric square root, which unlike a Cholesky factor is unique for singular matrices too."""
    values, vectors = np.linalg.eigh(covariance)
    values = np.where(values > _ZERO * values.max(initial=0.0), values, 0.0)
    return np.asarray((vectors * np.sqrt(values)) @ vectors.T)


def unobserved_modes(Γ: FloatArray, H: FloatArray) -> FloatArray:
    """Return the unobservable eigenvalues of Γ, given Hz (Popov–Belevitch–Hautus test)."""
    d = len(Γ)
    norms = np.linalg.norm(H, axis=1, keepdims=True)
    H = H / np.where(norms > 0, norms, 1.0)  # the unit of a measurement does not matter
    eigenvalues = np.linalg.eigvals(Γ)
    scale = max(1.0, float(np.linalg.norm(Γ, 2)))
    return np.array(
        [
            λ
            for λ in eigenvalues
            if np.linalg.svd(np.vstack([Γ - λ * np.eye(d), H]), compute_uv=False)[-1] <= _RANK * scale
        ]
    )


def seen_directions(Γ: FloatArray, H: FloatArray) -> FloatArray:
    """Return an orthonormal basis, in columns, of the observable part of the state, given Hz.

    It spans the rows of H, HΓ, HΓ², …, made orthonormal as they come, since powers of Γ would drown one another.
    """
    norms = np.linalg.norm(H, axis=1)
    new = H[norms > 0].T / norms[norms > 0]
    U = np.empty((len(Γ), 0))
    while new.shape[1]:
        for _ in range(2):  # the second time removes rounding errors
            new = new - U @ (U.T @ new)
        left, sizes, _ = np.linalg.svd(new, full_matrices=False)
        new = left[:, sizes > _RANK]
        U = np.hstack([U, new])
        new = Γ.T @ new / max(1.0, float(np.linalg.norm(Γ, 2)))
    return U


def steady_state(Γ: FloatArray, H: FloatArray, Q: FloatArray, R: FloatArray) -> SteadyState:
    """Solve the Riccati equation P = ΓPΓ' + Q − ΓPH'(HPH' + R)⁻¹HPΓ' and derive the gains from P.

    A stabilising solution exists if H observes every mode on or outside the unit circle and Q drives every mode on the
    circle; this is weaker than the observability and controllability that the paper assumes.
    """
    from scipy.linalg import solve_discrete_are

    eigenvalues = np.abs(np.linalg.eigvals(Γ))
    if (eigenvalues >= 1 - UNIT_CIRCLE).any():
        _require_detectable(Γ, H)
        _require_stabilisable(Γ, Q)
    # Measurements are scaled to units of their noise, by powers of two, which changes no digit.
    noise = np.sqrt(np.diag(R))
    unit = 2.0 ** -np.round(np.log2(np.where(noise > 0, noise, 1.0)))
    H, R = unit[:, None] * H, unit[:, None] * R * unit
    if len(H) == 0:
        P = stationary_covariance(Γ, Q)
    else:
        try:
            P = solve_discrete_are(Γ.T, H.T, Q, R)
        except np.linalg.LinAlgError as error:
            raise NoSteadyStateError(
                f"the Riccati solver failed ({error}); rescale the system to similar sizes"
            ) from error
        P = (P + P.T) / 2
    S = H @ P @ H.T + R
    K = np.asarray(np.linalg.solve(S, H @ P).T, dtype=np.float64)
    filtered = P - K @ (H @ P)
    residual = np.abs(Γ @ filtered @ Γ.T + Q - P).max() / max(np.abs(P).max(), np.finfo(float).tiny)
    closed_loop = Γ - Γ @ K @ H
    if not residual <= _RESIDUAL or spectral_radius(closed_loop) >= 1:
        raise NoSteadyStateError(
            f"the Riccati solver's answer is not a steady state (relative residual {residual:.1e}); "
            f"the system is too badly scaled or too close to an unobservable unit root"
        )
    K = K * unit
    return SteadyState(P, Γ @ K, (filtered + filtered.T) / 2, K, closed_loop)


def _require_stable(Γ: FloatArray) -> None:
    radius = spectral_radius(Γ)
    if radius >= 1 - UNIT_CIRCLE:
        raise NoStationaryLawError(
            f"dynamics: no stationary law exists at spectral radius {radius:.6g}; it has to be below 1"
        )


def _require_detectable(Γ: FloatArray, H: FloatArray) -> None:
    hidden = unobserved_modes(Γ, H)
    hidden = hidden[np.abs(hidden) >= 1 - UNIT_CIRCLE]
    if hidden.size:
        raise NoSteadyStateError(
            f"no steady state: the mode of the dynamics with eigenvalue {hidden[0]:.6g} does not decay and "
            f"cannot be observed; observe it (context_map, arms) or make it stable"
        )


def _require_stabilisable(Γ: FloatArray, Q: FloatArray) -> None:
    unmoved = unobserved_modes(Γ.T, Q)
    unmoved = unmoved[np.abs(np.abs(unmoved) - 1) <= UNIT_CIRCLE]
    if unmoved.size:
        raise NoSteadyStateError(
            f"no steady state: the mode of the dynamics with eigenvalue {unmoved[0]:.6g} lies on the unit circle and "
            f"has no state_noise, so its uncertainty shrinks forever; add state noise to it, or run the filter without "
            f"its steady state"
        )
