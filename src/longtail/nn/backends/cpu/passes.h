/* The passes over the points: each chunk of rows goes through one of these, block by block. */
#ifndef LONGTAIL_PASSES_H
#define LONGTAIL_PASSES_H

#include "rows.h"

/* The E-step, the sums of the M-step, and the output where the statistics are known beforehand. `hard`: the split path,
   where M = 1 stands for the one component of the rows' group. */
INLINE void estimate(const int M, const int hard, const struct job *job, int chunk) {
    const struct forward *f = job->forward;
    const long components = job->shape.components, step = 2 * components * VL, width = job->width;
    float *sums = job->sums + chunk * job->sums_size, *mass = sums + 2 * components * width;
    float *in = job->scratch + chunk * job->scratch_size, *out = in + job->rows * width, *w = out + job->rows * width;
    memset(sums, 0, (size_t)job->sums_size * sizeof(float));
    if (hard)
        for (long i = 0; i < job->rows; i++) w[i] = 1;
    const long end = first_row(job, chunk + 1);
    for (long row = first_row(job, chunk), rows; row < end; row += rows) {
        long ld, ldy, j = 0;
        rows = smaller(job->rows, end - row);
        if (hard) {
            rows = run_of_group(job, f->groups, row, rows);
            j = f->groups[row / job->shape.positions];
        }
        const int absent = hard && (j < 0 || j >= components);
        const float *x = gather(job, f->x, (int)f->planes, row, rows, in, &ld);
        if (!hard) {
            responsibilities(M, rows, x, ld, width, job->shift, job->density, job->constant, w, job->rows);
            if (f->w)
                for (int k = 0; k < M; k++)
                    memcpy(f->w + k * job->points + row, w + k * job->rows, (size_t)rows * sizeof(float));
        }
        if (f->training && !absent) {
            if (hard)
                mass[j] += (float)rows;
            else
                add_mass(M, rows, w, job->rows, mass);
            weighted_sums(M, rows, x, NULL, ld, 0, width, job->shift, w, job->rows, sums + 2 * j * VL, step);
        }
        if (f->statistics != RUNNING) continue;
        float *y = target(job, f->y, (int)f->planes, row, out, &ldy);
        if (absent)
            for (long i = 0; i < rows; i++) memset(y + i * ldy, 0, (size_t)width * sizeof(float));
        else
            transform(M, rows, x, ld, width, job->shift, w, job->rows, job->affine + 2 * j * VL, step, (int)f->relu, y, ldy);
        scatter(job, f->y, (int)f->planes, row, rows, out);
    }
}

/* The output from weights that are known. */
INLINE void apply(const int M, const int hard, const struct job *job, int chunk) {
    const struct forward *f = job->forward;
    const long components = job->shape.components, step = 2 * components * VL, width = job->width;
    float *in = job->scratch + chunk * job->scratch_size, *out = in + job->rows * width, *ones = out + job->rows * width;
    const long begin = first_row(job, chunk), end = first_row(job, chunk + 1);
    if (hard)
        for (long i = 0; i < job->rows; i++) ones[i] = 1;
    for (long row = begin, rows; row < end; row += rows) {
        long ld, ldy, j = 0;
        rows = smaller(job->rows, end - row);
        if (hard) {
            rows = run_of_group(job, f->groups, row, rows);
            j = f->groups[row / job->shape.positions];
        }
        const float *x = gather(job, f->x, (int)f->planes, row, rows, in, &ld);
        float *y = target(job, f->y, (int)f->planes, row, out, &ldy);
        if (hard && (j < 0 || j >= components))
            for (long i = 0; i < rows; i++) memset(y + i * ldy, 0, (size_t)width * sizeof(float));
        else
            transform(M, rows, x, ld, width, job->shift, hard ? ones : f->w + row, hard ? 0 : job->points,
                      job->affine + 2 * j * VL, step, (int)f->relu, y, ldy);
        scatter(job, f->y, (int)f->planes, row, rows, out);
    }
}

/* The gradient of rows of the norm's own output, before the ReLU if there is one. */
static const float *gather_gradient(const struct job *job, long row, long rows, float *scratch, float *spare, long *ld) {
    const struct backward *b = job->backward;
    const float *g = gather(job, b->grad, (int)b->grad_planes, row, rows, scratch, ld);
    if (!b->y) return g;
    mask_gradient(rows * *ld, g, gather(job, b->y, (int)b->planes, row, rows, spare, ld), scratch);
    return scratch;
}

/* R0 and R1. */
INLINE void gradient_sums(const int M, const int hard, const struct job *job, int chunk) {
    const struct backward *b = job->backward;
    const long components = job->shape.components, width = job->width;
    float *sums = job->sums + chunk * job->sums_size;
    float *in = job->scratch + chunk * job->scratch_size, *in_g = in + job->rows * width;
    float *spare = in_g + job->rows * width, *ones = spare + job->rows * width;
    memset(sums, 0, (size_t)job->sums_size * sizeof(float));
    if (hard)
        for (long i = 0; i < job->rows; i++) ones[i] = 1;
    const long end = first_row(job, chunk + 1);
    for (long row = first_row(job, chunk), rows; row < end; row += rows) {
        long ld, ldg, j = 0;
        rows = smaller(job->rows, end - row);
        if (hard) {
            rows = run_of_group(job, b->groups, row, rows);
            j = b->groups[row / job->shape.positions];
            if (j < 0 || j >= components) continue;
        }
        const float *x = gather(job, b->x, (int)b->planes, row, rows, in, &ld);
        const float *g = gather_gradient(job, row, rows, in_g, spare, &ldg);
        weighted_sums(M, rows, x, g, ld, ldg, width, job->shift, hard ? ones : b->w + row, hard ? 0 : job->points,
                      sums + 2 * j * VL, 2 * components * VL);
    }
}

/* ∂L/∂x; and R0 and R1 along with it where it does not wait for them. */
INLINE void gradient_input(const int M, const int hard, const int batch, const int through, const struct job *job,
                           int chunk) {
    const struct backward *b = job->backward;
    const long components = job->shape.components, width = job->width;
    float *sums = job->sums + chunk * job->sums_size;
    float *in = job->scratch + chunk * job->scratch_size, *in_g = in + job->rows * width;
    float *out = in_g + job->rows * width, *w = out + job->rows * width, *h = w + components * job->rows;
    if (job->with_sums) memset(sums, 0, (size_t)job->sums_size * sizeof(float));
    if (hard)
        for (long i = 0; i < job->rows; i++) w[i] = 1;
    const long end = first_row(job, chunk + 1);
    for (long row = first_row(job, chunk), rows; row < end; row += rows) {
        long ld, ldg, ldo, j = 0;
        rows = smaller(job->rows, end - row);
        if (hard) {
            rows = run_of_group(job, b->groups, row, rows);
            j = b->groups[row / job->shape.positions];
        }
        const float *x = gather(job, b->x, (int)b->planes, row, rows, in, &ld);
        const float *g = gather_gradient(job, row, rows, in_g, out, &ldg);
        float *gradient = target(job, b->grad_x, (int)b->planes, row, out, &ldo);
        if (hard && (j < 0 || j >= components))
            for (long i = 0; i < rows; i++) memset(gradient + i * ldo, 0, (size_t)width * sizeof(float));
        else {
            if (!hard)
                for (int k = 0; k < M; k++) {
                    memcpy(w + k * job->rows, b->w + k * job->points + row, (size_t)rows * sizeof(float));
                    for (long i = rows; i % 8; i++) w[k * job->rows + i] = 0;
                }
            if (job->with_sums)
                weighted_sums(M, rows, x, g, ld, ldg, width, job->shift, w, job->rows, sums + 2 * j * VL,
                              2 * components * VL);
            if (through)
                log_weight_gradient(M, batch, rows, x, ld, g, ldg, width, job->shift, job->to_weights, job->constant, w,
                                    h, job->rows);
            input_gradient(M, batch, through, rows, x, ld, g, ldg, width, job->shift, w, h, job->rows,
                           job->to_input + 5 * j * VL, 5 * components * VL, gradient, ldo);
        }
        scatter(job, b->grad_x, (int)b->planes, row, rows, out);
    }
}

#define FOR_EACH_M(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#define CASE(M) \
    case M: \
        return CALL(M);
#define PASS(name, condition, ...) \
    static void name##_chunk(const void *data, int chunk) { \
        const struct job *job = data; \
        if (condition) { \
            __VA_ARGS__ \
        } \
        switch (job->shape.components) { FOR_EACH_M(CASE) } \
    }

#define CALL(M) estimate(M, 0, job, chunk)
PASS(estimate, job->forward->groups, estimate(1, 1, job, chunk); return;)
#undef CALL
#define CALL(M) apply(M, 0, job, chunk)
PASS(apply, job->forward->groups, apply(1, 1, job, chunk); return;)
#undef CALL
#define CALL(M) gradient_sums(M, 0, job, chunk)
PASS(gradient_sums, job->backward->groups, gradient_sums(1, 1, job, chunk); return;)
#undef CALL
#define CALL(M) gradient_input(M, 0, 0, 0, job, chunk)
PASS(detached_running, job->backward->groups, gradient_input(1, 1, 0, 0, job, chunk); return;)
#undef CALL
#define CALL(M) gradient_input(M, 0, 1, 0, job, chunk)
PASS(detached_batch, job->backward->groups, gradient_input(1, 1, 1, 0, job, chunk); return;)
#undef CALL
#define CALL(M) gradient_input(M, 0, 0, 1, job, chunk)
PASS(through_running, 0, )
#undef CALL
#define CALL(M) gradient_input(M, 0, 1, 1, job, chunk)
PASS(through_batch, 0, )
#undef CALL

/* Add up the chunks' packed sums: first and second, (M, D) each, and the mass if it is asked for. */
static void collect(const struct job *job, float *first, float *second, float *mass) {
    const long components = job->shape.components, channels = job->shape.channels;
    for (long j = 0; j < components; j++)
        for (long d = 0; d < channels; d++) {
            const float *from = job->sums + ((d / VL * components + j) * 2) * VL + d % VL;
            double a = 0, b = 0;
            for (int chunk = 0; chunk < job->chunks; chunk++, from += job->sums_size) a += from[0], b += from[VL];
            first[j * channels + d] = (float)a;
            second[j * channels + d] = (float)b;
        }
    for (long j = 0; mass && j < components; j++) {
        double sum = 0;
        for (int chunk = 0; chunk < job->chunks; chunk++)
            sum += job->sums[chunk * job->sums_size + 2 * components * job->width + j];
        mass[j] = (float)sum;
    }
}

#endif
