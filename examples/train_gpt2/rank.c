#include "examples/train_gpt2/rank.h"

#include <stdlib.h>

trp_code rank_model(const gpt2_job *job, trp_model **ret_model, trp_error *err) {
    trp_gpt2_config shape = {.vocabulary = VOCABULARY,
                             .positions = job->columns,
                             .layers = job->layers,
                             .heads = job->heads,
                             .width = job->width};
    return trp_gpt2_new(&shape, ret_model, err);
}

static trp_code open_engine(rank_state *r, trp_error *err) {
    trp_model *model = NULL;
    trp_code code = trp_device_open(trp_session_device(r->session), NULL, &r->device, err);
    if (code == TRP_OK) {
        code = rank_model(&r->job, &model, err);
    }
    if (code == TRP_OK) {
        code = trp_zero_new(&model, r->device, trp_session_comm(r->session), r->config, r->job.seed,
                            &r->engine, err);
    }
    trp_model_free(model);
    return code;
}

static trp_code open_data(rank_state *r, trp_error *err) {
    const trp_zero_settings *settings = trp_zero_config_settings(r->config);
    size_t batch = (size_t)(settings->micro_batch * r->job.columns);
    size_t count = (size_t)settings->accumulation;
    r->tokens = calloc(batch * count, sizeof(*r->tokens));
    r->targets = calloc(batch * count, sizeof(*r->targets));
    r->micro = calloc(count, sizeof(*r->micro));
    if (r->tokens == NULL || r->targets == NULL || r->micro == NULL) {
        return fail(err, TRP_ENOMEM, "batch", "out of memory");
    }
    for (size_t i = 0; i < count; i++) {
        r->micro[i] = (trp_batch){.tokens = r->tokens + i * batch,
                                  .targets = r->targets + i * batch,
                                  .rows = settings->micro_batch,
                                  .columns = r->job.columns};
    }
    r->position = (trp_data_position){.seed = r->job.seed};
    return trp_dataset_open_bytes(r->job.data, r->job.columns, &r->dataset, err);
}

trp_code rank_open(rank_state *r, trp_session *session, trp_bytes job, trp_error *err) {
    *r = (rank_state){.session = session};
    trp_code code = job_read(job, &r->job, &r->config_text, err);
    if (code == TRP_OK) {
        code = trp_zero_config_parse(r->config_text, trp_session_world(session), &r->config, err);
    }
    if (code == TRP_OK) {
        code = open_data(r, err);
    }
    return code == TRP_OK ? open_engine(r, err) : code;
}

void rank_close(rank_state *r) {
    trp_zero_free(r->engine);
    trp_dataset_close(r->dataset);
    trp_device_close(r->device);
    trp_zero_config_free(r->config);
    free(r->tokens);
    free(r->targets);
    free(r->micro);
    free(r->config_text);
}

trp_code rank_step(rank_state *r, trp_step_stats *ret_stats, trp_error *err) {
    const trp_zero_settings *settings = trp_zero_config_settings(r->config);
    int count = (int)settings->accumulation;
    size_t batch = (size_t)(settings->micro_batch * r->job.columns);
    for (int i = 0; i < count; i++) {
        trp_dataset_batch(r->dataset, &r->position, trp_session_rank(r->session),
                          trp_session_world(r->session), settings->micro_batch,
                          r->tokens + (size_t)i * batch, r->targets + (size_t)i * batch);
    }
    return trp_zero_step(r->engine, r->micro, count, ret_stats, err);
}
