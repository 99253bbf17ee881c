/* Blocks of rows, whatever the layout of the tensor they come from, and the threads that work on them. */
#ifndef LONGTAIL_ROWS_H
#define LONGTAIL_ROWS_H

#include <stdlib.h>
#include <string.h>

#include "blocks.h"
#include "compound_bn.h"

#define BLOCK_FLOATS 4096 /* of the input in one block: half of a first-level cache of 32 KB */
#define MIN_ROWS 8
#define MAX_ROWS 256
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

#endif
