#include "trainer/run/journal.h"

#include <stdlib.h>
#include <troupe/train.h>

/* ---- The list ---- */

static void drop_first(trpi_journal *journal) {
    trpi_journal_entry *entry = journal->first;
    journal->first = entry->next;
    if (journal->first == NULL) {
        journal->last = NULL;
    }
    journal->reports -= entry->is_report;
    trp_buf_release(&entry->packed);
    free(entry);
}

static void forget_until(trpi_journal *journal, uint64_t number) {
    while (journal->first != NULL && journal->first->number <= number) {
        drop_first(journal);
    }
}

static void append(trpi_journal *journal, trpi_journal_entry *entry) {
    entry->number = ++journal->numbered;
    journal->reports += entry->is_report;
    if (journal->last != NULL) {
        journal->last->next = entry;
    } else {
        journal->first = entry;
    }
    journal->last = entry;
}

/* ---- Answers ---- */

static trp_code pack_answer(const trpi_journal *journal, trp_buf *out, trp_error *err) {
    trpi_run_packed items[TRPI_JOURNAL_ANSWER_MAX];
    trpi_run_events answer = {.last = journal->asked_after, .events = items};
    const trpi_journal_entry *entry = journal->first;
    for (; entry != NULL && answer.events_count < TRPI_COUNTOF(items); entry = entry->next) {
        items[answer.events_count++].bytes = trp_buf_bytes(&entry->packed);
        answer.last = entry->number;
    }
    if (entry == NULL) {
        answer.result = trp_buf_bytes(&journal->result);
    }
    return trpi_pack_events(&answer, out, err);
}

static void answer_if_any(trpi_journal *journal) {
    if (journal->asking == NULL || (journal->first == NULL && journal->result.size == 0)) {
        return;
    }
    trp_buf out = {0};
    trp_error err = {0};
    trp_promise *promise = journal->asking;
    journal->asking = NULL;
    if (pack_answer(journal, &out, &err) == TRP_OK) {
        trp_promise_resolve(promise, trp_buf_bytes(&out));
    } else {
        trp_promise_fail(promise, err.code, err.message);
    }
    trp_buf_release(&out);
}

void trpi_journal_ask(trpi_journal *journal, uint64_t after, trp_promise *promise) {
    if (journal->asking != NULL) {
        trp_promise_fail(journal->asking, TRP_ECANCELED, "somebody else asks for the events now");
    }
    journal->asking = promise;
    journal->asked_after = after;
    forget_until(journal, after);
    answer_if_any(journal);
}

trp_code trpi_journal_add(trpi_journal *journal, const trpi_run_event *event, trp_error *err) {
    bool is_report = event->kind == TRP_TRAIN_REPORT;
    if (is_report && journal->reports >= TRPI_JOURNAL_REPORTS_MAX) {
        return TRP_OK;
    }
    trpi_journal_entry *entry = calloc(1, sizeof(*entry));
    if (entry == NULL) {
        return trpi_fail(err, TRP_ENOMEM, "event");
    }
    entry->is_report = is_report;
    trp_code code = trpi_pack_event(event, &entry->packed, err);
    if (code != TRP_OK) {
        trp_buf_release(&entry->packed);
        free(entry);
        return code;
    }
    append(journal, entry);
    answer_if_any(journal);
    return TRP_OK;
}

trp_code trpi_journal_end(trpi_journal *journal, const trpi_run_result *result, trp_error *err) {
    trp_code code = trpi_pack_result(result, &journal->result, err);
    if (code == TRP_OK) {
        answer_if_any(journal);
    }
    return code;
}

void trpi_journal_release(trpi_journal *journal) {
    while (journal->first != NULL) {
        drop_first(journal);
    }
    if (journal->asking != NULL) {
        trp_promise_fail(journal->asking, TRP_ECANCELED, "the trainer ends");
    }
    trp_buf_release(&journal->result);
    *journal = (trpi_journal){0};
}
