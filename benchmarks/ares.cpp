// ARES on a stored trajectory, step by step as src/undertow/policies/ares.py does it: what a compiler makes of the same
// algorithm written by hand. Corrected form, noise bound B_R given, no features, the round's context after its decision.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace {

using Vector = std::vector<double>;

struct Settings { double log_1_δ, λ, α, ν, B_G, B_R; };

struct Arm {
    double played = 0, chosen = 0, forecast = 0, width = 0;
    int window = 0;
    Vector ζ, J, log_det, trace, u, W;  // per window; u (p), W (p, p) by rows

    Arm(int m, int S, int p, double λ) : ζ(S), J(S), log_det(S), trace(S), u(p), W(p * p) {
        for (int s = 0; s < S; ++s) trace[s] = (m * s + 1) / λ;
        for (int i = 0; i < p; ++i) W[i * p + i] = 1 / std::sqrt(λ);
    }
};

// y = WΘ, the first rows only
void project(const double* __restrict W, const double* __restrict Θ, double* __restrict y, int rows, int p) {
    for (int i = 0; i < rows; ++i) {
        double total = 0;
        for (int j = 0; j <= i; ++j) total += W[i * p + j] * Θ[j];
        y[i] = total;
    }
}

// V ← V + ΘΘ', b ← b + XΘ, given y = WΘ
void update(double* __restrict W, double* __restrict u, const double* __restrict y, double X, double* __restrict r,
            double* __restrict row_norms, int p) {
    double c = 1, P = 0;
    for (int i = 0; i < p; ++i) {
        const double before = c;
        c += y[i] * y[i];
        const double scale = 1 / std::sqrt(c * before), keep = before * scale, move = y[i] * scale;
        const double forecast = P;
        P += u[i] * y[i];
        u[i] = keep * u[i] + move * (X - forecast);
        r[i] = 0;
        double norm = 0;
        for (int j = 0; j <= i; ++j) {
            const double w = W[i * p + j], next = keep * w - move * r[j];
            W[i * p + j] = next;
            r[j] += y[i] * w;
            norm += next * next;
        }
        row_norms[i] = norm;
    }
}

class Ares {
public:
    Ares(int m, int k, int s_N, const Settings& settings)
        : m(m), s_N(s_N), p(m * s_N + 1), set(settings), arms(k, Arm(m, s_N + 1, p, settings.λ)), ring(2 * s_N * m),
          sums(m), counts(m), Θ(p), y(p), r(p), row_norms(p), q(s_N + 1) {}

    int decide() {
        Θ[0] = 1;
        std::copy_n(&ring[newest * m], s_N * m, &Θ[1]);
        const int usable = std::min<int64_t>(s_N, seen);
        int largest = 0, untried = -1, best = -1;
        for (int a = 0; a < int(arms.size()); ++a) {
            Arm& arm = arms[a];
            arm.window = 0;
            for (int s = 1; s <= usable; ++s)
                if (arm.J[s] < arm.J[arm.window]) arm.window = s;
            largest = std::max(largest, arm.window);
            if (arm.played == 0 && (untried < 0 || arm.chosen < arms[untried].chosen)) untried = a;
        }
        const int rows = m * largest + 1;
        for (int a = 0; a < int(arms.size()); ++a) {
            Arm& arm = arms[a];
            project(arm.W.data(), Θ.data(), y.data(), rows, p);
            double mean = 0, uncertainty = 0;
            for (int i = 0; i <= m * arm.window; ++i) mean += arm.u[i] * y[i];
            for (int i = 0; i < rows; ++i) uncertainty += y[i] * y[i];
            arm.forecast = mean;
            arm.width = arm.played == 0 ? std::numeric_limits<double>::infinity()
                                        : width(arm.log_det[largest], arm.trace[largest]) * std::sqrt(uncertainty);
            if (best < 0 || mean + arm.width > arms[best].forecast + arms[best].width) best = a;
        }
        best = untried >= 0 ? untried : best;
        arms[best].chosen += 1;
        return best;
    }

    void learn(int a, double X) {
        Arm& arm = arms[a];
        project(arm.W.data(), Θ.data(), y.data(), p, p);
        arm.played += 1;
        double forecast = 0, uncertainty = 0, trace = 0;
        for (int s = 0, i = 0; s <= s_N; ++s) {
            for (; i <= m * s; ++i) {
                forecast += arm.u[i] * y[i];
                uncertainty += y[i] * y[i];
            }
            arm.ζ[s] = set.α * arm.ζ[s] + (1 - set.α) * std::abs(X - forecast);
            q[s] = uncertainty;
        }
        update(arm.W.data(), arm.u.data(), y.data(), X, r.data(), row_norms.data(), p);
        for (int s = 0, i = 0; s <= s_N; ++s) {
            for (; i <= m * s; ++i) trace += row_norms[i];
            arm.trace[s] = trace;
            arm.log_det[s] += std::log(1 + q[s]);
            arm.J[s] = arm.ζ[s] + set.ν * width(arm.log_det[s], trace) * std::sqrt(q[s] / (1 + q[s]));
        }
    }

    void observe(const double* context) {
        newest = newest > 0 ? newest - 1 : s_N - 1;
        for (int j = 0; j < m; ++j) {
            double value = context[j];
            if (std::isnan(value)) {
                value = sums[j] / std::max(counts[j], 1.0);
            } else {
                sums[j] += value;
                counts[j] += 1;
            }
            ring[newest * m + j] = ring[(newest + s_N) * m + j] = value;
        }
        ++seen;
    }

private:
    double width(double log_det, double trace) const {
        return set.B_R * std::sqrt(2 * set.log_1_δ + log_det) + set.λ * set.B_G * std::sqrt(trace);
    }

    int m, s_N, p, newest = 0;
    int64_t seen = 0;
    Settings set;
    std::vector<Arm> arms;
    Vector ring, sums, counts, Θ, y, r, row_norms, q;
};

}  // namespace

extern "C" void ares(const double* contexts, const double* rewards, int64_t n, int64_t m, int64_t k, int64_t s_N,
                     const double* settings, int64_t* chosen) {
    Ares policy(m, k, s_N, {settings[0], settings[1], settings[2], settings[3], settings[4], settings[5]});
    for (int64_t t = 0; t < n; ++t) {
        const int arm = policy.decide();
        policy.learn(arm, rewards[t * k + arm]);
        policy.observe(contexts + t * m);
        chosen[t] = arm;
    }
}
