/* news.c: what the driver is told, each with a line for a human. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/log.h"
#include "trainer/run/clock.h"
#include "trainer/run/trainer.h"

#define REPEATED                                                                                   \
    " (the same error at the same step as before: the program's, not a machine's, so the retries " \
    "that are left are not spent on it)"

enum { TEXT_BYTES = 1536, SHOWN_METRICS = 6 };

static trpi_run_event event_of(const trpi_trainer *t, int kind, const char *text) {
    return (trpi_run_event){.kind = (uint64_t)kind,
                            .text = text,
                            .attempt = t->controller.attempt,
                            .step = t->progress.step,
                            .at_ns = trpi_run_now_ns(),
                            .state = t->controller.state};
}

static void tell(trpi_trainer *t, const trpi_run_event *event) {
    trp_error err = {0};
    if (trpi_journal_add(&t->journal, event, &err) != TRP_OK) {
        trpi_log(TRPI_WARN, "event_lost", "text=\"%s\" error=\"%s\"", event->text, err.message);
    }
}

void trpi_news_state(trpi_trainer *t, const char *detail) {
    char text[TEXT_BYTES];
    trpi_format(text, sizeof(text), "%s%s%s", trp_run_state_name(t->controller.state),
                detail[0] != '\0' ? ": " : "", detail);
    trpi_run_event event = event_of(t, TRP_TRAIN_STATE, text);
    tell(t, &event);
}

static trpi_run_member member_of(const trpi_member *member) {
    return (trpi_run_member){.rank = member->rank,
                             .local_rank = member->local_rank,
                             .node_rank = member->node_rank,
                             .node = member->node,
                             .pid = member->pid,
                             .devices = member->devices};
}

void trpi_news_running(trpi_trainer *t) {
    char text[TEXT_BYTES];
    trpi_run_member *members = trpi_alloc((size_t)t->gang.count * sizeof(*members));
    trpi_format(text, sizeof(text), "RUNNING: attempt %" PRIu64 ", %d workers, from %s",
                t->controller.attempt, t->gang.count,
                t->from.size > 0 ? strrchr((const char *)t->from.data, '/') + 1 : "the beginning");
    trpi_run_event event = event_of(t, TRP_TRAIN_STATE, text);
    for (int i = 0; i < t->gang.count; i++) {
        members[t->gang.members[i].rank] = member_of(&t->gang.members[i]);
    }
    event.members = members;
    event.members_count = (size_t)t->gang.count;
    tell(t, &event);
    free(members);
}

void trpi_news_report(trpi_trainer *t, const trpi_round *round) {
    const trpi_manifest *manifest = &round->manifest;
    trp_buf text = {0};
    trpi_run_metric *metrics = trpi_alloc((manifest->metric_count + 1) * sizeof(*metrics));
    trp_code code = trp_buf_printf(&text, "step %" PRIu64, round->step);
    for (size_t i = 0; code == TRP_OK && i < TRPI_MIN(manifest->metric_count, SHOWN_METRICS); i++) {
        code = trp_buf_printf(&text, "%s%s %.6g", i == 0 ? ": " : ", ", manifest->metrics[i].name,
                              manifest->metrics[i].value);
    }
    for (size_t i = 0; i < manifest->metric_count; i++) {
        metrics[i] = (trpi_run_metric){manifest->metrics[i].name, manifest->metrics[i].value};
    }
    trpi_run_event event =
        event_of(t, TRP_TRAIN_REPORT, code == TRP_OK ? (const char *)text.data : "");
    event.metrics = metrics;
    event.metrics_count = manifest->metric_count;
    tell(t, &event);
    free(metrics);
    trp_buf_release(&text);
}

void trpi_news_checkpoint(trpi_trainer *t, const trpi_record_entry *entry, double took_ms) {
    char text[TEXT_BYTES];
    uint64_t bytes = 0;
    for (size_t i = 0; i < entry->manifest.file_count; i++) {
        bytes += entry->manifest.files[i].size;
    }
    trpi_format(text, sizeof(text),
                "checkpoint_%06" PRIu64 ": step %" PRIu64
                ", %zu files, %.1f MB, committed in %.0f ms",
                entry->number, entry->manifest.step, entry->manifest.file_count,
                (double)bytes / 1e6, took_ms);
    trpi_run_event event = event_of(t, TRP_TRAIN_CHECKPOINT, text);
    tell(t, &event);
}

/* "signal 9 (SIGKILL)", "exit code 4", or the cause and what the cluster says of it. */
static void describe_death(const trp_death *death, char *out, size_t size) {
    const char *name = sigabbrev_np(death->signal);
    if (death->cause == TRP_CAUSE_SIGNALED && name != NULL) {
        trpi_format(out, size, "signal %d (SIG%s)", death->signal, name);
    } else if (death->cause == TRP_CAUSE_EXITED) {
        trpi_format(out, size, "exit code %d", death->exit_code);
    } else {
        trpi_format(out, size, "%s: %s", trp_cause_text(death->cause), death->message);
    }
}

void trpi_news_failure(trpi_trainer *t, const trp_rank_failure *failure, uint64_t noticed_ns) {
    char text[TEXT_BYTES], cause[TEXT_BYTES / 2];
    const trp_death *death = &failure->death;
    if (death->cause == TRP_CAUSE_NONE) {
        trpi_format(text, sizeof(text), "rank %d failed: %s", failure->rank,
                    failure->error.message[0] != '\0' ? failure->error.message
                                                      : trp_code_text(failure->error.code));
    } else {
        describe_death(death, cause, sizeof(cause));
        trpi_format(text, sizeof(text), "rank %d (pid %" PRId64 ", node %" PRIu64 ") died: %s",
                    failure->rank, death->pid, death->node, cause);
    }
    trpi_run_event event = event_of(t, TRP_TRAIN_FAILURE, text);
    event.at_ns = noticed_ns;
    tell(t, &event);
}

void trpi_news_recovered(trpi_trainer *t, const double split_ms[5], double total_ms,
                         uint64_t now_ns) {
    char text[TEXT_BYTES];
    trpi_run_number split[5];
    for (int i = 0; i < 5; i++) {
        split[i].value = split_ms[i];
    }
    trpi_format(text, sizeof(text),
                "recovered in %.0f ms: detect %.0f, respawn %.0f, rendezvous %.0f, load %.0f, "
                "first step %.0f",
                total_ms, split_ms[0], split_ms[1], split_ms[2], split_ms[3], split_ms[4]);
    trpi_run_event event = event_of(t, TRP_TRAIN_RECOVERED, text);
    event.at_ns = now_ns;
    event.recovery_ms = split;
    event.recovery_ms_count = 5;
    tell(t, &event);
}

/* ---- The result ---- */

static trpi_run_failure failure_of(const trp_rank_failure *failure) {
    const trp_death *death = &failure->death;
    return (trpi_run_failure){.rank = failure->rank,
                              .code = failure->error.code,
                              .error_node = failure->error.node,
                              .actor = failure->error.actor,
                              .message = failure->error.message,
                              .incarnation = death->incarnation,
                              .node = death->node,
                              .pid = death->pid,
                              .cause = death->cause,
                              .signal = death->signal,
                              .exit_code = death->exit_code,
                              .death_message = death->message,
                              .stderr_tail = death->stderr_tail};
}

/* What the run failed of: no attempt could be started, or the first failure of the last one. */
static void set_error(const trpi_trainer *t, trpi_run_result *result, char *text, size_t size) {
    if (t->controller.state == TRP_RUN_FINISHED) {
        return;
    }
    if (t->controller.state == TRP_RUN_ABORTED) {
        result->code = TRP_ECANCELED;
        trpi_format(text, size, "the run was stopped");
    } else if (t->broken.code != TRP_OK) {
        result->code = t->broken.code;
        trpi_format(text, size, "%s", t->broken.message);
    } else if (t->failure_count > 0) {
        const trp_rank_failure *first = &t->failures[0];
        result->code = first->error.code;
        result->node = first->error.node;
        result->actor = first->error.actor;
        char cause[TEXT_BYTES / 2];
        describe_death(&first->death, cause, sizeof(cause));
        trpi_format(text, size, "rank %d%s%s%s", first->rank,
                    first->death.cause != TRP_CAUSE_NONE ? " died: " : ": ",
                    first->death.cause != TRP_CAUSE_NONE ? cause : first->error.message,
                    t->controller.is_repeated ? REPEATED : "");
    } else {
        result->code = TRP_EINTERNAL;
        trpi_format(text, size, "ended without a cause");
    }
    result->message = text;
}

static void set_times(const trpi_trainer *t, trpi_run_result *result) {
    uint64_t total_ns = trpi_progress_total_ns(&t->progress, trpi_run_now_ns());
    result->restarts = t->controller.restarts;
    result->steps = t->progress.step;
    result->wasted_steps = t->progress.wasted_steps;
    result->goodput = total_ns > 0 ? 1.0 - (double)t->progress.lost_ns / (double)total_ns : 1.0;
}

/* The arrays behind a result. */
static void fill_result(const trpi_trainer *t, trpi_run_result *result) {
    result->metrics = trpi_alloc((t->last.metric_count + 1) * sizeof(*result->metrics));
    result->metrics_count = t->last.metric_count;
    for (size_t i = 0; i < t->last.metric_count; i++) {
        result->metrics[i] = (trpi_run_metric){t->last.metrics[i].name, t->last.metrics[i].value};
    }
    result->failures = trpi_alloc((t->failure_count + 1) * sizeof(*result->failures));
    result->failures_count = t->failure_count;
    for (size_t i = 0; i < t->failure_count; i++) {
        result->failures[i] = failure_of(&t->failures[i]);
    }
    result->recovery_ms = trpi_alloc((t->recovery_count + 1) * sizeof(*result->recovery_ms));
    result->recovery_ms_count = t->recovery_count;
    for (size_t i = 0; i < t->recovery_count; i++) {
        result->recovery_ms[i].value = t->recovery_ms[i];
    }
}

trp_code trpi_news_end(trpi_trainer *t, trp_error *err) {
    char text[TEXT_BYTES] = "";
    trp_buf path = {0};
    trpi_run_result result = {.state = t->controller.state};
    const trpi_record_entry *latest = trpi_record_latest(&t->record);
    trp_code code = TRP_OK;
    if (latest != NULL) {
        code = trpi_record_path(&t->record, latest->number, &path);
    }
    if (code == TRP_OK && path.size > 0 && access((const char *)path.data, F_OK) == 0) {
        result.checkpoint = (const char *)path.data; /* somebody may have removed it by hand */
    }
    fill_result(t, &result);
    set_error(t, &result, text, sizeof(text));
    set_times(t, &result);
    if (code == TRP_OK) {
        code = trpi_journal_end(&t->journal, &result, err);
    }
    free(result.metrics);
    free(result.failures);
    free(result.recovery_ms);
    trp_buf_release(&path);
    return code;
}
