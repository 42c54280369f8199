/* job_output.c: what a job writes, as it comes. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "actors/bin/command.h"
#include "actors/proc/client.h"
#include "core/base/config.h"

enum { FOLLOW_MS = 100 };

/* Each stream is asked for on its own, so that each goes where it belongs. */
typedef struct job_stream {
    const char *name;
    FILE *out;
    uint64_t offset, tail_bytes;
} job_stream;

static trp_code take_lines(const trpi_msg *reply, job_stream *stream, size_t *ret_size,
                           trp_error *err) {
    if (reply->type == TRPI_MSG_DONE) {
        return trpi_fail(err, (trp_code)reply->done.code, "%s", reply->done.message);
    }
    if (reply->type != TRPI_MSG_LOGS_DATA) {
        return trpi_fail(err, TRP_EPROTOCOL, "the head answered with %s",
                         trpi_msg_name(reply->type));
    }
    if (reply->logs_data.code == TRP_ENOTFOUND) {
        *ret_size = 0; /* it has not written anything yet */
        return TRP_OK;
    }
    if (reply->logs_data.code != TRP_OK) {
        return trpi_fail(err, (trp_code)reply->logs_data.code, "%s", reply->logs_data.message);
    }
    *ret_size = reply->logs_data.data.size;
    fwrite(reply->logs_data.data.data, 1, *ret_size, stream->out);
    fflush(stream->out);
    stream->offset = reply->logs_data.next_offset;
    stream->tail_bytes = 0;
    return TRP_OK;
}

/* Prints one answer; *ret_moved: there was something. */
static trp_code print_some(trp_runtime *rt, uint64_t job, job_stream *stream, bool *ret_moved,
                           trp_error *err) {
    trpi_client_reply *storage;
    const trpi_msg *reply;
    size_t size = 0;
    uint64_t before = stream->offset;
    trpi_msg msg = {.type = TRPI_MSG_LOGS_QUERY,
                    .logs_query = {.job = job,
                                   .stream = stream->name,
                                   .offset = stream->offset,
                                   .tail_bytes = stream->tail_bytes}};
    trp_code code = trpi_client_request(rt, &msg, trpi_config(TRPI_CONFIG_REQUEST_TIMEOUT_MS),
                                        &storage, &reply, err);
    if (code == TRP_OK) {
        code = take_lines(reply, stream, &size, err);
        trpi_client_reply_release(storage);
    }
    /* Lines of the other stream move the offset, too. */
    *ret_moved |= size > 0 || (before != UINT64_MAX && stream->offset != before);
    return code;
}

static trp_code print_all(trp_runtime *rt, uint64_t job, job_stream streams[2], trp_error *err) {
    trp_code code = TRP_OK;
    for (bool moved = true; moved && code == TRP_OK;) {
        moved = false;
        for (int i = 0; i < 2 && code == TRP_OK; i++) {
            code = print_some(rt, job, &streams[i], &moved, err);
        }
    }
    return code;
}

trp_code trpi_job_print(trp_runtime *rt, uint64_t job, uint64_t tail_bytes, bool follows,
                        volatile sig_atomic_t *interrupted, json_t **ret_row, trp_error *err) {
    uint64_t offset = tail_bytes == UINT64_MAX ? 0 : UINT64_MAX;
    job_stream streams[2] = {{"out", stdout, offset, tail_bytes},
                             {"err", stderr, offset, tail_bytes}};
    for (;;) {
        json_t *row;
        trp_code code = trpi_find_job(rt, job, &row, err);
        if (code != TRP_OK) {
            return code;
        }
        /* Its end is known before its output is read, so that nothing of this comes after. */
        bool is_over = trpi_job_is_over(row);
        code = json_integer_value(json_object_get(row, "node")) != 0
                   ? print_all(rt, job, streams, err)
                   : TRP_OK; /* it has not begun, so there is nobody to ask */
        if (code != TRP_OK || is_over || !follows || *interrupted) {
            *ret_row = row;
            return code;
        }
        json_decref(row);
        usleep(FOLLOW_MS * 1000); /* a signal ends it early */
    }
}
