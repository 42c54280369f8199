/* logs.c: troupe logs: what an actor wrote. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "actors/bin/command.h"
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
    const char *stream;
    uint64_t offset, tail_bytes;
} log_place;

/* Prints what is there behind the place and moves it on. */
static trp_code print_next(trp_runtime *rt, log_place *place, bool *ret_is_end, trp_error *err) {
    trpi_client_reply *storage;
    const trpi_msg *reply;
    trpi_msg msg = {.type = TRPI_MSG_LOGS_QUERY,
                    .logs_query = {.actor = place->actor.id,
                                   .stream = place->stream,
                                   .offset = place->offset,
                                   .tail_bytes = place->tail_bytes}};
    trp_code code = trpi_client_request(rt, &msg, trpi_config(TRPI_CONFIG_REQUEST_TIMEOUT_MS),
                                        &storage, &reply, err);
    if (code != TRP_OK) {
        return code;
    }
    if (reply->type == TRPI_MSG_LOGS_DATA && reply->logs_data.code == TRP_OK) {
        fwrite(reply->logs_data.data.data, 1, reply->logs_data.data.size, stdout);
        fflush(stdout);
        *ret_is_end = reply->logs_data.data.size == 0;
        place->offset = reply->logs_data.next_offset;
        place->tail_bytes = 0;
    } else if (reply->type == TRPI_MSG_LOGS_DATA) {
        code = trpi_fail(err, (trp_code)reply->logs_data.code, "%s", reply->logs_data.message);
    } else if (reply->type == TRPI_MSG_DONE) {
        code = trpi_fail(err, (trp_code)reply->done.code, "%s", reply->done.message);
    } else {
        code =
            trpi_fail(err, TRP_EPROTOCOL, "the head answered with %s", trpi_msg_name(reply->type));
    }
    trpi_client_reply_release(storage);
    return code;
}

static trp_code print_all(trp_runtime *rt, log_place *place, bool follows, trp_error *err) {
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    while (!is_interrupted) {
        bool is_end = false;
        trp_code code = print_next(rt, place, &is_end, err);
        if (code != TRP_OK || (is_end && !follows)) {
            return code;
        }
        if (is_end) {
            usleep(FOLLOW_MS * 1000); /* a signal ends it early */
        }
    }
    return TRP_OK;
}

static int check_flags(const char *stream, const char *tail, log_place *place) {
    place->stream = stream;
    place->offset = UINT64_MAX;
    place->tail_bytes = TAIL_BYTES;
    if (stream[0] != '\0' && strcmp(stream, "out") != 0 && strcmp(stream, "err") != 0) {
        return trpi_usage_error("logs", "--stream: \"%s\" is neither out nor err", stream);
    }
    if (tail != NULL && !trpi_parse_size(tail, &place->tail_bytes)) {
        return trpi_usage_error("logs", "--tail: \"%s\" is no size", tail);
    }
    return TRPI_EXIT_OK;
}

int trpi_command_logs(int argc, char **argv) {
    const char *address = NULL, *stream = "", *tail = NULL, *words[2];
    bool follows = false;
    const trpi_option options[] = {
        TRPI_OPTION_ADDRESS(address),
        {"--stream", "out|err", "only stdout or only stderr (default: both)", &stream, NULL},
        {"--tail", "SIZE", "begin this far before the end (default: 64KiB)", &tail, NULL},
        {"--follow", NULL, "go on with what comes, until Ctrl-C", NULL, &follows},
    };
    const trpi_usage usage = {.command = "logs",
                              .arguments = "ACTOR",
                              .summary = "Prints what an actor (7, a7 or its name) wrote.",
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
    exit_code = check_flags(stream, tail, &place);
    if (exit_code != TRPI_EXIT_OK) {
        return exit_code;
    }
    trp_code code = trpi_connect(address, &rt, &err);
    if (code == TRP_OK) {
        code = trpi_find_actor(rt, words[0], &place.actor, &err);
    }
    if (code == TRP_OK) {
        code = print_all(rt, &place, follows, &err);
    }
    trpi_client_close(&rt, true);
    return code == TRP_OK ? TRPI_EXIT_OK : trpi_failed(usage.command, &err);
}
