/* zero.c: the life of an engine and the course of a step.
 *
 *   check the batches, count tokens   -- one small all-gather: all ranks go on, or none does
 *   micro-steps by the plan           -- gathers and reductions
 *   loss, norm                        -- one small all-gather: all ranks update, or all skip
 *   clip, AdamW, new parameters       -- gathers
 *
 * A failure before the first line's vote leaves the engine as it was. One after it leaves ranks in
 * different places, so it breaks the engine and aborts the communicator: no rank waits for this
 * one. */
#include <math.h>
#include <stdlib.h>

#include "core/base/log.h"
#include "trainer/engine/engine.h"

#define TOKENS_MAX ((int64_t)1 << 31) /* of a micro-batch: positions in it are 32-bit numbers */

int64_t trp_zero_parameter_count(const trp_zero *engine) {
    return engine->layout.parameters;
}

uint64_t trp_zero_steps(const trp_zero *engine) {
    return engine->steps;
}

trp_code trpi_engine_usable(const trp_zero *engine, trp_error *err) {
    if (!engine->broken.code) {
        return TRP_OK;
    }
    return trpi_fail(err, engine->broken.code, "this engine stopped working: %s",
                     engine->broken.message);
}

trp_code trpi_engine_break(trp_zero *engine, trp_code code, const trp_error *err) {
    engine->broken = *err;
    engine->broken.code = code;
    trp_comm_abort(engine->comm);
    return code;
}

/* ---- Life ---- */

void trp_zero_free(trp_zero *engine) {
    if (!engine) {
        return;
    }
    trpi_ballot_release(&engine->ballot);
    trpi_activations_release(&engine->act);
    trpi_memory_release(&engine->memory);
    trpi_plan_release(&engine->train_plan);
    trpi_plan_release(&engine->forward_plan);
    trpi_layout_release(&engine->layout);
    free(engine->params);
    free(engine->grads);
    trp_model_free(engine->model);
    free(engine);
}

static trp_code make_pointers(trp_zero *engine, trp_error *err) {
    size_t most = 1;
    for (int u = 0; u < engine->model->unit_count; u++) {
        most = TRPI_MAX(most, (size_t)engine->model->units[u].param_count);
    }
    engine->params = calloc(most, sizeof *engine->params);
    engine->grads = calloc(most, sizeof *engine->grads);
    if (!engine->params || !engine->grads) {
        return trpi_fail(err, TRP_ENOMEM, "engine");
    }
    return TRP_OK;
}

/* The batch triple was resolved for a world; with another one a step would have other rows. */
static trp_code check_world(const trp_zero *engine, trp_error *err) {
    const trp_zero_settings *s = engine->settings;
    int64_t rows = s->micro_batch * s->accumulation;
    if (s->train_batch == rows * engine->world) {
        return TRP_OK;
    }
    return trpi_fail(err, TRP_EINVALID,
                     "the configuration was read for a world of %lld ranks, this one has %d",
                     (long long)(s->train_batch / rows), engine->world);
}

static trp_code make_parts(trp_zero *engine, trp_error *err) {
    const trp_zero_settings *s = engine->settings;
    const trp_model *model = engine->model;
    trpi_layout *layout = &engine->layout;
    trp_code code = check_world(engine, err);
    if (!code) {
        code = make_pointers(engine, err);
    }
    if (!code) {
        code = trpi_layout_init(model, engine->world, s->bucket_elements, layout, err);
    }
    if (!code) {
        code = trpi_plan_init(model, layout, s->stage, true, &engine->train_plan, err);
    }
    if (!code) {
        code = trpi_plan_init(model, layout, s->stage, false, &engine->forward_plan, err);
    }
    if (!code) {
        /* A forward alone gathers no more at a time than a forward and backward. */
        TRP_ASSERT(engine->forward_plan.param_pool <= engine->train_plan.param_pool);
        code = trpi_memory_init(layout, &engine->train_plan, engine->device, s->stage, engine->rank,
                                s->compute, &engine->memory, err);
    }
    if (!code) {
        code = trpi_activations_init(model, engine->device, s->compute, (int)s->accumulation,
                                     &engine->act, err);
    }
    return code;
}

trp_code trp_zero_new(trp_model **model, trp_device *device, trp_comm *comm,
                      const trp_zero_config *config, uint64_t seed, trp_zero **ret_engine,
                      trp_error *err) {
    trp_error ignored;
    err = err ? err : &ignored;
    trp_zero *engine = calloc(1, sizeof *engine);
    if (!engine) {
        return trpi_fail(err, TRP_ENOMEM, "engine");
    }
    *engine = (trp_zero){.model = *model,
                         .device = device,
                         .comm = comm,
                         .config = config,
                         .settings = trp_zero_config_settings(config),
                         .rank = trp_comm_rank(comm),
                         .world = trp_comm_world(comm),
                         .seed = seed,
                         .bad_tensor = -1};
    trp_code code = trpi_ballot_init(device, comm, &engine->ballot, err);
    if (code) {
        trp_comm_abort(comm); /* this rank cannot even say that it failed, and the others wait */
    } else {
        /* The number makes sure that all ranks have a model of one size before they share it. */
        trpi_vote vote = {.status = make_parts(engine, err)};
        vote.number = engine->layout.padded;
        code = trpi_ballot_agree(&engine->ballot, vote, err);
    }
    for (int r = 0; !code && r < engine->world; r++) {
        if (engine->ballot.votes[r].number != engine->layout.padded) {
            code = trpi_fail(
                err, TRP_EINVALID, "rank %d has a model of %lld elements, this rank's has %lld", r,
                (long long)engine->ballot.votes[r].number, (long long)engine->layout.padded);
        }
    }
    if (code) {
        engine->model = NULL; /* stays the caller's */
        trp_zero_free(engine);
        return code;
    }
    *model = NULL;
    *ret_engine = engine;
    return TRP_OK;
}

/* ---- Batches ---- */

static trp_code check_ids(const int32_t *ids, const trp_batch *batch, int64_t vocabulary,
                          bool may_ignore, const char *what, trp_error *err) {
    for (int64_t i = 0; i < batch->rows * batch->columns; i++) {
        bool ignored = may_ignore && ids[i] == TRP_IGNORE;
        if (!ignored && (ids[i] < 0 || ids[i] >= vocabulary)) {
            return trpi_fail(err, TRP_EINVALID,
                             "%s %d in row %lld, column %lld is not below the vocabulary's %lld",
                             what, ids[i], (long long)(i / batch->columns),
                             (long long)(i % batch->columns), (long long)vocabulary);
        }
    }
    return TRP_OK;
}

/* Checks a batch and adds to *counted how many of its targets count. */
static trp_code check_batch(const trp_zero *engine, const trp_batch *batch, int64_t *counted,
                            trp_error *err) {
    const trp_model_limits *limits = &engine->model->limits;
    if (!batch->tokens || !batch->targets) {
        return trpi_fail(err, TRP_EINVALID, "a batch without tokens or targets");
    }
    if (batch->rows < 1 || batch->columns < 1 || batch->rows > TOKENS_MAX / batch->columns) {
        return trpi_fail(err, TRP_EINVALID, "a batch of %lld x %lld tokens", (long long)batch->rows,
                         (long long)batch->columns);
    }
    if (limits->columns && batch->columns > limits->columns) {
        return trpi_fail(err, TRP_EINVALID, "%lld columns, the model takes at most %lld",
                         (long long)batch->columns, (long long)limits->columns);
    }
    if (limits->vocabulary) {
        trp_code code = check_ids(batch->tokens, batch, limits->vocabulary, false, "token", err);
        if (!code) {
            code = check_ids(batch->targets, batch, limits->vocabulary, true, "target", err);
        }
        if (code) {
            return code;
        }
    }
    for (int64_t r = 0; batch->lengths && r < batch->rows; r++) {
        if (batch->lengths[r] < 1 || batch->lengths[r] > batch->columns) {
            return trpi_fail(err, TRP_EINVALID, "row %lld has length %d of %lld", (long long)r,
                             batch->lengths[r], (long long)batch->columns);
        }
    }
    for (int64_t i = 0; i < batch->rows * batch->columns; i++) {
        *counted += batch->targets[i] != TRP_IGNORE;
    }
    return TRP_OK;
}

static trp_code check_micro(trp_zero *engine, const trp_batch *micro, int count, int64_t *counted,
                            trp_error *err) {
    const trp_zero_settings *s = engine->settings;
    if (count != s->accumulation) {
        return trpi_fail(
            err, TRP_EINVALID,
            "%d micro-batches, the configuration's gradient_accumulation_steps is %lld", count,
            (long long)s->accumulation);
    }
    for (int i = 0; i < count; i++) {
        if (micro[i].rows != s->micro_batch || micro[i].columns != micro[0].columns) {
            return trpi_fail(err, TRP_EINVALID,
                             "micro-batch %d is %lld x %lld, expected %lld x %lld", i,
                             (long long)micro[i].rows, (long long)micro[i].columns,
                             (long long)s->micro_batch, (long long)micro[0].columns);
        }
        trp_code code = check_batch(engine, &micro[i], counted, err);
        if (code) {
            return trpi_context(err, code, "micro-batch %d", i);
        }
    }
    trp_code code = trpi_weights_masters(engine, err);
    return code ? code : trpi_activations_shape(&engine->act, micro[0].rows, micro[0].columns, err);
}

/* Turns this rank's outcome and count into everybody's. */
static trp_code agree_on_tokens(trp_zero *engine, trp_code status, int64_t counted,
                                int64_t *ret_total, trp_error *err) {
    trpi_vote vote = {.status = status, .number = counted, .step = (int64_t)engine->steps};
    trp_code code = trpi_ballot_agree(&engine->ballot, vote, err);
    int64_t total = 0;
    for (int r = 0; !code && r < engine->world; r++) {
        const trpi_vote *theirs = &engine->ballot.votes[r];
        total += theirs->number;
        if (theirs->step != vote.step) {
            code = trpi_fail(err, TRP_EINVALID, "rank %d is at step %lld, this rank at step %lld",
                             r, (long long)theirs->step, (long long)vote.step);
        }
    }
    if (!code && total == 0) {
        code = trpi_fail(err, TRP_EINVALID, "no target of the step counts, all are %d", TRP_IGNORE);
    }
    *ret_total = total;
    return code;
}

/* ---- A step ---- */

static trp_code run_micro_steps(trp_zero *engine, const trp_batch *micro, int count, int64_t total,
                                trp_error *err) {
    float scale = (float)(1.0 / (double)total);
    trp_code code = trpi_update_clear(engine, err);
    for (int i = 0; !code && i < count; i++) {
        bool boundary = i == count - 1;
        code = trpi_micro_run(engine, &engine->train_plan, &micro[i], i, scale, boundary, err);
    }
    return code;
}

/* Sums over all ranks, in rank order. */
static trp_code measure(trp_zero *engine, int slots, bool squares, double *ret_loss,
                        double *ret_squares, trp_error *err) {
    trpi_vote vote = {0};
    trp_code code = trpi_activations_loss(&engine->act, slots, &vote.loss, err);
    if (!code && squares) {
        code = trpi_update_squares(engine, &vote.squares, err);
    }
    if (!code) {
        code = trpi_ballot_vote(&engine->ballot, &vote, err);
    }
    *ret_loss = *ret_squares = 0;
    for (int r = 0; !code && r < engine->world; r++) {
        *ret_loss += engine->ballot.votes[r].loss;
        *ret_squares += engine->ballot.votes[r].squares;
    }
    return code;
}

/* After a reduction a NaN is on every rank, so where it came from is found by doing the same
 * micro-steps once more and looking at each rank's own gradients before they are reduced. It costs
 * a step, and only when a step is skipped. */
static trp_code explain_skip(trp_zero *engine, const trp_batch *micro, int count, int64_t total,
                             trp_error *err) {
    engine->searching = true;
    engine->bad_tensor = -1;
    trp_code code = run_micro_steps(engine, micro, count, total, err);
    engine->searching = false;
    if (!code) {
        code = trpi_ballot_vote(&engine->ballot, &(trpi_vote){.number = engine->bad_tensor}, err);
    }
    if (code || engine->rank != 0) {
        return code;
    }
    for (int r = 0; r < engine->world; r++) {
        int64_t tensor = engine->ballot.votes[r].number;
        if (tensor >= 0) {
            trpi_log(TRPI_WARN, "step_skipped",
                     "step=%llu reason=nonfinite_gradient rank=%d tensor=%s",
                     (unsigned long long)engine->steps + 1, r,
                     engine->layout.tensors[tensor].param->name);
            return TRP_OK;
        }
    }
    trpi_log(TRPI_WARN, "step_skipped", "step=%llu reason=overflow_in_sum_over_ranks",
             (unsigned long long)engine->steps + 1);
    return TRP_OK;
}

static trp_code run_step(trp_zero *engine, const trp_batch *micro, int count, int64_t total,
                         trp_step_stats *stats, trp_error *err) {
    double loss, squares;
    trp_code code = trpi_weights_params(engine, err);
    if (!code) {
        code = run_micro_steps(engine, micro, count, total, err);
    }
    if (!code) {
        code = measure(engine, count, true, &loss, &squares, err);
    }
    if (code) {
        return code;
    }
    stats->loss = loss / (double)total;
    stats->grad_norm = sqrt(squares);
    stats->lr = trpi_lr_at(&engine->config->lr, engine->updates + 1);
    if (!isfinite(squares)) {
        stats->skipped_now = true;
        engine->skipped++;
        return explain_skip(engine, micro, count, total, err);
    }
    float scale = trpi_update_clip(stats->grad_norm, engine->settings->clip_norm);
    return trpi_update_run(engine, stats->lr, scale, err);
}

trp_code trp_zero_step(trp_zero *engine, const trp_batch *micro, int count,
                       trp_step_stats *ret_stats, trp_error *err) {
    trp_error ignored;
    err = err ? err : &ignored;
    trp_code code = trpi_engine_usable(engine, err);
    if (code) {
        return code;
    }
    uint64_t sent = trp_comm_bytes_sent(engine->comm);
    int64_t counted = 0, total = 0;
    trp_step_stats stats = {0};
    code = check_micro(engine, micro, count, &counted, err);
    code = agree_on_tokens(engine, code, counted, &total, err);
    if (code) {
        return code;
    }
    code = run_step(engine, micro, count, total, &stats, err);
    if (code) {
        (void)trpi_context(err, code, "step %llu", (unsigned long long)engine->steps + 1);
        return trpi_engine_break(engine, code, err);
    }
    engine->steps++;
    stats.step = engine->steps;
    stats.skipped = engine->skipped;
    stats.bytes_sent = trp_comm_bytes_sent(engine->comm) - sent;
    if (ret_stats) {
        *ret_stats = stats;
    }
    return TRP_OK;
}

trp_code trp_zero_evaluate(trp_zero *engine, const trp_batch *batch, double *ret_loss,
                           trp_error *err) {
    trp_error ignored;
    err = err ? err : &ignored;
    int64_t counted = 0, total = 0;
    double loss, squares;
    trp_code code = trpi_engine_usable(engine, err);
    if (code) {
        return code;
    }
    code = check_batch(engine, batch, &counted, err);
    if (!code) {
        code = trpi_weights_masters(engine, err);
    }
    if (!code) {
        code = trpi_activations_shape(&engine->act, batch->rows, batch->columns, err);
    }
    code = agree_on_tokens(engine, code, counted, &total, err);
    if (code) {
        return code;
    }
    code = trpi_weights_params(engine, err);
    if (!code) {
        code = trpi_micro_run(engine, &engine->forward_plan, batch, 0, 1, false, err);
    }
    if (!code) {
        code = measure(engine, 1, false, &loss, &squares, err);
    }
    if (code) {
        (void)trpi_context(err, code, "evaluation");
        return trpi_engine_break(engine, code, err);
    }
    *ret_loss = loss / (double)total;
    return TRP_OK;
}
