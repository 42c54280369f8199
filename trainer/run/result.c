#include "trainer/run/result.h"

#include <stdlib.h>
#include <string.h>

static trp_code copy_metrics(trp_result *result, const trpi_run_result *message, trp_error *err) {
    trp_metric *metrics = calloc(message->metrics_count + 1, sizeof(*metrics));
    result->metrics = metrics;
    for (size_t i = 0; metrics != NULL && i < message->metrics_count; i++) {
        metrics[i].value = message->metrics[i].value;
        metrics[i].name = strdup(message->metrics[i].name);
        if (metrics[i].name == NULL) {
            return trpi_fail(err, TRP_ENOMEM, "result");
        }
        result->metric_count = i + 1;
    }
    return metrics != NULL ? TRP_OK : trpi_fail(err, TRP_ENOMEM, "result");
}

/* Codes come from the same program, but as bytes. */
static trp_code code_of(uint64_t code) {
    return code < TRP_CODE_COUNT ? (trp_code)code : TRP_EPROTOCOL;
}

static trp_rank_failure failure_of(const trpi_run_failure *from) {
    trp_rank_failure failure = {.rank = (int)from->rank};
    failure.error.code = code_of(from->code);
    failure.error.node = from->error_node;
    failure.error.actor = from->actor;
    TRPI_SET(failure.error.message, from->message);
    failure.death.actor.id = from->actor;
    failure.death.incarnation = from->incarnation;
    failure.death.node = from->node;
    failure.death.pid = from->pid;
    failure.death.cause = from->cause < TRP_CAUSE_COUNT ? (trp_cause)from->cause : TRP_CAUSE_NONE;
    failure.death.signal = (int)from->signal;
    failure.death.exit_code = (int)from->exit_code;
    failure.death.final = from->cause != TRP_CAUSE_NONE;
    TRPI_SET(failure.death.message, from->death_message);
    TRPI_SET(failure.death.stderr_tail, from->stderr_tail);
    return failure;
}

static trp_code copy_arrays(trp_result *result, const trpi_run_result *message, trp_error *err) {
    result->failures = calloc(message->failures_count + 1, sizeof(*result->failures));
    result->recovery_ms = calloc(message->recovery_ms_count + 1, sizeof(*result->recovery_ms));
    if (result->failures == NULL || result->recovery_ms == NULL) {
        return trpi_fail(err, TRP_ENOMEM, "result");
    }
    for (size_t i = 0; i < message->failures_count; i++) {
        result->failures[i] = failure_of(&message->failures[i]);
    }
    for (size_t i = 0; i < message->recovery_ms_count; i++) {
        result->recovery_ms[i] = message->recovery_ms[i].value;
    }
    result->failure_count = message->failures_count;
    result->recovery_count = message->recovery_ms_count;
    return TRP_OK;
}

trp_code trpi_result_fill(trp_result *result, const trpi_run_result *message, trp_error *err) {
    result->state =
        message->state <= TRP_RUN_ABORTED ? (trp_run_state)message->state : TRP_RUN_ERRORED;
    result->error.code = code_of(message->code);
    result->error.node = message->node;
    result->error.actor = message->actor;
    TRPI_SET(result->error.message, message->message);
    result->restarts = (int)message->restarts;
    result->steps = message->steps;
    result->wasted_steps = message->wasted_steps;
    result->goodput = message->goodput;
    if (message->checkpoint[0] != '\0') {
        result->checkpoint = strdup(message->checkpoint);
        if (result->checkpoint == NULL) {
            return trpi_fail(err, TRP_ENOMEM, "result");
        }
    }
    trp_code code = copy_metrics(result, message, err);
    return code == TRP_OK ? copy_arrays(result, message, err) : code;
}

void trp_result_release(trp_result *result) {
    if (result == NULL) {
        return;
    }
    for (size_t i = 0; i < result->metric_count; i++) {
        free((char *)result->metrics[i].name);
    }
    free(result->metrics);
    free(result->failures);
    free(result->recovery_ms);
    free(result->checkpoint);
    free(result->path);
    *result = (trp_result){0};
}
