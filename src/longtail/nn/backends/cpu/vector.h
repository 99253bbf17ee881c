/* Vectors of floats in the compiler's own notation: AVX2, AVX-512, NEON or SSE, as the flags of the build say. */
#ifndef LONGTAIL_VECTOR_H
#define LONGTAIL_VECTOR_H

#include <stdint.h>
#include <string.h>

#ifndef VL
#define VL 8 /* floats in a vector: 16 for AVX-512; where the machine's are narrower the compiler takes several */
#endif

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

typedef float vec __attribute__((vector_size(4 * VL)));
typedef float vec_memory __attribute__((vector_size(4 * VL), aligned(4), may_alias)); /* at any address */
typedef float v8 __attribute__((vector_size(32)));
typedef float v8_memory __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t i8 __attribute__((vector_size(32)));
typedef int32_t ivec __attribute__((vector_size(4 * VL)));

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (i8){__VA_ARGS__})
#endif

INLINE vec load(const float *p) { return *(const vec_memory *)p; }
INLINE void store(float *p, vec v) { *(vec_memory *)p = v; }
INLINE v8 load8(const float *p) { return *(const v8_memory *)p; }
INLINE void store8(float *p, v8 v) { *(v8_memory *)p = v; }
INLINE vec splat(float f) { return f - (vec){0}; }
INLINE v8 splat8(float f) { return f - (v8){0}; }

/* v, and 0 in the lanes of the mask. */
INLINE vec zero_where(ivec mask, vec v) { return (vec)(~mask & (ivec)v); }

/* A vector's lanes summed down to eight. */
INLINE v8 fold(vec v) {
#if VL == 8
    return v;
#else
    float lanes[VL];
    store(lanes, v);
    return load8(lanes) + load8(lanes + 8);
#endif
}

INLINE v8 select8(i8 mask, v8 yes, v8 no) { return (v8)((mask & (i8)yes) | (~mask & (i8)no)); }

/* The larger; where b is NaN, a. */
INLINE v8 max8(v8 a, v8 b) { return select8((i8)(b > a), b, a); }

/* The sums of eight vectors, one a lane; they lie `stride` floats apart. Half of the shuffles keep each lane in its place:
   blends, which are cheaper. */
INLINE v8 sum_each(const float *p, long stride) {
    v8 quarter[4], half[2];
    UNROLL for (int k = 0; k < 4; k++) {
        v8 a = load8(p + 2 * k * stride), b = load8(p + (2 * k + 1) * stride);
        quarter[k] = SHUFFLE(a, b, 2, 3, 8, 9, 6, 7, 12, 13) + SHUFFLE(a, b, 0, 1, 10, 11, 4, 5, 14, 15);
    }
    UNROLL for (int k = 0; k < 2; k++) {
        v8 a = quarter[2 * k], b = quarter[2 * k + 1];
        half[k] = SHUFFLE(a, b, 0, 2, 8, 10, 4, 6, 12, 14) + SHUFFLE(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
    }
    return SHUFFLE(half[0], half[1], 4, 5, 6, 7, 8, 9, 10, 11) + SHUFFLE(half[0], half[1], 0, 1, 2, 3, 12, 13, 14, 15);
}

INLINE float sum8(v8 v) { return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7])); }

/* exp(x) for x <= 0, to 2 ulp; 0 below the smallest normal number; NaN stays NaN.
   x = n log 2 + r with |r| <= log 2 / 2, and exp(r) by its Taylor polynomial of degree 7. */
INLINE v8 exp8(v8 x) {
    const float log2_high = 0.693145751953125f, log2_low = 1.428606820309417e-6f, round = 12582912.0f; /* 1.5 * 2^23 */
    v8 low = select8((i8)(x < splat8(-87.0f)), splat8(-87.0f), x);
    v8 shifted = low * 1.44269504088896341f + round;
    v8 n = shifted - round;
    v8 r = low - n * log2_high - n * log2_low;
    v8 p = r * (1.0f / 5040) + (1.0f / 720);
    p = p * r + (1.0f / 120);
    p = p * r + (1.0f / 24);
    p = p * r + (1.0f / 6);
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    i8 exponent = ((i8)shifted - (i8)splat8(round) + 127) << 23;
    v8 result = p * (v8)exponent;
    return select8((i8)(x < splat8(-87.0f)), (v8){0}, result);
}

/* An 8 x 8 block, rows to columns. */
INLINE void transpose8(const float *from, long from_stride, float *to, long to_stride) {
    v8 r[8], t[8];
    UNROLL for (int k = 0; k < 8; k++) r[k] = load8(from + k * from_stride);
    UNROLL for (int k = 0; k < 8; k += 2) {
        t[k] = SHUFFLE(r[k], r[k + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        t[k + 1] = SHUFFLE(r[k], r[k + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    UNROLL for (int k = 0; k < 8; k += 4) {
        UNROLL for (int h = 0; h < 2; h++) {
            r[k + 2 * h] = SHUFFLE(t[k + h], t[k + 2 + h], 0, 1, 8, 9, 4, 5, 12, 13);
            r[k + 2 * h + 1] = SHUFFLE(t[k + h], t[k + 2 + h], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    }
    UNROLL for (int k = 0; k < 4; k++) {
        store8(to + k * to_stride, SHUFFLE(r[k], r[k + 4], 0, 1, 2, 3, 8, 9, 10, 11));
        store8(to + (k + 4) * to_stride, SHUFFLE(r[k], r[k + 4], 4, 5, 6, 7, 12, 13, 14, 15));
    }
}

#endif
