/* Compound batch normalization, fused: see longtail.nn.functional.mixture_norm for the maths and its symbols.

   Each pass works through the points in blocks of rows that stay in the first cache: a block is read once, and all that
   is to be known of it is computed before the next. Training on the batch's statistics takes two passes over the input
   forward and two backward, everything else one. The points are centred at the mean of a sample of rows: any shift near
   the data serves, and a sample saves a pass.

   Chunks of rows are handed to the threads of the OpenMP runtime that torch has loaded: two pools would fight for the
   cores. Sums are kept a chunk and added in order, so that a result depends on the number of threads alone. */
#include "compound_bn.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "blocks.h"

#define BLOCK_FLOATS 4096 /* of the input in one block: half of a first-level cache of 32 KB */
#define MIN_ROWS 8
#define MAX_ROWS 256
#define SAMPLE_ROWS 128
#define CHUNKS_A_THREAD 4
#define MIN_CHUNK_FLOATS 16384

/* ---- threads ---- */

typedef void (*parallel_function)(void (*)(void *), void *, unsigned, unsigned);
static parallel_function parallel;

/* The address of GOMP_parallel in the runtime to use; without it there is one thread. */
void longtail_set_parallel(parallel_function function) { parallel = function; }

struct team {
    void (*work)(const void *job, int chunk);
    const void *job;
    int chunks, next;
};

static void take_chunks(void *data) {
    struct team *team = data;
    int chunk;
    while ((chunk = __atomic_fetch_add(&team->next, 1, __ATOMIC_RELAXED)) < team->chunks) team->work(team->job, chunk);
}

static void run_chunks(void (*work)(const void *, int), const void *job, int chunks, int threads) {
    struct team team = {work, job, chunks, 0};
    if (parallel && chunks > 1 && threads > 1)
        parallel(take_chunks, &team, (unsigned)threads, 0);
    else
        take_chunks(&team);
}

/* ---- blocks of rows ---- */

struct job {
    const struct forward *forward;
    const struct backward *backward;
    struct shape shape;
    long points, width, rows; /* width: the channels padded to whole vectors; rows: the most in a block */
    int chunks, with_sums;
    float *shift, *density, *affine, *to_weights, *to_input; /* packed coefficients, see blocks.h */
    float constant[MAX_COMPONENTS];
    float *sums; /* one of sums_size a chunk, the mass behind it */
    long sums_size;
    float *scratch; /* one of scratch_size a chunk: three blocks and two of weights */
    long scratch_size;
    void *memory;
};

static long smaller(long a, long b) { return a < b ? a : b; }

static int make_job(struct job *job, struct shape shape) {
    const long width = (shape.channels + VL - 1) / VL * VL, components = shape.components;
    long rows = BLOCK_FLOATS / width / 8 * 8;
    rows = rows < MIN_ROWS ? MIN_ROWS : rows > MAX_ROWS ? MAX_ROWS : rows;
    job->shape = shape;
    job->points = shape.samples * shape.positions;
    job->width = width;
    job->rows = rows;
    const long size = job->points * shape.channels;
    job->chunks = shape.threads < 2 ? 1 : (int)smaller(shape.threads * CHUNKS_A_THREAD, 1 + size / MIN_CHUNK_FLOATS);
    job->sums_size = 2 * components * width + 16;
    job->scratch_size = 3 * rows * width + 2 * components * rows + 16;
    const long packs = (1 + 2 + 2 + 4 + 5) * components * width;
    const long total = packs + job->chunks * (job->sums_size + job->scratch_size);
    if (posix_memalign(&job->memory, 64, (size_t)total * sizeof(float))) return 0;
    job->shift = job->memory;
    job->density = job->shift + components * width;
    job->affine = job->density + 2 * components * width;
    job->to_weights = job->affine + 2 * components * width;
    job->to_input = job->to_weights + 4 * components * width;
    job->sums = job->to_input + 5 * components * width;
    job->scratch = job->sums + job->chunks * job->sums_size;
    return 1;
}

/* Entry k of K in a pack: factor times values, (M, D). */
static void pack(const struct job *job, float *to, int K, int k, const float *values, float factor) {
    const long components = job->shape.components, channels = job->shape.channels;
    for (long d = 0; d < job->width; d++)
        for (long j = 0; j < components; j++)
            to[((d / VL * components + j) * K + k) * VL + d % VL] = d < channels ? factor * values[j * channels + d] : 0;
}

static void set_shift(struct job *job, const float *shift) {
    memcpy(job->shift, shift, (size_t)job->shape.channels * sizeof(float));
    for (long d = job->shape.channels; d < job->width; d++) job->shift[d] = 0;
}

static long first_row(const struct job *job, int chunk) {
    return chunk == job->chunks ? job->points : job->points * chunk / job->chunks / 8 * 8;
}

/* Rows of a tensor: in place where they are whole vectors already, else copied to scratch. */
static const float *gather(const struct job *job, const float *data, int planes, long row, long rows, float *scratch,
                           long *ld) {
    const long channels = job->shape.channels, width = job->width, positions = job->shape.positions;
    if (!planes && channels == width) {
        *ld = channels;
        return data + row * channels;
    }
    *ld = width;
    if (!planes) {
        for (long i = 0; i < rows; i++) {
            memcpy(scratch + i * width, data + (row + i) * channels, (size_t)channels * sizeof(float));
            for (long d = channels; d < width; d++) scratch[i * width + d] = 0;
        }
        return scratch;
    }
    for (long i = 0, count; i < rows; i += count) { /* sample by sample */
        const long position = (row + i) % positions;
        const float *from = data + (row + i) / positions * channels * positions + position;
        float *to = scratch + i * width;
        count = smaller(rows - i, positions - position);
        long d = 0;
        for (; d + 8 <= channels; d += 8) {
            long k = 0;
            for (; k + 8 <= count; k += 8) transpose8(from + d * positions + k, positions, to + k * width + d, width);
            for (; k < count; k++)
                for (int e = 0; e < 8; e++) to[k * width + d + e] = from[(d + e) * positions + k];
        }
        for (; d < width; d++)
            for (long k = 0; k < count; k++) to[k * width + d] = d < channels ? from[d * positions + k] : 0;
    }
    return scratch;
}

/* Where to write rows of a tensor of the layout that `gather` reads; `scatter` brings them there. */
static float *target(const struct job *job, float *data, int planes, long row, float *scratch, long *ld) {
    const int direct = !planes && job->shape.channels == job->width;
    *ld = job->width;
    return direct ? data + row * job->width : scratch;
}

static void scatter(const struct job *job, float *data, int planes, long row, long rows, const float *scratch) {
    const long channels = job->shape.channels, width = job->width, positions = job->shape.positions;
    if (!planes && channels == width) return;
    if (!planes) {
        for (long i = 0; i < rows; i++)
            memcpy(data + (row + i) * channels, scratch + i * width, (size_t)channels * sizeof(float));
        return;
    }
    for (long i = 0, count; i < rows; i += count) {
        const long position = (row + i) % positions;
        float *to = data + (row + i) / positions * channels * positions + position;
        const float *from = scratch + i * width;
        count = smaller(rows - i, positions - position);
        long d = 0;
        for (; d + 8 <= channels; d += 8) {
            long k = 0;
            for (; k + 8 <= count; k += 8) transpose8(from + k * width + d, width, to + d * positions + k, positions);
            for (; k < count; k++)
                for (int e = 0; e < 8; e++) to[(d + e) * positions + k] = from[k * width + d + e];
        }
        for (; d < channels; d++)
            for (long k = 0; k < count; k++) to[d * positions + k] = from[k * width + d];
    }
}

/* How many rows from here on are of one group. */
static long run_of_group(const struct job *job, const int64_t *groups, long row, long most) {
    const long positions = job->shape.positions, sample = row / positions;
    long next = sample + 1;
    while (next * positions < row + most && groups[next] == groups[sample]) next++;
    return smaller(most, next * positions - row);
}

/* ---- passes ---- */

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
        if (f->batch_statistics) continue;
        float *y = target(job, f->y, (int)f->planes, row, out, &ldy);
        if (absent)
            for (long i = 0; i < rows; i++) memset(y + i * ldy, 0, (size_t)width * sizeof(float));
        else
            transform(M, rows, x, ld, width, job->shift, w, job->rows, job->affine + 2 * j * VL, step, y, ldy);
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
                      job->affine + 2 * j * VL, step, y, ldy);
        scatter(job, f->y, (int)f->planes, row, rows, out);
    }
}

/* R0 and R1. */
INLINE void gradient_sums(const int M, const int hard, const struct job *job, int chunk) {
    const struct backward *b = job->backward;
    const long components = job->shape.components, width = job->width;
    float *sums = job->sums + chunk * job->sums_size;
    float *in = job->scratch + chunk * job->scratch_size, *in_g = in + job->rows * width, *ones = in_g + job->rows * width;
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
        const float *g = gather(job, b->grad, (int)b->grad_planes, row, rows, in_g, &ldg);
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
        const float *g = gather(job, b->grad, (int)b->grad_planes, row, rows, in_g, &ldg);
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

/* ---- small maths, on (M, D) ---- */

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

/* ---- entry points ---- */

/* What the structures measure: a library built from other sources than those beside it must not be called. */
int longtail_structures(void) { return (int)(sizeof(struct forward) << 16 | sizeof(struct backward)); }

int longtail_forward(const struct forward *f, int steps) {
    const long components = f->shape.components, channels = f->shape.channels;
    struct job job = {.forward = f};
    int result = DONE;
    if ((steps & SHIFT) && f->batch_statistics) sample_rows(f, f->moments);
    if (!(steps & (ESTIMATE | FINISH))) return DONE;
    if (!make_job(&job, f->shape)) return NO_MEMORY;
    if (steps & ESTIMATE) {
        set_density(&job);
        run_chunks(estimate_chunk, &job, job.chunks, (int)f->shape.threads);
        if (f->training)
            collect(&job, f->moments + components, f->moments + components + components * channels, f->moments);
    }
    if ((steps & FINISH) && f->training) {
        finish_moments(f);
        result = accumulate(f);
        if (f->batch_statistics) {
            set_shift(&job, f->state);
            set_affine(&job);
            run_chunks(apply_chunk, &job, job.chunks, (int)f->shape.threads);
        }
    }
    free(job.memory);
    return result;
}

int longtail_backward(const struct backward *b, int steps) {
    const long size = b->shape.components * b->shape.channels;
    const int threads = (int)b->shape.threads;
    float *r0 = b->sums, *r1 = r0 + size;
    struct job job = {.backward = b};
    if (!make_job(&job, b->shape)) return NO_MEMORY;
    set_shift(&job, b->state);
    job.with_sums = (steps & SUMS) && (steps & INPUT) && !b->batch_statistics;
    if ((steps & SUMS) && !job.with_sums) {
        run_chunks(gradient_sums_chunk, &job, job.chunks, threads);
        collect(&job, r0, r1, NULL);
    }
    if (steps & INPUT) {
        float *g = malloc((size_t)(2 * size) * sizeof(float));
        if (!g) {
            free(job.memory);
            return NO_MEMORY;
        }
        set_gradient(&job, g, g + size);
        free(g);
        run_chunks(b->through_weights ? (b->batch_statistics ? through_batch_chunk : through_running_chunk)
                                      : (b->batch_statistics ? detached_batch_chunk : detached_running_chunk),
                   &job, job.chunks, threads);
        if (job.with_sums) collect(&job, r0, r1, NULL);
    }
    if (steps & SUMS) { /* before other ranks are heard: their share of these gradients is theirs */
        const float *mean = STATE_ROW(b->state, b->shape, MEAN), *inverse = STATE_ROW(b->state, b->shape, INVERSE);
        for (long k = 0; k < size; k++) {
            b->grad_weight[k] = (r1[k] - mean[k] * r0[k]) * inverse[k];
            b->grad_bias[k] = r0[k];
        }
    }
    free(job.memory);
    return DONE;
}
