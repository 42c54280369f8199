/* train.c: what every rank runs: open, resume, then step, save, report until the last step.
 *
 * Nothing in here knows of failures. When a rank dies, the calls of the others return an error,
 * which they pass on; then every rank enters train() anew, and resume() takes it to the last
 * checkpoint. */
#include "examples/train_gpt2/train.h"

#include "examples/train_gpt2/final.h"
#include "examples/train_gpt2/rank.h"

/* Goes on where the run's last checkpoint ends, weights and data alike. */
static trp_code resume(rank_state *r, trp_error *err) {
    const char *checkpoint = trp_session_checkpoint(r->session);
    trp_zero_position position = {0};
    if (checkpoint == NULL) {
        return TRP_OK;
    }
    trp_code code = trp_zero_load(r->engine, checkpoint, &position, err);
    if (code == TRP_OK) {
        r->position = (trp_data_position){position.data_seed, position.epoch, position.sample};
    }
    return code;
}

/* Every rank writes its own shard; the report that follows makes one checkpoint of them. */
static trp_code save(rank_state *r, const trp_step_stats *stats, bool is_last, trp_error *err) {
    trp_zero_position position = {r->position.epoch, r->position.sample, r->position.seed};
    const char *dir;
    trp_code code = trp_session_staging(r->session, &dir, err);
    if (code == TRP_OK) {
        code = trp_zero_save(r->engine, dir, &position, err);
    }
    if (code == TRP_OK && is_last) {
        code = final_write(r, dir, stats, err);
    }
    return code;
}

static trp_code report(rank_state *r, const trp_step_stats *stats, bool has_checkpoint,
                       trp_error *err) {
    const trp_zero_settings *settings = trp_zero_config_settings(r->config);
    double tokens = (double)(settings->train_batch * r->job.columns) * (double)stats->step;
    const trp_metric metrics[] = {{"loss", stats->loss},
                                  {"lr", stats->lr},
                                  {"grad_norm", stats->grad_norm},
                                  {"tokens", tokens}};
    return trp_session_report(r->session,
                              &(trp_report){.step = stats->step,
                                            .metrics = metrics,
                                            .metric_count = sizeof(metrics) / sizeof(metrics[0]),
                                            .has_checkpoint = has_checkpoint},
                              err);
}

static trp_code step(rank_state *r, trp_error *err) {
    uint64_t every = (uint64_t)r->job.checkpoint_every;
    trp_step_stats stats;
    trp_code code = rank_step(r, &stats, err);
    if (code != TRP_OK) {
        return code;
    }
    bool is_last = stats.step >= (uint64_t)r->job.steps;
    bool is_due = is_last || (every > 0 && stats.step % every == 0);
    if (is_due) {
        code = save(r, &stats, is_last, err);
    }
    return code == TRP_OK ? report(r, &stats, is_due, err) : code;
}

trp_code train(trp_session *session, trp_bytes job, trp_error *err) {
    rank_state r;
    trp_code code = rank_open(&r, session, job, err);
    if (code == TRP_OK) {
        code = resume(&r, err);
    }
    trp_session_loaded(session);
    while (code == TRP_OK && trp_zero_steps(r.engine) < (uint64_t)r.job.steps) {
        code = step(&r, err);
    }
    rank_close(&r);
    return code;
}
