/* What longtail.nn.backends.cpu hands over; the fields are in the order of its ctypes structures.

   Tensors are float32, dense, either rows (channels innermost) or planes (N, C, positions). `state` is what the backward
   pass needs beside x and w, `moments` what the forward pass finds; their layouts are the offsets below, in floats. */
#ifndef LONGTAIL_COMPOUND_BN_H
#define LONGTAIL_COMPOUND_BN_H

#include <stdint.h>

struct shape {
    int64_t samples, positions, channels, components, threads;
};

struct forward {
    struct shape shape;
    const float *x;
    float *y;
    float *w;              /* (M, N), or NULL where nobody asks for it */
    const int64_t *groups; /* (samples), or NULL for the compound path */
    const float *prior, *mean, *var;
    const float *weight, *bias; /* NULL for 1 and 0 */
    float *state, *moments;
    float *new_prior, *new_mean, *new_var; /* may be prior, mean and var themselves */
    int64_t planes, training, statistics, sample_variance, relu;
    float eps, momentum, min_mass;
};

struct backward {
    struct shape shape;
    const float *x, *grad;
    const float *y; /* the output where it went through ReLU, else NULL */
    float *grad_x; /* NULL where nobody asks for it */
    const float *w;
    const int64_t *groups;
    const float *weight, *state;
    float *sums;                     /* R0 and R1, (2, M, C) */
    float *grad_weight, *grad_bias;  /* (M, C) */
    int64_t planes, grad_planes, statistics, through_weights;
};

/* What normalises: the statistics that came in, the batch's, or those that came in with the batch folded into them. */
enum { RUNNING, BATCH, UPDATED };

/* Steps of a pass; other ranks may have to be heard in between. */
enum { SHIFT = 1, ESTIMATE = 2, FINISH = 4 };
enum { SUMS = 1, INPUT = 2 };

/* state: shift (D); linear, quadratic, scale, offset, mean, inverse, and the batch's mean and variance, (M, D) each; and
   what a point has in the mean and in the variance that normalise, (M) each: 0 where the batch has no share in them. */
#define STATE_ROW(state, shape, k) ((state) + (shape).channels * (1 + (k) * (shape).components))
enum { LINEAR, QUADRATIC, SCALE, OFFSET, MEAN, INVERSE, BATCH_MEAN, BATCH_VAR, SHARES };

/* moments: mass (M), mean, var (M, D) each; before FINISH: mass and the sums of wx and wx²; after SHIFT: the sum of some
   rows (D) and their number. */

/* What a pass returns; REFUSED: NaN or infinity in the batch left the statistics as they were. */
enum { NO_MEMORY, DONE, REFUSED };

#endif
