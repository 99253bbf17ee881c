/* The small maths, on (M, D): coefficients before a pass, statistics and gradients after it. */
#ifndef LONGTAIL_STATISTICS_H
#define LONGTAIL_STATISTICS_H

#include <float.h>
#include <math.h>

#include "rows.h"

#define SAMPLE_ROWS 128

/* The sum of some rows, spread evenly, and their number. */
static void sample_rows(const struct forward *f, float *sum) {
    const long channels = f->shape.channels, positions = f->shape.positions, points = f->shape.samples * positions;
    const long count = smaller(points, SAMPLE_ROWS);
    memset(sum, 0, (size_t)channels * sizeof(float));
    for (long k = 0; k < count; k++) {
        const long row = points * k / count;
        const float *x = f->planes ? f->x + row / positions * channels * positions + row % positions
                                   : f->x + row * channels;
        const long stride = f->planes ? positions : 1;
        if (stride == 1)
            for (long d = 0; d < channels; d++) sum[d] += x[d];
        else
            for (long d = 0; d < channels; d++) sum[d] += x[d * stride];
    }
    for (long d = 0; d < channels; d++) { /* what is not a number must not reach the points beside it */
        if (isfinite(sum[d])) continue;
        sum[d] = 0;
        for (long k = 0; k < count; k++) {
            const long row = points * k / count;
            const float value = f->planes ? f->x[(row / positions * channels + d) * positions + row % positions]
                                          : f->x[row * channels + d];
            if (isfinite(value)) sum[d] += value;
        }
    }
    sum[channels] = (float)count;
}

/* A and B from the mean and 1/σ in the state. */
static void set_affine(struct job *job) {
    const struct forward *f = job->forward;
    const long size = f->shape.components * f->shape.channels;
    const float *mean = STATE_ROW(f->state, f->shape, MEAN), *inverse = STATE_ROW(f->state, f->shape, INVERSE);
    float *scale = STATE_ROW(f->state, f->shape, SCALE), *offset = STATE_ROW(f->state, f->shape, OFFSET);
    for (long k = 0; k < size; k++) {
        scale[k] = (f->weight ? f->weight[k] : 1) * inverse[k];
        offset[k] = (f->bias ? f->bias[k] : 0) - scale[k] * mean[k];
    }
    pack(job, job->affine, 2, 0, scale, 1);
    pack(job, job->affine, 2, 1, offset, 1);
}

/* The shift, the log-density and the affine map by the statistics that came in. */
static void set_density(struct job *job) {
    const struct forward *f = job->forward;
    const long components = f->shape.components, channels = f->shape.channels;
    float *shift = f->state, *linear = STATE_ROW(f->state, f->shape, LINEAR);
    float *quadratic = STATE_ROW(f->state, f->shape, QUADRATIC), *mean = STATE_ROW(f->state, f->shape, MEAN);
    float *inverse = STATE_ROW(f->state, f->shape, INVERSE);
    for (long d = 0; d < channels; d++) {
        shift[d] = 0;
        if (f->training) shift[d] = f->moments[d] / (f->moments[channels] < 1 ? 1 : f->moments[channels]);
        if (f->training && isfinite(shift[d])) continue;
        shift[d] = 0;
        for (long j = 0; j < components; j++) shift[d] += f->prior[j] * f->mean[j * channels + d];
    }
    for (long j = 0; j < components; j++) {
        double exponent = 0;
        for (long d = 0; d < channels; d++) {
            const long k = j * channels + d;
            const float precision = 1 / (f->var[k] + f->eps);
            mean[k] = f->mean[k] - shift[d];
            inverse[k] = sqrtf(precision);
            linear[k] = mean[k] * precision;
            quadratic[k] = -0.5f * precision;
            if (!f->groups) exponent += logf(precision) - mean[k] * mean[k] * precision;
        }
        job->constant[j] = logf(f->prior[j]) + (float)(0.5 * exponent);
    }
    set_shift(job, shift);
    pack(job, job->density, 2, 0, linear, 1);
    pack(job, job->density, 2, 1, quadratic, 1);
    if (f->statistics == RUNNING) set_affine(job);
}

static float lerp(float a, float b, float t) { return t < 0.5f ? a + t * (b - a) : b - (b - a) * (1 - t); }

/* Whether a component has the mass in the batch for moments of its own; NaN spoils the whole batch, as in batch norm. */
static int is_live(const struct forward *f, float mass) { return !(mass < f->min_mass) && mass != 0; }

/* What turns the batch's variance into the one that is accumulated; `points` is how many it was taken over. */
static float variance_factor(const struct forward *f, float points) {
    return f->sample_variance ? points / (points - 1 < 1 ? 1 : points - 1) : 1;
}

/* Fold the batch's moments into the statistics of the components that have mass in it: as `accumulate` in
   longtail.nn.backends.base, with which the tests compare it. */
static int accumulate(const struct forward *f) {
    const long components = f->shape.components, channels = f->shape.channels, size = components * channels;
    const float *mass = f->moments, *mean = mass + components, *var = mean + size;
    int accepted = 1;
    for (long k = 0; k < size; k++) accepted &= isfinite(mean[k]) && isfinite(var[k]);
    float rest = 1, points = 0, moved = 0;
    for (long j = 0; j < components; j++) {
        points += mass[j];
        if (is_live(f, mass[j]) || f->min_mass == 0)
            moved += mass[j];
        else
            rest -= f->prior[j];
    }
    if (moved < FLT_MIN) moved = FLT_MIN;
    for (long j = 0; j < components; j++) {
        const int live = accepted && is_live(f, mass[j]), move = accepted && !f->groups && (live || f->min_mass == 0);
        const float factor = variance_factor(f, f->groups ? mass[j] : points);
        f->new_prior[j] = move ? lerp(f->prior[j], rest * mass[j] / moved, f->momentum) : f->prior[j];
        for (long k = j * channels; k < (j + 1) * channels; k++) {
            f->new_mean[k] = live ? lerp(f->mean[k], mean[k], f->momentum) : f->mean[k];
            f->new_var[k] = live ? lerp(f->var[k], var[k] * factor, f->momentum) : f->var[k];
        }
    }
    return accepted ? DONE : REFUSED;
}

/* Sums to moments; for the components with mass also what normalises, unless that is what came in. */
static void finish_moments(const struct forward *f) {
    const long components = f->shape.components, channels = f->shape.channels;
    float *mass = f->moments, *first = mass + components, *second = first + components * channels;
    float *mean = STATE_ROW(f->state, f->shape, MEAN), *inverse = STATE_ROW(f->state, f->shape, INVERSE);
    float *batch_mean = STATE_ROW(f->state, f->shape, BATCH_MEAN), *batch_var = STATE_ROW(f->state, f->shape, BATCH_VAR);
    float *shares = STATE_ROW(f->state, f->shape, SHARES);
    const float share = f->statistics == UPDATED ? f->momentum : f->statistics == BATCH;
    float points = 0;
    for (long j = 0; j < components; j++) points += mass[j];
    for (long j = 0; j < components; j++) {
        const float per_point = 1 / (mass[j] < FLT_MIN ? FLT_MIN : mass[j]);
        const int live = is_live(f, mass[j]);
        const float factor = f->statistics == UPDATED ? variance_factor(f, f->groups ? mass[j] : points) : 1;
        shares[j] = live ? share * per_point : 0;
        shares[components + j] = shares[j] * factor;
        for (long d = 0; d < channels; d++) {
            const long k = j * channels + d;
            const float centred = first[k] * per_point, spread = second[k] * per_point - centred * centred;
            const float var = spread < 0 ? 0 : spread;
            batch_mean[k] = centred;
            batch_var[k] = var;
            if (f->statistics != RUNNING && live) {
                mean[k] = lerp(mean[k], centred, share);
                inverse[k] = 1 / sqrtf(lerp(f->var[k], var * factor, share) + f->eps);
            }
            first[k] = centred + f->state[d];
            second[k] = var;
        }
    }
}

/* G0, G1, G2 and all that the gradient of the input takes; `sums` are R0 and R1 over all ranks. */
static void set_gradient(struct job *job, float *g1, float *g2) {
    const struct backward *b = job->backward;
    const long components = b->shape.components, channels = b->shape.channels;
    const float *scale = STATE_ROW(b->state, b->shape, SCALE), *mean = STATE_ROW(b->state, b->shape, MEAN);
    const float *inverse = STATE_ROW(b->state, b->shape, INVERSE), *shares = STATE_ROW(b->state, b->shape, SHARES);
    const float *batch_mean = STATE_ROW(b->state, b->shape, BATCH_MEAN);
    const float *batch_var = STATE_ROW(b->state, b->shape, BATCH_VAR);
    const int batch = b->statistics != RUNNING;
    for (long j = 0; j < components; j++) {
        double constant = 0;
        for (long d = 0; d < channels && batch; d++) {
            const long k = j * channels + d;
            const float r0 = b->sums[k], r1 = b->sums[components * channels + k], i = inverse[k], m = batch_mean[k];
            const float grad_mean = -scale[k] * r0 * shares[j];
            g2[k] = -0.5f * (b->weight ? b->weight[k] : 1) * (r1 - mean[k] * r0) * i * i * i * shares[components + j];
            g1[k] = grad_mean - 2 * m * g2[k];
            constant -= grad_mean * m + g2[k] * (batch_var[k] - m * m);
        }
        job->constant[j] = (float)constant;
    }
    pack(job, job->to_input, 5, 0, scale, 1);
    if (batch) {
        pack(job, job->to_input, 5, 1, g2, 2);
        pack(job, job->to_input, 5, 2, g1, 1);
    }
    if (!b->through_weights) return;
    pack(job, job->to_input, 5, 3, STATE_ROW(b->state, b->shape, QUADRATIC), 2);
    pack(job, job->to_input, 5, 4, STATE_ROW(b->state, b->shape, LINEAR), 1);
    pack(job, job->to_weights, 4, 0, scale, 1);
    pack(job, job->to_weights, 4, 1, STATE_ROW(b->state, b->shape, OFFSET), 1);
    if (batch) {
        pack(job, job->to_weights, 4, 2, g1, 1);
        pack(job, job->to_weights, 4, 3, g2, 1);
    }
}

#endif
