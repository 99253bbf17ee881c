/* The matrix products of the layer on a block of rows that stays in the cache.

   A block is `rows` points of `width` channels (padded to whole vectors), `ld` floats apart. M, the number of components,
   and U, the number of rows worked on at once, are constants to the compiler: every function is inlined where they are
   known, and its small loops are unrolled into registers. Coefficients are packed as [width / VL][components][K][VL], so
   that one pointer walks through all K of each component; `step` is the distance from one vector of channels to the next.
   Everything is centred at `shift`. Weights are component-major: that of row i and component j is w[j * ldw + i].
   The symbols are those of longtail.nn.backends.eager. */
#ifndef LONGTAIL_BLOCKS_H
#define LONGTAIL_BLOCKS_H

#include "vector.h"

#define MAX_COMPONENTS 8
#define MAX_UNROLL 4

/* Fetch what the rows to come will read or write, far enough ahead to hide the memory's latency. It matters where the
   tensors are larger than the caches; the distances, in floats, were found by trial. */
INLINE void fetch_ahead(const float *p) { __builtin_prefetch(p + 2048, 0, 2); }
INLINE void claim_ahead(const float *p) { __builtin_prefetch(p + 512, 1, 2); }

/* ---- E-step ---- */

INLINE void log_weights_rows(const int M, const int U, const float *x, long ld, long width, const float *shift,
                             const float *pack, float *partial) {
    vec sum[MAX_UNROLL][MAX_COMPONENTS];
    UNROLL for (int u = 0; u < U; u++) UNROLL for (int j = 0; j < M; j++) sum[u][j] = (vec){0};
    for (long d = 0; d < width; d += VL, pack += 2 * M * VL) {
        vec c[MAX_UNROLL];
        UNROLL for (int u = 0; u < U; u++) {
            fetch_ahead(x + u * ld + d);
            c[u] = load(x + u * ld + d) - load(shift + d);
        }
        UNROLL for (int j = 0; j < M; j++) {
            vec q = load(pack + 2 * j * VL), p = load(pack + (2 * j + 1) * VL);
            UNROLL for (int u = 0; u < U; u++) sum[u][j] += c[u] * (p * c[u] + q);
        }
    }
    UNROLL for (int u = 0; u < U; u++)
        UNROLL for (int j = 0; j < M; j++) store8(partial + (u * M + j) * 8, fold(sum[u][j]));
}

/* x(q + xp) for up to eight rows and each component, as eight partial sums each: [8][M][8]. The pack is (q, p). */
INLINE void log_weights(const int M, long rows, const float *x, long ld, long width, const float *shift,
                        const float *pack, float *partial) {
    const int U = M <= 2 ? 4 : M <= 4 ? 2 : 1;
    long i = 0;
    for (; i + U <= rows; i += U) log_weights_rows(M, U, x + i * ld, ld, width, shift, pack, partial + i * M * 8);
    for (; i < rows; i++) log_weights_rows(M, 1, x + i * ld, ld, width, shift, pack, partial + i * M * 8);
}

/* w, with zeros behind the last row up to a whole vector. The pack is (q, p). */
INLINE void responsibilities(const int M, long rows, const float *x, long ld, long width, const float *shift,
                             const float *pack, const float *constant, float *w, long ldw) {
    float partial[8 * MAX_COMPONENTS * 8];
    if (rows % 8) memset(partial, 0, sizeof partial);
    for (long i = 0; i < rows; i += 8) {
        log_weights(M, rows - i < 8 ? rows - i : 8, x + i * ld, ld, width, shift, pack, partial);
        v8 l[MAX_COMPONENTS];
        UNROLL for (int j = 0; j < M; j++) l[j] = sum_each(partial + j * 8, M * 8) + constant[j];
        v8 most = l[0], total = (v8){0};
        UNROLL for (int j = 1; j < M; j++) most = max8(most, l[j]);
        UNROLL for (int j = 0; j < M; j++) total += l[j] = exp8(l[j] - most);
        v8 scale = 1.0f / total;
        UNROLL for (int j = 0; j < M; j++) store8(w + j * ldw + i, l[j] * scale);
    }
    for (int j = 0; j < M; j++)
        for (long i = rows; i % 8; i++) w[j * ldw + i] = 0;
}

/* ---- sums over the rows ---- */

INLINE void add_mass(const int M, long rows, const float *w, long ldw, float *mass) {
    for (int j = 0; j < M; j++) {
        v8 sum = {0};
        for (long i = 0; i < rows; i += 8) sum += load8(w + j * ldw + i);
        mass[j] += sum8(sum);
    }
}

/* One vector of channels: a += w(first), b += w(second), where g is NULL (x, x²), else (g, gx). */
INLINE void weighted_sums_column(const int M, const int U, long rows, const float *x, const float *g, long ld, long ldg,
                                 vec s, const float *w, long ldw, float *sums) {
    vec a[MAX_UNROLL][MAX_COMPONENTS], b[MAX_UNROLL][MAX_COMPONENTS];
    UNROLL for (int u = 0; u < U; u++) UNROLL for (int j = 0; j < M; j++) a[u][j] = b[u][j] = (vec){0};
    long i = 0;
    for (; i + U <= rows; i += U) {
        UNROLL for (int u = 0; u < U; u++) {
            vec c = load(x + (i + u) * ld) - s;
            vec first = g ? load(g + (i + u) * ldg) : c, second = first * c;
            UNROLL for (int j = 0; j < M; j++) {
                vec weight = splat(w[j * ldw + i + u]);
                a[u][j] += weight * first;
                b[u][j] += weight * second;
            }
        }
    }
    for (; i < rows; i++) {
        vec c = load(x + i * ld) - s;
        vec first = g ? load(g + i * ldg) : c, second = first * c;
        UNROLL for (int j = 0; j < M; j++) {
            vec weight = splat(w[j * ldw + i]);
            a[0][j] += weight * first;
            b[0][j] += weight * second;
        }
    }
    UNROLL for (int j = 0; j < M; j++) {
        UNROLL for (int u = 1; u < U; u++) a[0][j] += a[u][j], b[0][j] += b[u][j];
        store(sums + 2 * j * VL, load(sums + 2 * j * VL) + a[0][j]);
        store(sums + (2 * j + 1) * VL, load(sums + (2 * j + 1) * VL) + b[0][j]);
    }
}

/* sums (packed, K = 2) += w(x), w(x²) if g is NULL, else w(g), w(gx). */
INLINE void weighted_sums(const int M, long rows, const float *x, const float *g, long ld, long ldg, long width,
                          const float *shift, const float *w, long ldw, float *sums, long step) {
    const int U = M == 1 ? 4 : M == 2 ? 2 : 1;
    for (long d = 0; d < width; d += VL, sums += step) {
        const float *gd = g ? g + d : NULL;
        vec s = load(shift + d);
        /* This column's share of the next block: walking down long columns, nothing else would fetch it in time. */
        if (g && width >= 128)
            for (long k = d * rows; k < (d + VL) * rows; k += 16) {
                __builtin_prefetch(x + rows * ld + k, 0, 2);
                __builtin_prefetch(g + rows * ldg + k, 0, 2);
            }
        if (M <= 5)
            weighted_sums_column(M, U, rows, x + d, gd, ld, ldg, s, w, ldw, sums);
        else { /* sixteen registers hold the sums of five components */
            weighted_sums_column(4, 1, rows, x + d, gd, ld, ldg, s, w, ldw, sums);
            weighted_sums_column(M - 4, 1, rows, x + d, gd, ld, ldg, s, w + 4 * ldw, ldw, sums + 8 * VL);
        }
    }
}

/* ---- output ---- */

INLINE void transform_rows(const int M, const int U, const float *x, long ld, long width, const float *shift,
                           const float *w, long ldw, const float *pack, long step, vec floor, float *y, long ldy) {
    for (long d = 0; d < width; d += VL, pack += step) {
        vec a[MAX_UNROLL], b[MAX_UNROLL];
        UNROLL for (int u = 0; u < U; u++) a[u] = b[u] = (vec){0};
        UNROLL for (int j = 0; j < M; j++) {
            vec scale = load(pack + 2 * j * VL), offset = load(pack + (2 * j + 1) * VL);
            UNROLL for (int u = 0; u < U; u++) {
                vec weight = splat(w[j * ldw + u]);
                a[u] += weight * scale;
                b[u] += weight * offset;
            }
        }
        UNROLL for (int u = 0; u < U; u++) fetch_ahead(x + u * ld + d), claim_ahead(y + u * ldy + d);
        UNROLL for (int u = 0; u < U; u++) {
            vec result = (load(x + u * ld + d) - load(shift + d)) * a[u] + b[u];
            store(y + u * ldy + d, zero_where((ivec)(result < floor), result));
        }
    }
}

/* y = x(wA) + wB, or its ReLU; NaN stays NaN. The pack is (A, B). */
INLINE void transform(const int M, long rows, const float *x, long ld, long width, const float *shift, const float *w,
                      long ldw, const float *pack, long step, int relu, float *y, long ldy) {
    const int U = 4;
    const vec floor = splat(relu ? 0 : -__builtin_inff());
    long i = 0;
    for (; i + U <= rows; i += U)
        transform_rows(M, U, x + i * ld, ld, width, shift, w + i, ldw, pack, step, floor, y + i * ldy, ldy);
    for (; i < rows; i++) transform_rows(M, 1, x + i * ld, ld, width, shift, w + i, ldw, pack, step, floor, y + i * ldy, ldy);
}

/* ---- gradient ---- */

/* g where the output y of the ReLU let it through, as torch has it: y is not 0, or NaN. */
INLINE void mask_gradient(long size, const float *g, const float *y, float *masked) {
    for (long i = 0; i < size; i += VL) {
        fetch_ahead(g + i);
        fetch_ahead(y + i);
        store(masked + i, zero_where((ivec)(load(y + i) <= (vec){0}), load(g + i)));
    }
}

/* ∂L/∂w without its constant for U rows, as eight partial sums: [U][M][8]. */
INLINE void weight_gradient_rows(const int M, const int U, const int batch, const float *x, long ld, const float *g,
                                 long ldg, long width, const float *shift, const float *pack, float *partial) {
    vec sum[MAX_UNROLL][MAX_COMPONENTS];
    UNROLL for (int u = 0; u < U; u++) UNROLL for (int j = 0; j < M; j++) sum[u][j] = (vec){0};
    for (long d = 0; d < width; d += VL, pack += 4 * M * VL) {
        vec c[MAX_UNROLL], gradient[MAX_UNROLL];
        UNROLL for (int u = 0; u < U; u++) {
            fetch_ahead(x + u * ld + d);
            fetch_ahead(g + u * ldg + d);
            c[u] = load(x + u * ld + d) - load(shift + d);
            gradient[u] = load(g + u * ldg + d);
        }
        UNROLL for (int j = 0; j < M; j++) {
            vec a = load(pack + 4 * j * VL), b = load(pack + (4 * j + 1) * VL);
            UNROLL for (int u = 0; u < U; u++) sum[u][j] += gradient[u] * (a * c[u] + b);
            if (batch) {
                vec g1 = load(pack + (4 * j + 2) * VL), g2 = load(pack + (4 * j + 3) * VL);
                UNROLL for (int u = 0; u < U; u++) sum[u][j] += c[u] * (g2 * c[u] + g1);
            }
        }
    }
    UNROLL for (int u = 0; u < U; u++)
        UNROLL for (int j = 0; j < M; j++) store8(partial + (u * M + j) * 8, fold(sum[u][j]));
}

/* h = w(∂L/∂w - Σ w ∂L/∂w), through the softmax. The pack is (A, B, G1, G2), the last two only where the batch's moments
   normalise; the constant is G0. */
INLINE void log_weight_gradient(const int M, const int batch, long rows, const float *x, long ld, const float *g,
                                long ldg, long width, const float *shift, const float *pack, const float *constant,
                                const float *w, float *h, long ldw) {
    const int U = M <= 2 ? 4 : M <= 4 ? 2 : 1;
    float partial[8 * MAX_COMPONENTS * 8];
    if (rows % 8) memset(partial, 0, sizeof partial);
    for (long i = 0; i < rows; i += 8) {
        long end = rows - i < 8 ? rows : i + 8, k = i;
        for (; k + U <= end; k += U)
            weight_gradient_rows(M, U, batch, x + k * ld, ld, g + k * ldg, ldg, width, shift, pack,
                                 partial + (k - i) * M * 8);
        for (; k < end; k++)
            weight_gradient_rows(M, 1, batch, x + k * ld, ld, g + k * ldg, ldg, width, shift, pack,
                                 partial + (k - i) * M * 8);
        v8 gradient[MAX_COMPONENTS], mean = {0};
        UNROLL for (int j = 0; j < M; j++) {
            gradient[j] = sum_each(partial + j * 8, M * 8) + constant[j];
            mean += load8(w + j * ldw + i) * gradient[j];
        }
        UNROLL for (int j = 0; j < M; j++) store8(h + j * ldw + i, load8(w + j * ldw + i) * (gradient[j] - mean));
    }
}

INLINE void input_gradient_rows(const int M, const int U, const int batch, const int through, const float *x, long ld,
                                const float *g, long ldg, long width, const float *shift, const float *w,
                                const float *h, long ldw, const float *pack, long step, float *out, long ldo) {
    for (long d = 0; d < width; d += VL, pack += step) {
        vec by_g[MAX_UNROLL], by_x[MAX_UNROLL], alone[MAX_UNROLL];
        UNROLL for (int u = 0; u < U; u++) by_g[u] = by_x[u] = alone[u] = (vec){0};
        UNROLL for (int j = 0; j < M; j++) {
            const float *k = pack + 5 * j * VL;
            vec weight[MAX_UNROLL];
            UNROLL for (int u = 0; u < U; u++) {
                weight[u] = splat(w[j * ldw + u]);
                by_g[u] += weight[u] * load(k);
            }
            if (batch) {
                UNROLL for (int u = 0; u < U; u++) by_x[u] += weight[u] * load(k + VL);
                UNROLL for (int u = 0; u < U; u++) alone[u] += weight[u] * load(k + 2 * VL);
            }
            if (through) {
                UNROLL for (int u = 0; u < U; u++) {
                    weight[u] = splat(h[j * ldw + u]);
                    by_x[u] += weight[u] * load(k + 3 * VL);
                }
                UNROLL for (int u = 0; u < U; u++) alone[u] += weight[u] * load(k + 4 * VL);
            }
        }
        UNROLL for (int u = 0; u < U; u++) {
            claim_ahead(out + u * ldo + d);
            vec result = load(g + u * ldg + d) * by_g[u];
            if (batch || through) result += (load(x + u * ld + d) - load(shift + d)) * by_x[u] + alone[u];
            store(out + u * ldo + d, result);
        }
    }
}

/* ∂L/∂x = g(wA) + x(w 2G2 + h 2P) + wG1 + hQ; the pack is (A, 2G2, G1, 2P, Q). */
INLINE void input_gradient(const int M, const int batch, const int through, long rows, const float *x, long ld,
                           const float *g, long ldg, long width, const float *shift, const float *w, const float *h,
                           long ldw, const float *pack, long step, float *out, long ldo) {
    const int U = 3;
    long i = 0;
    for (; i + U <= rows; i += U)
        input_gradient_rows(M, U, batch, through, x + i * ld, ld, g + i * ldg, ldg, width, shift, w + i, h + i, ldw,
                            pack, step, out + i * ldo, ldo);
    for (; i < rows; i++)
        input_gradient_rows(M, 1, batch, through, x + i * ld, ld, g + i * ldg, ldg, width, shift, w + i, h + i, ldw,
                            pack, step, out + i * ldo, ldo);
}

#endif
