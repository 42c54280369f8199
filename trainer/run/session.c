#include "trainer/run/session.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "trainer/ckpt/store.h"
#include "trainer/run/clock.h"

/* The trainer answers by the run's own deadline; this much later it is not the ranks who are late.
 */
enum { TRAINER_GRACE_MS = 30000, METRICS_MAX = 1000, NAME_BYTES_MAX = 200 };

void trpi_session_begin(trp_session *session) {
    const trpi_run_assignment *assignment = &session->assignment;
    session->checkpoint = assignment->checkpoint[0] != '\0' ? assignment->checkpoint : NULL;
    session->step = assignment->step;
}

int trp_session_rank(const trp_session *session) {
    return (int)session->assignment.rank;
}

int trp_session_world(const trp_session *session) {
    return (int)session->assignment.world;
}

int trp_session_local_rank(const trp_session *session) {
    return (int)session->assignment.local_rank;
}

int trp_session_local_world(const trp_session *session) {
    return (int)session->assignment.local_world;
}

int trp_session_node_rank(const trp_session *session) {
    return (int)session->assignment.node_rank;
}

uint64_t trp_session_attempt(const trp_session *session) {
    return session->assignment.attempt;
}

const char *trp_session_run_name(const trp_session *session) {
    return session->assignment.run_name;
}

trp_comm *trp_session_comm(trp_session *session) {
    return session->comm;
}

const char *trp_session_device(const trp_session *session) {
    return session->assignment.device;
}

const char *trp_session_checkpoint(const trp_session *session) {
    return session->checkpoint;
}

void trp_session_loaded(trp_session *session) {
    if (session->loaded_ns == 0) {
        session->loaded_ns = trpi_run_now_ns();
    }
}

static trp_code check_canceled(const trp_session *session, trp_error *err) {
    return atomic_load(&session->canceled) ? trpi_fail(err, TRP_ECANCELED, "this attempt is over")
                                           : TRP_OK;
}

static trp_actor trainer_of(const trp_session *session) {
    return (trp_actor){session->assignment.trainer};
}

static uint64_t answer_timeout_ms(const trp_session *session) {
    uint64_t timeout_ms = session->assignment.report_timeout_ms;
    return timeout_ms < TRP_FOREVER - TRAINER_GRACE_MS ? timeout_ms + TRAINER_GRACE_MS
                                                       : TRP_FOREVER;
}

/* ---- Staging ---- */

static trp_code ask_number(trp_session *session, uint64_t *ret_number, trp_error *err) {
    trpi_run_stage stage = {.attempt = session->assignment.attempt,
                            .rank = session->assignment.rank,
                            .report = session->reports + 1};
    trpi_run_staged staged = {0};
    trp_buf args = {0}, reply = {0};
    trp_code code = trpi_pack_stage(&stage, &args, err);
    if (code == TRP_OK) {
        code = trp_ask(session->rt, trainer_of(session), "stage", trp_buf_bytes(&args),
                       answer_timeout_ms(session), &reply, err);
    }
    if (code == TRP_OK) {
        code = trpi_unpack_staged(trp_buf_bytes(&reply), &session->arena, &staged, err);
    }
    *ret_number = staged.number;
    trp_buf_release(&args);
    trp_buf_release(&reply);
    return code;
}

trp_code trp_session_staging(trp_session *session, const char **ret_dir, trp_error *err) {
    trp_buf dir = {0};
    uint64_t number;
    if (session->staging != NULL) {
        *ret_dir = session->staging;
        return TRP_OK;
    }
    trp_code code = check_canceled(session, err);
    if (code == TRP_OK) {
        code = ask_number(session, &number, err);
    }
    if (code == TRP_OK) {
        code = trpi_ckpt_store_stage(session->assignment.run_dir, session->assignment.attempt,
                                     number, (int)session->assignment.rank, &dir, err);
    }
    if (code == TRP_OK) {
        session->staging = trpi_arena_text(&session->arena, (const char *)dir.data, dir.size);
        code = session->staging != NULL ? TRP_OK : trpi_fail(err, TRP_ENOMEM, "staging");
    }
    if (code == TRP_OK) {
        *ret_dir = session->staging;
    }
    trp_buf_release(&dir);
    return code == TRP_OK ? code : trpi_context(err, code, "staging of a checkpoint");
}

/* ---- Answers ---- */

/* Most answers name no checkpoint: nothing of them stays, however long the session lasts. */
static trp_code take_answer(trp_session *session, trp_bytes value, trp_error *err) {
    trpi_arena arena = {0};
    trpi_run_reported reported;
    trp_code code = trpi_unpack_reported(value, &arena, &reported, err);
    if (code == TRP_OK && reported.checkpoint[0] != '\0') {
        const char *path =
            trpi_arena_text(&session->arena, reported.checkpoint, strlen(reported.checkpoint));
        session->checkpoint = path != NULL ? path : session->checkpoint;
        code = path != NULL ? TRP_OK : trpi_fail(err, TRP_ENOMEM, "report");
    }
    trpi_arena_release(&arena);
    return code;
}

/* Takes the oldest answer. TRP_ETIMEOUT of this wait leaves it where it is. */
static trp_code take_oldest(trp_session *session, uint64_t timeout_ms, bool *ret_late,
                            trp_error *err) {
    trp_bytes value;
    bool done = false;
    trp_ref ref = session->unanswered[0];
    trp_code code = trp_wait(session->rt, &ref, 1, 1, timeout_ms, &done, err);
    *ret_late = code == TRP_OK && !done;
    if (code != TRP_OK || !done) {
        return code;
    }
    code = trp_get(session->rt, ref, 0, &value, err);
    if (code == TRP_OK) {
        code = take_answer(session, value, err);
    }
    trp_ref_release(session->rt, ref);
    session->unanswered_count--;
    memmove(session->unanswered, session->unanswered + 1,
            session->unanswered_count * sizeof(*session->unanswered));
    return code;
}

static trp_code take_all(trp_session *session, uint64_t timeout_ms, trp_error *err) {
    trp_code code = TRP_OK;
    while (code == TRP_OK && session->unanswered_count > 0) {
        bool late;
        code = take_oldest(session, timeout_ms, &late, err);
        if (code == TRP_OK && late) {
            code = trpi_fail(err, TRP_ETIMEOUT, "the trainer does not answer");
        }
    }
    return code;
}

static trp_code take_those_there(trp_session *session, trp_error *err) {
    trp_code code = TRP_OK;
    bool late = false;
    while (code == TRP_OK && !late && session->unanswered_count > 0) {
        code = take_oldest(session, 0, &late, err);
    }
    return code;
}

/* Reports that did not wait have no deadline, so the ranks that are behind are asked after here. */
trp_code trpi_session_drain(trp_session *session, trp_error *err) {
    if (session->unanswered_count == 0) {
        return TRP_OK;
    }
    trpi_run_drain drain = {.attempt = session->assignment.attempt,
                            .rank = session->assignment.rank,
                            .report = session->reports};
    trp_buf args = {0};
    trp_code code = trpi_pack_drain(&drain, &args, err);
    if (code == TRP_OK) {
        code = trp_ask(session->rt, trainer_of(session), "drain", trp_buf_bytes(&args),
                       answer_timeout_ms(session), NULL, err);
    }
    trp_buf_release(&args);
    return code == TRP_OK ? take_all(session, TRAINER_GRACE_MS, err) : code;
}

/* ---- Reporting ---- */

/* Here, because the rank that brings it should be the one that fails of it. Names are written down
 * as JSON, which knows only UTF-8. */
static trp_code check_metrics(const trp_report *report, trp_error *err) {
    if (report->metric_count > METRICS_MAX) {
        return trpi_fail(err, TRP_EINVALID, "report: %zu metrics; at most %d are taken",
                         report->metric_count, METRICS_MAX);
    }
    for (size_t i = 0; i < report->metric_count; i++) {
        const char *name = report->metrics[i].name;
        size_t size = name != NULL ? strnlen(name, NAME_BYTES_MAX + 1) : 0;
        if (size == 0 || size > NAME_BYTES_MAX) {
            return trpi_fail(err, TRP_EINVALID,
                             "report: the name of metric %zu (\"%.40s\") must have 1 to %d bytes",
                             i, name != NULL ? name : "", NAME_BYTES_MAX);
        }
        json_t *text = json_string(name);
        if (text == NULL) {
            return trpi_fail(err, TRP_EINVALID, "report: the name of metric %zu is not UTF-8", i);
        }
        json_decref(text);
    }
    return TRP_OK;
}

static trp_code seal(trp_session *session, trpi_manifest *sealed, trp_error *err) {
    if (session->staging == NULL) {
        return trpi_fail(err, TRP_EINVALID,
                         "has_checkpoint is set, but trp_session_staging() was not asked for a "
                         "directory");
    }
    return trpi_ckpt_store_seal(session->staging, (int)session->assignment.rank, sealed, err);
}

static trp_code fill(trp_session *session, const trp_report *report, const trpi_manifest *sealed,
                     trpi_run_report *message, trp_error *err) {
    trpi_run_metric *metrics = calloc(report->metric_count + 1, sizeof(*metrics));
    trpi_run_file *files = calloc(sealed->file_count + 1, sizeof(*files));
    message->metrics = metrics;
    message->files = files;
    if (metrics == NULL || files == NULL) {
        return trpi_fail(err, TRP_ENOMEM, "report");
    }
    for (size_t i = 0; i < report->metric_count; i++) {
        metrics[i] = (trpi_run_metric){report->metrics[i].name, report->metrics[i].value};
    }
    for (size_t i = 0; i < sealed->file_count; i++) {
        const trpi_manifest_file *file = &sealed->files[i];
        files[i] = (trpi_run_file){file->name, file->size, file->xxh3};
    }
    message->metrics_count = report->metric_count;
    message->files_count = sealed->file_count;
    message->attempt = session->assignment.attempt;
    message->rank = session->assignment.rank;
    message->number = session->reports + 1;
    message->step = report->step;
    message->has_checkpoint = report->has_checkpoint;
    message->waits = report->has_checkpoint || report->wait ||
                     session->unanswered_count + 1 == TRPI_SESSION_UNANSWERED_MAX;
    if (session->reports == 0) { /* how the time until here was spent, once */
        message->open_ns = session->opened_ns - session->entered_ns;
        message->load_ns = session->loaded_ns != 0 ? session->loaded_ns - session->entered_ns : 0;
    }
    return TRP_OK;
}

static trp_code send(trp_session *session, const trpi_run_report *message, trp_error *err) {
    trp_buf args = {0};
    trp_ref ref;
    trp_code code = trpi_pack_report(message, &args, err);
    if (code == TRP_OK) {
        code = trp_call(session->rt, trainer_of(session), "report", trp_buf_bytes(&args), 0, &ref,
                        err);
    }
    if (code == TRP_OK) {
        session->unanswered[session->unanswered_count++] = ref;
        session->reports++;
        session->step = message->step;
        session->staging = NULL;
    }
    trp_buf_release(&args);
    return code;
}

trp_code trp_session_report(trp_session *session, const trp_report *report, trp_error *err) {
    trpi_manifest sealed = {0};
    trpi_run_report message = {0};
    trp_code code = check_canceled(session, err);
    if (code == TRP_OK) {
        code = check_metrics(report, err);
    }
    if (code == TRP_OK && report->has_checkpoint) {
        code = seal(session, &sealed, err);
    }
    if (code == TRP_OK) {
        code = fill(session, report, &sealed, &message, err);
    }
    if (code == TRP_OK) {
        code = send(session, &message, err);
    }
    if (code == TRP_OK) {
        code = message.waits ? take_all(session, answer_timeout_ms(session), err)
                             : take_those_there(session, err);
    }
    free(message.metrics);
    free(message.files);
    trpi_manifest_release(&sealed);
    return code;
}

void trpi_session_release(trp_session *session) {
    for (size_t i = 0; i < session->unanswered_count; i++) {
        trp_ref_release(session->rt, session->unanswered[i]);
    }
    session->unanswered_count = 0;
    trpi_arena_release(&session->arena);
}
