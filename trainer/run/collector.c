#include "trainer/run/collector.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NAMED_RANKS_MAX = 16 };

/* ---- Rounds ---- */

static void free_round(trpi_round *round) {
    trpi_manifest_release(&round->manifest);
    free(round);
}

static void free_rounds(trpi_collector *collector) {
    while (collector->rounds != NULL) {
        trpi_round *round = collector->rounds;
        collector->rounds = round->next;
        free_round(round);
    }
}

static trpi_round *round_of(trpi_collector *collector, uint64_t number) {
    trpi_round **at = &collector->rounds;
    while (*at != NULL && (*at)->number < number) {
        at = &(*at)->next;
    }
    if (*at != NULL && (*at)->number == number) {
        return *at;
    }
    trpi_round *round = calloc(1, sizeof(*round));
    if (round != NULL) {
        round->number = number;
        round->next = *at;
        *at = round;
    }
    return round;
}

static trp_code add_to_round(trpi_round *round, const trpi_run_report *report, trp_error *err) {
    trp_code code = TRP_OK;
    if (report->rank == 0) {
        round->step = report->step;
        for (size_t i = 0; code == TRP_OK && i < report->metrics_count; i++) {
            code = trpi_manifest_add_metric(&round->manifest, report->metrics[i].name,
                                            report->metrics[i].value, err);
        }
    }
    for (size_t i = 0; code == TRP_OK && i < report->files_count; i++) {
        const trpi_run_file *file = &report->files[i];
        code = trpi_manifest_add_file(&round->manifest, file->name, file->size, file->xxh3,
                                      (int)report->rank, err);
    }
    round->has_checkpoint = round->has_checkpoint || report->has_checkpoint;
    return code;
}

/* ---- Waiters ---- */

static trp_code add_waiter(trpi_collector *collector, trpi_waiter waiter, trp_error *err) {
    if (collector->waiter_count == collector->waiter_capacity) {
        size_t capacity = TRPI_MAX(16, collector->waiter_capacity * 2);
        trpi_waiter *waiters = realloc(collector->waiters, capacity * sizeof(*waiters));
        if (waiters == NULL) {
            return trpi_fail(err, TRP_ENOMEM, "report");
        }
        collector->waiters = waiters;
        collector->waiter_capacity = capacity;
    }
    collector->waiters[collector->waiter_count++] = waiter;
    return TRP_OK;
}

static void take_waiter(trpi_collector *collector, size_t index) {
    collector->waiters[index] = collector->waiters[--collector->waiter_count];
}

static void answer_stage(trpi_collector *collector, trp_promise *promise) {
    trp_error err = {0};
    trp_buf out = {0};
    trp_code code = TRP_OK;
    if (!collector->staged) {
        code = collector->hooks.next_number(collector->hooks.arg, &collector->staged_number, &err);
        collector->staged = code == TRP_OK;
    }
    if (code == TRP_OK) {
        code = trpi_pack_staged(&(trpi_run_staged){collector->staged_number}, &out, &err);
    }
    if (code == TRP_OK) {
        trp_promise_resolve(promise, trp_buf_bytes(&out));
    } else {
        trp_promise_fail(promise, code, err.message);
    }
    trp_buf_release(&out);
}

/* Answers the reports of round `number`: with `failure`, or with what is in `reply`. */
static void answer_round(trpi_collector *collector, uint64_t number, const trp_error *failure,
                         trp_bytes reply) {
    for (size_t i = collector->waiter_count; i-- > 0;) {
        trpi_waiter *waiter = &collector->waiters[i];
        if (waiter->number != number || waiter->kind != TRPI_WAITS_REPORTED) {
            continue;
        }
        if (failure->code != TRP_OK) {
            trp_promise_fail(waiter->promise, failure->code, failure->message);
        } else {
            trp_promise_resolve(waiter->promise, reply);
        }
        take_waiter(collector, i);
    }
}

/* Those that wait for the rounds up to now without having made the last of them. */
static void answer_others(trpi_collector *collector) {
    for (size_t i = collector->waiter_count; i-- > 0;) {
        trpi_waiter waiter = collector->waiters[i];
        if (waiter.kind == TRPI_WAITS_REPORTED || waiter.number > collector->reports.complete) {
            continue;
        }
        take_waiter(collector, i);
        if (waiter.kind == TRPI_WAITS_STAGE) {
            answer_stage(collector, waiter.promise);
        } else {
            trp_promise_resolve(waiter.promise, (trp_bytes){0});
        }
    }
}

/* ---- Completion ---- */

static void complete_round(trpi_collector *collector, trpi_round *round) {
    trp_error failure = {0};
    trp_buf path = {0}, reply = {0};
    uint64_t number = round->number;
    if (collector->staged && !round->has_checkpoint) {
        collector->hooks.discard(collector->hooks.arg, collector->attempt,
                                 collector->staged_number);
    }
    round->manifest.number = collector->staged_number;
    round->manifest.attempt = collector->attempt;
    round->manifest.step = round->step;
    round->manifest.world = collector->reports.world;
    collector->staged = false;
    trp_code code = collector->hooks.complete(collector->hooks.arg, round, &path, &failure);
    if (code == TRP_OK) {
        trpi_run_reported reported = {path.size > 0 ? (const char *)path.data : ""};
        code = trpi_pack_reported(&reported, &reply, &failure);
    }
    failure.code = code;
    answer_round(collector, number, &failure, trp_buf_bytes(&reply));
    trp_buf_release(&path);
    trp_buf_release(&reply);
}

static void complete_rounds(trpi_collector *collector) {
    while (collector->rounds != NULL && collector->rounds->number <= collector->reports.complete) {
        trpi_round *round = collector->rounds;
        collector->rounds = round->next;
        complete_round(collector, round);
        free_round(round);
    }
    answer_others(collector);
}

/* ---- What comes in ---- */

static trp_code check_attempt(const trpi_collector *collector, uint64_t attempt, trp_error *err) {
    if (collector->attempt == 0 || attempt != collector->attempt) {
        return trpi_fail(err, TRP_ECANCELED, "attempt %" PRIu64 " is over", attempt);
    }
    return TRP_OK;
}

/* Whether a report that no rank will ever join is due to one that has returned already. */
static trp_code check_company(const trpi_collector *collector, uint64_t number, trp_error *err) {
    int rank = trpi_reports_never(&collector->reports, number);
    if (rank < 0) {
        return TRP_OK;
    }
    return trpi_fail(err, TRP_EINVALID,
                     "report %" PRIu64 ": rank %d has returned after %" PRIu64
                     " reports; every rank must report equally often",
                     number, rank, collector->reports.counts[rank]);
}

static trp_code take_report(trpi_collector *collector, const trpi_run_report *report,
                            uint64_t deadline_ns, trp_promise *promise, trp_error *err) {
    trp_code code = check_attempt(collector, report->attempt, err);
    if (code == TRP_OK) {
        code = check_company(collector, report->number, err);
    }
    trpi_round *round = code == TRP_OK ? round_of(collector, report->number) : NULL;
    if (code == TRP_OK && round == NULL) {
        code = trpi_fail(err, TRP_ENOMEM, "report");
    }
    if (code == TRP_OK) {
        code = add_to_round(round, report, err);
    }
    if (code == TRP_OK) {
        trpi_waiter waiter = {promise, report->number, deadline_ns, TRPI_WAITS_REPORTED};
        code = add_waiter(collector, waiter, err);
    }
    if (code != TRP_OK) {
        return code;
    }
    const char *wrong = trpi_reports_add(&collector->reports, (int)report->rank, report->number);
    if (wrong != NULL) {
        collector->waiter_count--;
        return trpi_fail(err, TRP_EPROTOCOL, "report %" PRIu64 " of rank %" PRId64 ": %s",
                         report->number, report->rank, wrong);
    }
    collector->open_ns = TRPI_MAX(collector->open_ns, report->open_ns);
    collector->load_ns = TRPI_MAX(collector->load_ns, report->load_ns);
    return TRP_OK;
}

void trpi_collector_report(trpi_collector *collector, const trpi_run_report *report,
                           uint64_t deadline_ns, trp_promise *promise) {
    trp_error err = {0};
    trp_code code = take_report(collector, report, deadline_ns, promise, &err);
    if (code != TRP_OK) {
        trp_promise_fail(promise, code, err.message);
        return;
    }
    complete_rounds(collector);
}

/* Takes a waiter for a round that it has no report in. */
static trp_code wait_for_round(trpi_collector *collector, uint64_t attempt, trpi_waiter waiter,
                               trp_error *err) {
    trp_code code = check_attempt(collector, attempt, err);
    if (code == TRP_OK) {
        code = check_company(collector, waiter.number, err);
    }
    return code == TRP_OK ? add_waiter(collector, waiter, err) : code;
}

void trpi_collector_stage(trpi_collector *collector, const trpi_run_stage *stage,
                          uint64_t deadline_ns, trp_promise *promise) {
    trp_error err = {0};
    trpi_waiter waiter = {promise, stage->report - 1, deadline_ns, TRPI_WAITS_STAGE};
    trp_code code = stage->report == 0
                        ? trpi_fail(&err, TRP_EPROTOCOL, "reports are numbered from 1")
                        : wait_for_round(collector, stage->attempt, waiter, &err);
    if (code != TRP_OK) {
        trp_promise_fail(promise, code, err.message);
        return;
    }
    answer_others(collector);
}

void trpi_collector_drain(trpi_collector *collector, const trpi_run_drain *drain,
                          uint64_t deadline_ns, trp_promise *promise) {
    trp_error err = {0};
    trpi_waiter waiter = {promise, drain->report, deadline_ns, TRPI_WAITS_DRAIN};
    trp_code code = wait_for_round(collector, drain->attempt, waiter, &err);
    if (code != TRP_OK) {
        trp_promise_fail(promise, code, err.message);
        return;
    }
    answer_others(collector);
}

void trpi_collector_finish(trpi_collector *collector, int rank) {
    trpi_reports_finish(&collector->reports, rank);
    for (size_t i = collector->waiter_count; i-- > 0;) {
        trp_error err = {0};
        if (check_company(collector, collector->waiters[i].number, &err) != TRP_OK) {
            trp_promise_fail(collector->waiters[i].promise, err.code, err.message);
            take_waiter(collector, i);
        }
    }
}

/* ---- Deadlines ---- */

static void name_behind(const trpi_collector *collector, uint64_t number, trp_buf *text) {
    int ranks[NAMED_RANKS_MAX];
    int count = trpi_reports_behind(&collector->reports, number, ranks, NAMED_RANKS_MAX);
    trp_code code = trp_buf_printf(text, "report %" PRIu64 " waits for", number);
    for (int i = 0; code == TRP_OK && i < TRPI_MIN(count, NAMED_RANKS_MAX); i++) {
        code = trp_buf_printf(text, "%s rank %d (at report %" PRIu64 ")", i > 0 ? "," : "",
                              ranks[i], collector->reports.counts[ranks[i]]);
    }
    if (code == TRP_OK && count > NAMED_RANKS_MAX) {
        code = trp_buf_printf(text, " and %d more", count - NAMED_RANKS_MAX);
    }
    (void)code; /* a shorter text is still the error */
}

void trpi_collector_expire(trpi_collector *collector, uint64_t now_ns) {
    for (size_t i = collector->waiter_count; i-- > 0;) {
        const trpi_waiter *waiter = &collector->waiters[i];
        if (waiter->deadline_ns == 0 || waiter->deadline_ns > now_ns) {
            continue;
        }
        trp_buf text = {0};
        name_behind(collector, waiter->number, &text);
        trp_promise_fail(waiter->promise, TRP_ETIMEOUT,
                         text.size > 0 ? (const char *)text.data : "report");
        take_waiter(collector, i);
        trp_buf_release(&text);
    }
}

/* ---- Opening and closing ---- */

trp_code trpi_collector_open(trpi_collector *collector, uint64_t attempt, int world,
                             trp_error *err) {
    trpi_collector_close(collector, "another attempt begins");
    trpi_reports_release(&collector->reports);
    if (!trpi_reports_init(&collector->reports, world)) {
        return trpi_fail(err, TRP_ENOMEM, "reports of %d ranks", world);
    }
    collector->attempt = attempt;
    collector->open_ns = 0;
    collector->load_ns = 0;
    return TRP_OK;
}

void trpi_collector_close(trpi_collector *collector, const char *why) {
    collector->attempt = 0;
    collector->staged = false;
    while (collector->waiter_count > 0) {
        trp_promise_fail(collector->waiters[collector->waiter_count - 1].promise, TRP_ECANCELED,
                         why);
        collector->waiter_count--;
    }
    free_rounds(collector);
}

void trpi_collector_release(trpi_collector *collector) {
    trpi_collector_close(collector, "the run is over");
    trpi_reports_release(&collector->reports);
    free(collector->waiters);
    *collector = (trpi_collector){0};
}
