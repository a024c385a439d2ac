// The likelihood of a shared system and its score, step by step as src/undertow/identify/score.py has them: what a
// compiler makes of the same algorithm written by hand, with the same rows of eight and the same store of beliefs.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace {

constexpr int W = 8, B = W * W, C_AT = B + W, FIXED = 7, SUMS = (W + 3) * W;

// Eight numbers at once: g++ sends a struct of eight through memory, which takes twice as long. It needs AVX-512; without
// it, g++ takes such a row apart badly, and the comparison flatters us.
typedef double Row __attribute__((vector_size(8 * W)));
typedef Row Stored __attribute__((aligned(8), may_alias));

Row row(const double* X, int i = 0) { return *reinterpret_cast<const Stored*>(X + W * i); }

void put(double* X, int i, Row y) { *reinterpret_cast<Stored*>(X + W * i) = y; }

Row plus(Row x, double a, Row y) { return x + a * y; }

double dot(Row x, Row y) {
    const Row xy = x * y;
    return ((xy[0] + xy[4]) + (xy[1] + xy[5])) + ((xy[2] + xy[6]) + (xy[3] + xy[7]));
}

// x'Y
Row times_rows(const double* x, const double* Y, int d) {
    Row total = {};
    for (int h = 0; h < d; ++h) total = plus(total, x[h], row(Y, h));
    return total;
}

void multiply(const double* X, const double* Y, int d, double* out) {
    for (int i = 0; i < d; ++i) put(out, i, times_rows(X + W * i, Y, d));
}

// X + a x y'
void add_outer(double* X, double a, const double* x, Row y, int d) {
    for (int i = 0; i < d; ++i) put(X, i, plus(row(X, i), a * x[i], y));
}

void transpose(const double* A, double* At) {
    for (int i = 0; i < W; ++i)
        for (int j = 0; j < W; ++j) At[W * j + i] = A[W * i + j];
}

struct Model {
    const double *A, *b, *C, *D, *ρ;
    int d, m, k, p, noise_at, stride;

    Model(const double* π, int d, int m, int k)
        : A(π), b(π + B), C(π + C_AT), D(C + W * (m + k)), ρ(D + m + k), d(d), m(m), k(k), p(m + k),
          noise_at(int(ρ - π)), stride(C_AT + (W + 2) * (m + 1)) {}

    // Which output entry i of a round is, −1 where it was not seen; and its value
    int output(const double* line, int i, double& y) const {
        y = i < m ? line[i] : line[m + 1];
        const int o = i < m ? i : m + int(line[m]);
        return std::isnan(y) || o < i ? -1 : o;
    }
};

double filter(const Model& own, const double* table, int64_t n, double variance, double* store) {
    const int d = own.d, m = own.m;
    alignas(64) double z[W] = {}, P[B] = {}, At[B], X[B] = {};
    transpose(own.A, At);
    for (int i = 0; i < d; ++i) P[W * i + i] = variance;
    std::vector<double> noise(m + 1);
    for (int i = 0; i <= m; ++i) noise[i] = std::exp(own.ρ[i]);
    double total = 0;
    for (int64_t t = 0; t < n; ++t) {
        if (t > 0) {
            put(z, 0, plus(times_rows(z, At, d), 1, row(own.b)));
            multiply(own.A, P, d, X);
            multiply(X, At, d, P);
            for (int i = 0; i < d; ++i) {
                P[W * i + i] += 1;
                for (int j = 0; j < i; ++j) P[W * i + j] = P[W * j + i] = 0.5 * (P[W * i + j] + P[W * j + i]);
            }
        }
        double* at = store + t * own.stride;
        for (int i = 0; i <= m; ++i) {
            double y;
            const int o = own.output(table + t * (m + 2), i, y);
            if (o < 0) continue;
            double* K = at + C_AT + (W + 2) * i;
            const Row h = row(own.C, o);
            const double v = y - own.D[o] - dot(h, row(z));
            const Row Ph = times_rows(own.C + W * o, P, d);
            const double F = noise[i] + dot(h, Ph);
            put(K, 0, plus(Row{}, 1 / F, Ph));
            put(z, 0, plus(row(z), v / F, Ph));
            add_outer(P, -1, K, Ph, d);
            K[W] = v;
            K[W + 1] = F;
            total -= 0.5 * (std::log(2 * M_PI) + std::log(F) + v * v / F);
        }
        std::copy_n(z, W, at);
        std::copy_n(P, B, at + W);
    }
    return total;
}

// `sums` (m + k + 1, 11, 8) and `disturbed` (17, 8) as in score.py
void smooth(const Model& own, const double* table, int64_t n, const double* store, double* sums, double* disturbed) {
    const int d = own.d, m = own.m, p = own.p;
    alignas(64) double N[B] = {}, NA[B] = {}, NAP[B] = {}, PAt[B] = {}, S[B] = {}, At[B], r[W] = {}, zs[W] = {}, old[W];
    transpose(own.A, At);
    std::fill_n(sums, (p + 1) * SUMS, 0.0);
    std::fill_n(disturbed, 17 * W, 0.0);
    for (int64_t t = n - 1; t >= 0; --t) {
        const double *z = store + t * own.stride, *P = z + W;
        if (t == n - 1) {
            std::copy_n(z, W, zs);
            std::copy_n(P, W * d, S);
        } else {
            multiply(N, own.A, d, NA);
            multiply(NA, P, d, NAP);
            multiply(P, At, d, PAt);
            std::copy_n(r, W, old);
            put(disturbed, W, plus(row(disturbed, W), 1, row(old)));
            for (int i = 0; i < d; ++i)
                put(disturbed, W + 1 + i, plus(plus(row(disturbed, W + 1 + i), old[i], row(old)), -1, row(N, i)));
            put(r, 0, times_rows(old, own.A, d));
            put(zs, 0, plus(row(z), 1, times_rows(r, P, d)));
            add_outer(disturbed, 1, old, row(zs), d);
            for (int i = 0; i < d; ++i) {
                put(disturbed, i, plus(row(disturbed, i), -1, row(NAP, i)));
                put(S, i, plus(row(P, i), -1, times_rows(PAt + W * i, NAP, d)));
            }
            multiply(At, NA, d, N);
        }
        const Row mean = row(zs);
        add_outer(S, 1, zs, mean, d);
        if (t < n - 1) {
            double* whole = sums + p * SUMS;
            for (int i = 0; i < d; ++i) put(whole, i, plus(row(whole, i), 1, row(S, i)));
            put(whole, W, plus(row(whole, W), 1, mean));
            whole[W * (W + 2)] += 1;
        }
        for (int i = m; i >= 0; --i) {
            double y;
            const int o = own.output(table + t * (m + 2), i, y);
            if (o < 0) continue;
            double *seen = sums + o * SUMS, *last = seen + W * (W + 2);
            for (int j = 0; j < d; ++j) put(seen, j, plus(row(seen, j), 1, row(S, j)));
            put(seen, W, plus(row(seen, W), 1, mean));
            put(seen, W + 1, plus(row(seen, W + 1), y, mean));
            last[0] += 1;
            last[1] += y;
            last[2] += y * y;
            const double *K = z + C_AT + (W + 2) * i, v = K[W], F = K[W + 1];
            const Row h = row(own.C, o), gain = row(K), NK = times_rows(K, N, d);
            put(r, 0, plus(row(r), v / F - dot(gain, row(r)), h));
            put(old, 0, NK);
            add_outer(N, -1, old, h, d);
            add_outer(N, 1, own.C + W * o, plus(plus(Row{}, dot(gain, NK) + 1 / F, h), -1, NK), d);
        }
    }
}

}  // namespace

extern "C" double filter_table(const double* π, int64_t d, int64_t m, int64_t k, const double* table, int64_t n,
                               double variance, double* store) {
    return filter(Model(π, d, m, k), table, n, variance, store);
}

// Returns the penalised objective and fills its gradient and the information of the complete data
extern "C" double score(const double* π, int64_t order, int64_t m, int64_t k, const double* table, int64_t n,
                        const double* prior, double* store, double* gradient, double* information, double* disturbed) {
    const Model own(π, order, m, k);
    const int d = own.d, p = own.p;
    double objective = -filter(own, table, n, prior[0], store);
    std::vector<double> sums((p + 1) * SUMS), counts(m + 1), residuals(m + 1);
    smooth(own, table, n, store, sums.data(), disturbed);

    std::fill_n(gradient, own.noise_at + m + 1, 0.0);
    for (int i = 0; i < d; ++i) {
        for (int j = 0; j < d; ++j) {
            const double a = own.A[W * i + j];
            objective += 0.5 * a * a;
            gradient[W * i + j] = a - disturbed[W * i + j];
        }
        objective += 0.5 * own.b[i] * own.b[i];
        gradient[B + i] = own.b[i] - disturbed[W * W + i];
    }
    for (int o = 0; o < p; ++o) {
        const double *seen = &sums[o * SUMS], *Ez = seen + W * W, *yz = Ez + W, *last = yz + W, *c = own.C + W * o;
        const int q = std::min<int>(o, m);
        const double n_o = last[0], D = own.D[o], r = std::exp(own.ρ[q]);
        const double loading = o < m ? prior[1] : prior[3], precision = o < m ? prior[2] : prior[5];
        const double deviation = D - (o < m ? 0 : prior[4]);
        double e1 = last[1] - n_o * D, e2 = last[2] - 2 * D * last[1] + n_o * D * D;
        for (int i = 0; i < d; ++i) {
            double Sc = D * Ez[i];
            for (int j = 0; j < d; ++j) Sc += seen[W * i + j] * c[j];
            e1 -= c[i] * Ez[i];
            e2 += c[i] * (Sc + D * Ez[i] - 2 * yz[i]);
            gradient[C_AT + W * o + i] = loading * c[i] - (yz[i] - Sc) / r;
            objective += 0.5 * loading * c[i] * c[i];
        }
        gradient[C_AT + W * p + o] = precision * deviation - e1 / r;
        objective += 0.5 * precision * deviation * deviation;
        counts[q] += n_o;
        residuals[q] += e2;
    }
    for (int q = 0; q <= m; ++q) {
        const double r = std::exp(own.ρ[q]), used = prior[FIXED + q];
        gradient[own.noise_at + q] = 0.5 * (counts[q] - used + 1) - 0.5 * (residuals[q] + prior[6]) / r;
        objective += 0.5 * (1 - used) * own.ρ[q] + 0.5 * prior[6] / r;
    }
    for (int o = 0; o <= p; ++o) {
        double* block = information + (W + 1) * (W + 1) * o;
        const double* seen = &sums[o * SUMS];
        for (int i = 0; i < W; ++i) {
            for (int j = 0; j < W; ++j) block[(W + 1) * i + j] = seen[W * i + j];
            block[(W + 1) * i + W] = block[(W + 1) * W + i] = seen[W * W + i];
        }
        block[(W + 1) * W + W] = seen[W * (W + 2)];
    }
    return objective;
}
