/* logs.c: troupe logs: what an actor wrote. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "actors/bin/command.h"
#include "actors/bin/units.h"
#include "actors/proc/client.h"
#include "core/base/config.h"

#define TAIL_BYTES 65536
#define FOLLOW_MS 300

static volatile sig_atomic_t is_interrupted;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    is_interrupted = 1;
}

typedef struct log_place {
    trp_actor actor;
    uint64_t node; /* whose file it is; 0 = not known yet */
    const char *stream;
    uint64_t offset, tail_bytes, tail_lines;
    uint64_t incarnation; /* 0 = all */
    bool has_printed;
} log_place;

/* ---- Printing ---- */

static void say_lost(uint64_t lost) {
    char size[32];
    if (lost > 0) {
        trpi_size_text(lost, size, sizeof(size));
        fprintf(stderr,
                "troupe logs: %s are not kept any more; on with the oldest that are "
                "(TROUPE_LOG_FILE_BYTES, TROUPE_LOG_FILES)\n",
                size);
    }
}

/* *ret_is_end: nothing was behind the place, not even lines of the other stream. */
static trp_code take(const trpi_msg *reply, log_place *place, bool *ret_is_end, trp_error *err) {
    if (reply->type == TRPI_MSG_DONE) {
        return trpi_fail(err, (trp_code)reply->done.code, "%s", reply->done.message);
    }
    if (reply->type != TRPI_MSG_LOGS_DATA) {
        return trpi_fail(err, TRP_EPROTOCOL, "the head answered with %s",
                         trpi_msg_name(reply->type));
    }
    const trpi_msg_logs_data *answer = &reply->logs_data;
    if (answer->code != TRP_OK) {
        return trpi_fail(err, (trp_code)answer->code, "%s", answer->message);
    }
    say_lost(answer->lost);
    fwrite(answer->data.data, 1, answer->data.size, stdout);
    fflush(stdout);
    *ret_is_end = answer->data.size == 0 && answer->next_offset == place->offset;
    place->offset = answer->next_offset;
    place->node = answer->node;
    place->has_printed |= answer->data.size > 0;
    return TRP_OK;
}

/* Prints what is there behind the place and moves it on. */
static trp_code print_next(trp_runtime *rt, log_place *place, bool *ret_is_end, trp_error *err) {
    trpi_client_reply *storage;
    const trpi_msg *reply;
    trpi_msg msg = {.type = TRPI_MSG_LOGS_QUERY,
                    .logs_query = {.actor = place->actor.id,
                                   .stream = place->stream,
                                   .offset = place->offset,
                                   .tail_bytes = place->tail_bytes,
                                   .tail_lines = place->tail_lines,
                                   .node = place->node,
                                   .incarnation = place->incarnation}};
    trp_code code = trpi_client_request(rt, &msg, trpi_config(TRPI_CONFIG_REQUEST_TIMEOUT_MS),
                                        &storage, &reply, err);
    if (code == TRP_OK) {
        code = take(reply, place, ret_is_end, err);
        trpi_client_reply_release(storage);
    }
    return code;
}

static trp_code print_to_end(trp_runtime *rt, log_place *place, trp_error *err) {
    trp_code code = TRP_OK;
    bool is_end = false;
    while (code == TRP_OK && !is_end && !is_interrupted) {
        code = print_next(rt, place, &is_end, err);
    }
    return code;
}

/* ---- Following ----
 *
 * An actor may go on on another node, whose log begins anew. Where it is is asked before the log is
 * read to its end: of what it wrote before it moved or died nothing comes later. */

static trp_code follow(trp_runtime *rt, log_place *place, trp_error *err) {
    while (!is_interrupted) {
        json_t *row;
        trp_code code = trpi_find_row(rt, "actors", place->actor.id, &row, err);
        if (code != TRP_OK) {
            return code;
        }
        const char *state = json_string_value(json_object_get(row, "state"));
        bool is_dead = state != NULL && strcmp(state, "dead") == 0;
        uint64_t node = (uint64_t)json_integer_value(json_object_get(row, "node"));
        json_decref(row);
        bool has_begun = place->node != 0 || node != 0 || is_dead;
        code = has_begun ? print_to_end(rt, place, err) : TRP_OK;
        bool moves = node != 0 && place->node != 0 && node != place->node;
        if (code == TRP_ENODE_DIED && moves) { /* what it had written there went with the node */
            fprintf(stderr, "troupe logs: %s\n", err->message);
            code = TRP_OK;
        }
        if (code != TRP_OK || is_dead) {
            return code;
        }
        if (moves) {
            place->node = node;
            place->offset = 0;
        } else {
            usleep(FOLLOW_MS * 1000); /* a signal ends it early */
        }
    }
    return TRP_OK;
}

/* ---- The incarnation before ---- */

static trp_code find_previous(trp_runtime *rt, log_place *place, trp_error *err) {
    json_t *row;
    trp_code code = trpi_find_row(rt, "actors", place->actor.id, &row, err);
    if (code != TRP_OK) {
        return code;
    }
    json_t *death = json_object_get(row, "death");
    place->incarnation = (uint64_t)json_integer_value(json_object_get(death, "incarnation"));
    place->node = (uint64_t)json_integer_value(json_object_get(death, "node"));
    json_decref(row);
    return place->incarnation != 0 && place->node != 0
               ? TRP_OK
               : trpi_fail(err, TRP_ENOTFOUND, "no incarnation of a%" PRIu64 " has died",
                           place->actor.id);
}

/* An empty screen would not tell that what is looked for is on another node. */
static void say_where_else(trp_runtime *rt, const log_place *place) {
    json_t *row;
    if (place->has_printed || place->incarnation != 0 ||
        trpi_find_row(rt, "actors", place->actor.id, &row, NULL) != TRP_OK) {
        return;
    }
    json_int_t before = json_integer_value(json_object_get(json_object_get(row, "death"), "node"));
    if (before != 0 && (uint64_t)before != place->node) {
        fprintf(stderr,
                "troupe logs: a%" PRIu64 " has written nothing on n%" PRIu64
                " yet; before, it ran on n%lld: --previous\n",
                place->actor.id, place->node, (long long)before);
    }
    json_decref(row);
}

/* ---- The command ---- */

typedef struct logs_flags {
    const char *address, *stream, *tail;
    bool follows, is_previous;
} logs_flags;

/* A bare number is lines, one with a unit is a size. */
static int check_flags(const logs_flags *flags, log_place *place) {
    const char *stream = flags->stream, *tail = flags->tail;
    place->stream = stream;
    place->offset = UINT64_MAX;
    place->tail_bytes = TAIL_BYTES;
    if (stream[0] != '\0' && strcmp(stream, "out") != 0 && strcmp(stream, "err") != 0) {
        return trpi_usage_error("logs", "--stream: \"%s\" is neither out nor err", stream);
    }
    bool is_size = tail != NULL && !trpi_parse_u64(tail, UINT64_MAX, &place->tail_lines);
    if (is_size && !trpi_parse_size(tail, &place->tail_bytes)) {
        return trpi_usage_error("logs",
                                "--tail: \"%s\" is neither a number of lines nor a size, as "
                                "64KiB is",
                                tail);
    }
    if (tail != NULL && !is_size && place->tail_lines == 0) {
        place->tail_bytes = 0; /* only what comes */
    }
    if (flags->follows && flags->is_previous) {
        return trpi_usage_error("logs", "--previous has ended: there is nothing to --follow");
    }
    return TRPI_EXIT_OK;
}

static trp_code print_logs(trp_runtime *rt, const logs_flags *flags, log_place *place,
                           trp_error *err) {
    struct sigaction action = {.sa_handler = on_interrupt};
    if (flags->is_previous) {
        trp_code code = find_previous(rt, place, err);
        if (code != TRP_OK) {
            return code;
        }
    }
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (flags->follows) {
        return follow(rt, place, err);
    }
    trp_code code = print_to_end(rt, place, err);
    if (code == TRP_OK) {
        say_where_else(rt, place);
    }
    return code;
}

int trpi_command_logs(int argc, char **argv) {
    logs_flags flags = {.stream = ""};
    const char *words[2];
    const trpi_option options[] = {
        TRPI_OPTION_ADDRESS(flags.address),
        {"--stream", "out|err", "only stdout or only stderr (default: both)", &flags.stream, NULL,
         NULL},
        {"--tail", "N", "the last N lines, or, with a unit, bytes (default: 64KiB)", &flags.tail,
         NULL, NULL},
        {"--follow", NULL, "go on with what comes, until the actor's end or Ctrl-C", NULL,
         &flags.follows, NULL},
        {"--previous", NULL, "what the incarnation that died last wrote", NULL, &flags.is_previous,
         NULL},
    };
    const trpi_usage usage = {
        .command = "logs",
        .arguments = "ACTOR",
        .summary = "Prints what an actor (7, a7 or its name) wrote.",
        .details =
            "Kept on its node: TROUPE_LOG_FILES files of TROUPE_LOG_FILE_BYTES, and after its "
            "end as\nlong as TROUPE_LOG_DEAD_BYTES hold it. All incarnations on that node "
            "are in one log.",
        .example = "troupe logs a7 --tail 20 --follow",
        .options = options,
        .option_count = TRPI_COUNTOF(options),
        .arguments_min = 1,
        .arguments_max = 1};
    trp_runtime *rt = NULL;
    trp_error err;
    log_place place = {0};
    int exit_code = TRPI_EXIT_OK;
    if (!trpi_options_parse(&usage, argc, argv, words, &exit_code)) {
        return exit_code;
    }
    exit_code = check_flags(&flags, &place);
    if (exit_code != TRPI_EXIT_OK) {
        return exit_code;
    }
    trp_code code = trpi_connect(flags.address, &rt, &err);
    if (code == TRP_OK) {
        code = trpi_find_actor(rt, words[0], &place.actor, &err);
    }
    if (code == TRP_OK) {
        code = print_logs(rt, &flags, &place, &err);
    }
    trpi_client_close(&rt, true);
    return code == TRP_OK ? TRPI_EXIT_OK : trpi_failed(usage.command, &err);
}
