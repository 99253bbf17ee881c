/* Compound batch normalization, fused: see longtail.nn.backends.eager for the maths and its symbols.

   Each pass works through the points in blocks of rows that stay in the first cache: a block is read once, and all that
   is to be known of it is computed before the next. Where the batch's moments have a share in what normalises, it takes
   two passes over the input forward and two backward, everywhere else one. While training the points are centred at the
   mean of a sample of rows: any shift near the data keeps its variance, and a sample saves a pass.

   Chunks of rows are handed to the threads of the OpenMP runtime that torch has loaded: two pools would fight for the
   cores. Sums are kept a chunk and added in order, so that a result depends on the number of threads alone. */
#include "compound_bn.h"

#include <stdlib.h>

#include "passes.h"
#include "statistics.h"

/* What the structures measure: a library built from other sources than those beside it must not be called. */
int longtail_structures(void) { return (int)(sizeof(struct forward) << 16 | sizeof(struct backward)); }

int longtail_forward(const struct forward *f, int steps) {
    const long components = f->shape.components, channels = f->shape.channels;
    struct job job = {.forward = f};
    int result = DONE;
    if ((steps & SHIFT) && f->training) sample_rows(f, f->moments);
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
        if (f->statistics != RUNNING) {
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
    const int threads = (int)b->shape.threads, batch = b->statistics != RUNNING;
    float *r0 = b->sums, *r1 = r0 + size;
    struct job job = {.backward = b};
    if (!make_job(&job, b->shape)) return NO_MEMORY;
    set_shift(&job, b->state);
    job.with_sums = (steps & SUMS) && (steps & INPUT) && !batch;
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
        run_chunks(b->through_weights ? (batch ? through_batch_chunk : through_running_chunk)
                                      : (batch ? detached_batch_chunk : detached_running_chunk),
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
