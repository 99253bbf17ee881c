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
    if (f->batch_statistics) {
        const float count = f->moments[channels];
        for (long d = 0; d < channels; d++) shift[d] = f->moments[d] / (count < 1 ? 1 : count);
    } else
        for (long d = 0; d < channels; d++) {
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
            linear[k] = mean[k] * precision / f->temperature;
            quadratic[k] = -0.5f / f->temperature * precision;
            if (!f->groups) exponent += logf(precision) - mean[k] * mean[k] * precision;
        }
        job->constant[j] = logf(f->prior[j]) + (float)(0.5 / f->temperature * exponent);
    }
    set_shift(job, shift);
    pack(job, job->density, 2, 0, linear, 1);
    pack(job, job->density, 2, 1, quadratic, 1);
    if (!f->batch_statistics) set_affine(job);
}

static float lerp(float a, float b, float t) { return t < 0.5f ? a + t * (b - a) : b - (b - a) * (1 - t); }

/* Fold the batch's moments into the statistics of the components that have mass in it: as `_accumulate` in
   longtail.nn.functional.compound_batch_norm. */
static int accumulate(const struct forward *f) {
    const long components = f->shape.components, channels = f->shape.channels, size = components * channels;
    const float *mass = f->moments, *mean = mass + components, *var = mean + size;
    int accepted = 1;
    for (long k = 0; k < size; k++) accepted &= isfinite(mean[k]) && isfinite(var[k]);
    float rest = 1, points = 0, alive = 0;
    for (long j = 0; j < components; j++) {
        points += mass[j];
        if (mass[j] >= f->min_mass)
            alive += mass[j];
        else
            rest -= f->prior[j];
    }
    if (alive < f->min_mass) alive = f->min_mass;
    for (long j = 0; j < components; j++) {
        const int take = accepted && mass[j] >= f->min_mass;
        const float n = f->groups ? mass[j] : points, sample = n / (n - 1 < 1 ? 1 : n - 1);
        f->new_prior[j] = take && !f->groups ? lerp(f->prior[j], rest * mass[j] / alive, f->momentum) : f->prior[j];
        for (long k = j * channels; k < (j + 1) * channels; k++) {
            f->new_mean[k] = take ? lerp(f->mean[k], mean[k], f->momentum) : f->mean[k];
            f->new_var[k] = take ? lerp(f->var[k], var[k] * sample, f->momentum) : f->var[k];
        }
    }
    return accepted ? DONE : REFUSED;
}

/* Sums to moments; those of the components with mass become what normalises. */
static void finish_moments(const struct forward *f) {
    const long components = f->shape.components, channels = f->shape.channels;
    float *mass = f->moments, *first = mass + components, *second = first + components * channels;
    float *mean = STATE_ROW(f->state, f->shape, MEAN), *inverse = STATE_ROW(f->state, f->shape, INVERSE);
    for (long j = 0; j < components; j++) {
        const float per_point = 1 / (mass[j] < FLT_MIN ? FLT_MIN : mass[j]);
        const int live = !(mass[j] < f->min_mass); /* NaN spoils the whole batch, as it does in batch norm */
        for (long d = 0; d < channels; d++) {
            const long k = j * channels + d;
            const float centred = first[k] * per_point, spread = second[k] * per_point - centred * centred;
            const float var = spread < 0 ? 0 : spread;
            if (f->batch_statistics && live) {
                mean[k] = centred;
                inverse[k] = 1 / sqrtf(var + f->eps);
            }
            first[k] = centred + f->state[d];
            second[k] = var;
        }
    }
    memcpy(STATE_ROW(f->state, f->shape, MASS), mass, (size_t)components * sizeof(float));
}

/* G0, G1, G2 and all that the gradient of the input takes; `sums` are R0 and R1 over all ranks. */
static void set_gradient(struct job *job, float *g1, float *g2) {
    const struct backward *b = job->backward;
    const long components = b->shape.components, channels = b->shape.channels;
    const float *scale = STATE_ROW(b->state, b->shape, SCALE), *mean = STATE_ROW(b->state, b->shape, MEAN);
    const float *inverse = STATE_ROW(b->state, b->shape, INVERSE), *mass = STATE_ROW(b->state, b->shape, MASS);
    for (long j = 0; j < components; j++) {
        const int live = b->batch_statistics && !(mass[j] < b->min_mass);
        const float per_point = live ? 1 / mass[j] : 0;
        double constant = 0;
        for (long d = 0; d < channels && b->batch_statistics; d++) {
            const long k = j * channels + d;
            const float r0 = b->sums[k], r1 = b->sums[components * channels + k], i = inverse[k];
            const float grad_mean = -scale[k] * r0 * per_point;
            g2[k] = -0.5f * (b->weight ? b->weight[k] : 1) * (r1 - mean[k] * r0) * i * i * i * per_point;
            g1[k] = grad_mean - 2 * mean[k] * g2[k];
            constant -= grad_mean * mean[k] + g2[k] * (1 / (i * i) - b->eps - mean[k] * mean[k]);
        }
        job->constant[j] = (float)constant;
    }
    pack(job, job->to_input, 5, 0, scale, 1);
    if (b->batch_statistics) {
        pack(job, job->to_input, 5, 1, g2, 2);
        pack(job, job->to_input, 5, 2, g1, 1);
    }
    if (!b->through_weights) return;
    pack(job, job->to_input, 5, 3, STATE_ROW(b->state, b->shape, QUADRATIC), 2);
    pack(job, job->to_input, 5, 4, STATE_ROW(b->state, b->shape, LINEAR), 1);
    pack(job, job->to_weights, 4, 0, scale, 1);
    pack(job, job->to_weights, 4, 1, STATE_ROW(b->state, b->shape, OFFSET), 1);
    if (b->batch_statistics) {
        pack(job, job->to_weights, 4, 2, g1, 1);
        pack(job, job->to_weights, 4, 3, g2, 1);
    }
}

#endif
