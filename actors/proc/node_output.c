/* What the workers write: from their pipes into log files, and in batches to the head. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "actors/proc/node_parts.h"
#include "actors/proc/output_log.h"
#include "core/base/config.h"
#include "core/base/log.h"
#include "core/net/clock.h"

#define LAST_WORDS_MAX 32 /* chunks read of a dead worker: a grandchild may write for ever */
#define QUERY_BYTES ((size_t)256 * 1024) /* of one answer */

static const char marks[2] = {'o', 'e'};

/* ---- The file ---- */

static uint64_t count_lines(const char *data, size_t size) {
    uint64_t count = 0;
    const char *end = data + size;
    while (data < end && (data = memchr(data, '\n', (size_t)(end - data))) != NULL) {
        count++;
        data++;
    }
    return count;
}

static trp_code note_life(trpi_node_worker *worker, const trpi_output_log *log, trp_error *err) {
    char note[128];
    trpi_format(note, sizeof note, "incarnation %llu, pid %d\n",
                (unsigned long long)worker->incarnation, (int)worker->pid);
    trp_code code = trpi_output_log_begin(log, worker->incarnation, err);
    if (code == TRP_OK) {
        code = trpi_output_log_append(log, '-', trp_bytes_of(note), err);
    }
    worker->log_noted = code == TRP_OK;
    return code;
}

static trp_code note_lost(trpi_node_worker *worker, const trpi_output_log *log, trp_error *err) {
    char note[128];
    trpi_format(note, sizeof note, "%llu lines are missing here: this file could not be written\n",
                (unsigned long long)worker->log_lost);
    trp_code code = trpi_output_log_append(log, '-', trp_bytes_of(note), err);
    worker->log_lost = code == TRP_OK ? 0 : worker->log_lost;
    return code;
}

static void write_log(trpi_node *node, trpi_node_worker *worker, int stream, trp_bytes lines) {
    char path[256];
    trp_error err = {0};
    trp_code code = TRP_OK;
    trpi_node_log_path(node, false, worker->actor, path, sizeof path);
    trpi_output_log log = trpi_node_log(path);
    if (!worker->log_noted) {
        trpi_node_log_lives(node, worker->actor);
        code = note_life(worker, &log, &err);
    }
    if (code == TRP_OK && worker->log_lost > 0) {
        code = note_lost(worker, &log, &err);
    }
    if (code == TRP_OK) {
        code = trpi_output_log_append(&log, marks[stream], lines, &err);
    }
    if (code == TRP_OK) {
        node->log_failing = false;
        return;
    }
    worker->log_lost += count_lines(lines.data, lines.size);
    if (!node->log_failing) {
        node->log_failing = true; /* once, and not for every line of a full disk */
        trpi_log(TRPI_ERROR, "log_lost", "actor=%llu error=\"%s\"",
                 (unsigned long long)worker->actor, err.message);
    }
}

/* ---- Batches ---- */

/* How many bytes of whole lines fit into `room`. */
static size_t whole_lines(trp_bytes lines, size_t room) {
    if (lines.size <= room) {
        return lines.size;
    }
    const char *last = memrchr(lines.data, '\n', room);
    return last ? (size_t)(last + 1 - (const char *)lines.data) : 0;
}

static void enqueue_flush(trpi_node *node, trpi_node_worker *worker) {
    if (!worker->in_flush) {
        worker->in_flush = true;
        TAILQ_INSERT_TAIL(&node->flush, worker, flush);
    }
    if (!node->flush_due) {
        node->flush_due = true;
        trpi_node_timer(node, TRPI_TIMER_FLUSH, 0,
                        trpi_deadline_ns(trpi_config(TRPI_CONFIG_LOG_FLUSH_MS)));
    }
}

static void batch_lines(trpi_node *node, trpi_node_worker *worker, int stream, trp_bytes lines) {
    trp_buf *batch = &worker->batch[stream];
    size_t max = trpi_config(TRPI_CONFIG_LOG_BATCH_BYTES);
    size_t all_max = trpi_config(TRPI_CONFIG_LOG_BATCHES_BYTES);
    size_t room =
        TRPI_MIN(max - TRPI_MIN(max, batch->size), all_max - TRPI_MIN(all_max, node->flush_bytes));
    /* After the first line that is left out so are all others of this batch: order is kept. */
    size_t fit = worker->dropped[stream] ? 0 : whole_lines(lines, room);
    if (fit > 0 && trp_buf_append(batch, lines.data, fit) != TRP_OK) {
        fit = 0;
    }
    node->flush_bytes += fit;
    worker->dropped[stream] += count_lines((const char *)lines.data + fit, lines.size - fit);
    enqueue_flush(node, worker);
}

static void take_lines(trpi_node *node, trpi_node_worker *worker, int stream) {
    trp_bytes lines = trp_buf_bytes(&node->lines);
    if (lines.size == 0 || worker->actor == 0) {
        return;
    }
    write_log(node, worker, stream, lines);
    if (worker->job != 0) {
        batch_lines(node, worker, stream, lines);
    }
}

static void say_batch(trpi_node *node, trpi_node_worker *worker, int stream) {
    trpi_msg msg = {.type = TRPI_MSG_LOG_LINES,
                    .log_lines = {.job = worker->job,
                                  .actor = worker->actor,
                                  .node = node->id,
                                  .pid = worker->pid,
                                  .label = worker->label,
                                  .is_stderr = stream == 1,
                                  .dropped = worker->dropped_before[stream],
                                  .text = trp_buf_bytes(&worker->batch[stream])}};
    if (worker->batch[stream].size > 0 || worker->dropped_before[stream] > 0) {
        trpi_node_say(node, &msg);
        trp_buf_release(&worker->batch[stream]);
    }
    worker->dropped_before[stream] = worker->dropped[stream];
    worker->dropped[stream] = 0;
}

static void flush_worker(trpi_node *node, trpi_node_worker *worker) {
    worker->in_flush = false;
    TAILQ_REMOVE(&node->flush, worker, flush);
    for (int i = 0; i < 2; i++) {
        say_batch(node, worker, i);
    }
}

void trpi_node_output_flush(trpi_node *node) {
    node->flush_due = false;
    node->flush_bytes = 0;
    trpi_node_worker *last = TAILQ_LAST(&node->flush, trpi_worker_list), *worker = NULL;
    while (last && worker != last) {
        worker = TAILQ_FIRST(&node->flush);
        flush_worker(node, worker);
        if (worker->dropped_before[0] > 0 || worker->dropped_before[1] > 0) {
            enqueue_flush(node, worker); /* said with the next lines, or alone if none come */
        }
    }
}

/* ---- Pipes ---- */

void trpi_node_output_start(trpi_node *node, trpi_node_worker *worker) {
    trp_error err = {0};
    for (int i = 0; i < 2; i++) {
        if (worker->pipes[i] >= 0 &&
            trpi_node_watch_fd(node, worker->pipes[i],
                               i == 0 ? TRPI_SOURCE_STDOUT : TRPI_SOURCE_STDERR, worker->token,
                               &err) != TRP_OK) {
            trpi_log(TRPI_ERROR, "output_lost", "actor=%llu error=\"%s\"",
                     (unsigned long long)worker->actor, err.message);
        }
    }
}

/* Reads once; false when there is nothing (more). */
static bool read_once(trpi_node *node, trpi_node_worker *worker, int stream) {
    if (worker->pipes[stream] < 0) {
        return false;
    }
    ssize_t n = read(worker->pipes[stream], node->chunk, TRPI_CHUNK_BYTES);
    if (n < 0) {
        return errno == EINTR;
    }
    trp_buf_clear(&node->lines);
    if (n == 0) {
        trpi_node_unwatch_fd(node, &worker->pipes[stream]);
        trpi_output_finish(&worker->streams[stream], &node->lines);
    } else {
        trpi_output_feed(&worker->streams[stream], (trp_bytes){node->chunk, (size_t)n},
                         &node->lines);
    }
    take_lines(node, worker, stream);
    return n > 0;
}

void trpi_node_output_read(trpi_node *node, trpi_node_worker *worker, int stream) {
    (void)read_once(node, worker, stream);
}

void trpi_node_output_drain(trpi_node *node, trpi_node_worker *worker) {
    for (int i = 0; i < 2; i++) {
        for (int chunks = 0; chunks < LAST_WORDS_MAX && read_once(node, worker, i); chunks++) {
        }
    }
}

void trpi_node_output_note(trpi_node *node, trpi_node_worker *worker, trp_bytes lines) {
    trpi_output *stream = &worker->streams[1];
    trp_buf_clear(&node->lines);
    if (stream->partial.size > 0) {
        trpi_output_feed(stream, trp_bytes_of("\n"), &node->lines);
    }
    trpi_output_feed(stream, lines, &node->lines);
    take_lines(node, worker, 1);
}

void trpi_node_output_end(trpi_node *node, trpi_node_worker *worker) {
    /* What it wrote before its death is in the pipes by now: empty is enough, and the end of file
     * would have to wait for whoever else still holds a pipe. */
    trpi_node_output_drain(node, worker);
    for (int i = 0; i < 2; i++) {
        trpi_node_unwatch_fd(node, &worker->pipes[i]);
        trp_buf_clear(&node->lines);
        trpi_output_finish(&worker->streams[i], &node->lines);
        take_lines(node, worker, i);
    }
    if (worker->log_noted) {
        trpi_node_log_ends(node, false, worker->actor);
    }
    if (worker->in_flush) {
        flush_worker(node, worker);
        say_batch(node, worker, 0); /* what was left out at the very end */
        say_batch(node, worker, 1);
    }
}

/* ---- Queries ---- */

void trpi_node_logs_query(trpi_node *node, const trpi_msg_logs_query *query) {
    char path[256];
    trp_error err = {0};
    trp_buf data = {0};
    trpi_output_answer answer = {.next_offset = query->offset == UINT64_MAX ? 0 : query->offset};
    trpi_output_query ask = {.stream = query->stream,
                             .offset = query->offset,
                             .tail_bytes = query->tail_bytes,
                             .bytes_max = QUERY_BYTES,
                             .tail_lines = query->tail_lines,
                             .incarnation = query->incarnation};
    bool lives = trpi_map_get(&node->actors, query->actor) != NULL;
    trpi_node_log_path(node, false, query->actor, path, sizeof path);
    if (query->actor == 0) {
        lives = trpi_jobs_log(node, query->job, path, sizeof path);
    }
    trpi_output_log log = trpi_node_log(path);
    trp_code code = trpi_output_log_read(&log, &ask, &data, &answer, &err);
    if (code == TRP_ENOTFOUND && lives && query->incarnation == 0) {
        code = TRP_OK; /* lives here, and has written nothing yet */
    } else if (code == TRP_ENOTFOUND && query->incarnation != 0) {
        trpi_fail(&err, code, "incarnation %llu of a%llu has written nothing on node n%llu",
                  (unsigned long long)query->incarnation, (unsigned long long)query->actor,
                  (unsigned long long)node->id);
    } else if (code == TRP_ENOTFOUND) {
        trpi_fail(&err, code, "%s%llu has written nothing on node n%llu",
                  query->actor ? "actor a" : "job j",
                  (unsigned long long)(query->actor ? query->actor : query->job),
                  (unsigned long long)node->id);
    }
    trpi_msg msg = {.type = TRPI_MSG_LOGS_DATA,
                    .logs_data = {.request = query->request,
                                  .client = query->client,
                                  .code = code,
                                  .message = code == TRP_OK ? "" : err.message,
                                  .next_offset = answer.next_offset,
                                  .data = trp_buf_bytes(&data),
                                  .node = node->id,
                                  .lost = answer.lost}};
    trpi_node_say(node, &msg);
    trp_buf_release(&data);
}
