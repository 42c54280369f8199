/* jobs.c: troupe jobs: what was submitted, and what became of it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/bin/command.h"
#include "actors/bin/rows.h"
#include "actors/proc/client.h"
#include "core/base/config.h"

#define TAIL_BYTES 65536

static volatile sig_atomic_t is_interrupted;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    is_interrupted = 1;
}

/* ---- What submit needs, too ---- */

bool trpi_parse_job(const char *word, uint64_t *ret_job) {
    return trpi_parse_u64(word + (word[0] == 'j'), UINT64_MAX, ret_job) && *ret_job != 0;
}

trp_code trpi_find_job(trp_runtime *rt, uint64_t job, json_t **ret_row, trp_error *err) {
    char what[32];
    json_t *rows;
    trpi_format(what, sizeof(what), "jobs/%" PRIu64, job);
    trp_code code = trpi_query(rt, what, &rows, err);
    if (code != TRP_OK) {
        return code;
    }
    *ret_row = json_incref(json_array_get(rows, 0));
    json_decref(rows);
    return *ret_row != NULL
               ? TRP_OK
               : trpi_fail(err, TRP_ENOTFOUND,
                           "there is no job j%" PRIu64 " (troupe jobs lists them)", job);
}

bool trpi_job_is_over(json_t *row) {
    const char *state = json_string_value(json_object_get(row, "state"));
    return state != NULL && strcmp(state, "PENDING") != 0 && strcmp(state, "RUNNING") != 0;
}

int trpi_job_exit_code(json_t *row) {
    const char *state = json_string_value(json_object_get(row, "state"));
    int exit_code = (int)json_integer_value(json_object_get(row, "exit_code"));
    int signal_number = (int)json_integer_value(json_object_get(row, "signal"));
    if (signal_number != 0) {
        return 128 + signal_number;
    }
    bool succeeded = state != NULL && strcmp(state, "SUCCEEDED") == 0;
    return exit_code != 0 || succeeded ? exit_code : TRPI_EXIT_FAILED;
}

/* ---- List ---- */

static const trpi_column columns[] = {
    {"JOB", "id", "j"},
    {"STATE", "state", NULL},
    {"NAME", "name", NULL},
    {"EXIT", "exit", NULL},
    {"DURATION", "duration_s", NULL, TRPI_SECONDS},
    {"NODE", "node", "n"},
    {"PID", "pid", NULL},
    {"ACTORS", "actors", NULL},
    {"COMMAND", "command", NULL},
    {"REASON", "reason", NULL},
};

/* Members that only the table shows. */
static void prepare(json_t *row) {
    char text[512];
    json_t *word;
    size_t i, used = 0;
    if (trpi_job_is_over(row)) {
        json_object_set_new(row, "exit", json_integer(trpi_job_exit_code(row)));
    }
    text[0] = '\0';
    json_array_foreach(json_object_get(row, "argv"), i, word) {
        trpi_format(text + used, sizeof(text) - used, "%s%s", i ? " " : "",
                    json_string_value(word) ? json_string_value(word) : "");
        used = strlen(text);
    }
    json_object_set_new(row, "command", json_string(text));
}

/* Drivers that were started by hand are jobs as well, and stay among `troupe list jobs`. */
static json_t *submitted_of(json_t *rows) {
    json_t *submitted = json_array(), *row;
    size_t i;
    json_array_foreach(rows, i, row) {
        if (json_is_true(json_object_get(row, "submitted"))) {
            json_array_append(submitted, row);
        }
    }
    return submitted;
}

static void print_rows(json_t *rows, bool is_json) {
    size_t i;
    json_t *row;
    if (is_json) {
        trpi_json_print(stdout, rows);
        return;
    }
    json_array_foreach(rows, i, row) {
        prepare(row);
    }
    trpi_rows_print(stdout, rows, columns, TRPI_COUNTOF(columns));
}

static trp_code list(trp_runtime *rt, bool is_json, trp_error *err) {
    json_t *rows;
    trp_code code = trpi_query(rt, "jobs", &rows, err);
    if (code == TRP_OK) {
        json_t *submitted = submitted_of(rows);
        print_rows(submitted, is_json);
        json_decref(submitted);
        json_decref(rows);
    }
    return code;
}

/* ---- get, stop, logs ---- */

static trp_code get(trp_runtime *rt, uint64_t job, bool is_json, trp_error *err) {
    json_t *row;
    trp_code code = trpi_find_job(rt, job, &row, err);
    if (code == TRP_OK && is_json) {
        trpi_json_print(stdout, row);
    } else if (code == TRP_OK) {
        json_t *rows = json_array();
        json_array_append(rows, row);
        print_rows(rows, false);
        json_decref(rows);
    }
    if (code == TRP_OK) {
        json_decref(row);
    }
    return code;
}

/* The head's answer comes when all of the job is gone: within its grace, and a little more. */
static trp_code stop(trp_runtime *rt, uint64_t job, uint64_t grace_ms, trp_error *err) {
    trpi_client_reply *storage;
    const trpi_msg *reply;
    uint64_t request_ms = trpi_config(TRPI_CONFIG_REQUEST_TIMEOUT_MS);
    trpi_msg msg = {.type = TRPI_MSG_JOB_STOP, .job_stop = {.job = job, .grace_ms = grace_ms}};
    trp_code code = trpi_client_request(rt, &msg, grace_ms + request_ms, &storage, &reply, err);
    if (code != TRP_OK) {
        return code;
    }
    if (reply->type != TRPI_MSG_DONE) {
        code =
            trpi_fail(err, TRP_EPROTOCOL, "the head answered with %s", trpi_msg_name(reply->type));
    } else if (reply->done.code != TRP_OK) {
        code = trpi_fail(err, (trp_code)reply->done.code, "%s", reply->done.message);
    } else {
        printf("stopped j%" PRIu64 "\n", job);
    }
    trpi_client_reply_release(storage);
    return code;
}

static trp_code logs(trp_runtime *rt, uint64_t job, uint64_t tail_bytes, bool follows,
                     trp_error *err) {
    json_t *row = NULL;
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    trp_code code = trpi_job_print(rt, job, tail_bytes, follows, &is_interrupted, &row, err);
    if (row != NULL) {
        json_decref(row);
    }
    return code;
}

/* ---- The command ---- */

typedef struct jobs_flags {
    const char *address, *format, *tail, *grace;
    bool follows, is_json;
    uint64_t tail_bytes, grace_ms;
} jobs_flags;

static int check_flags(jobs_flags *flags) {
    if (!trpi_parse_format("jobs", flags->format, &flags->is_json)) {
        return TRPI_EXIT_USAGE;
    }
    flags->tail_bytes = TAIL_BYTES;
    if (flags->tail != NULL && !trpi_parse_size(flags->tail, &flags->tail_bytes)) {
        return trpi_usage_error("jobs", "--tail: \"%s\" is no size, as 64KiB is", flags->tail);
    }
    flags->grace_ms = trpi_config(TRPI_CONFIG_STOP_GRACE_MS);
    return trpi_option_seconds("jobs", "--grace", flags->grace, &flags->grace_ms) ? TRPI_EXIT_OK
                                                                                  : TRPI_EXIT_USAGE;
}

static int check_words(const char *const *words, uint64_t *ret_job) {
    static const char *const verbs[] = {"get", "logs", "stop"};
    bool known = false;
    if (words[0] == NULL) {
        return TRPI_EXIT_OK;
    }
    for (size_t i = 0; i < TRPI_COUNTOF(verbs); i++) {
        known |= strcmp(words[0], verbs[i]) == 0;
    }
    if (!known) {
        const char *near = trpi_nearest(words[0], verbs, TRPI_COUNTOF(verbs));
        return trpi_usage_error("jobs", "what is \"%s\"? %s%s", words[0],
                                near ? "did you mean " : "it is get, logs or stop",
                                near ? near : "");
    }
    if (words[1] == NULL) {
        return trpi_usage_error("jobs", "%s needs a job: troupe jobs %s j1", words[0], words[0]);
    }
    if (!trpi_parse_job(words[1], ret_job)) {
        return trpi_usage_error("jobs", "\"%s\" is no job; they are called j1, j2, ...", words[1]);
    }
    return TRPI_EXIT_OK;
}

static trp_code run(trp_runtime *rt, const char *verb, uint64_t job, const jobs_flags *flags,
                    trp_error *err) {
    if (verb == NULL) {
        return list(rt, flags->is_json, err);
    }
    if (strcmp(verb, "get") == 0) {
        return get(rt, job, flags->is_json, err);
    }
    if (strcmp(verb, "stop") == 0) {
        return stop(rt, job, flags->grace_ms, err);
    }
    return logs(rt, job, flags->tail_bytes, flags->follows, err);
}

int trpi_command_jobs(int argc, char **argv) {
    jobs_flags flags = {.format = "table"};
    const char *words[3];
    const trpi_option options[] = {
        TRPI_OPTION_ADDRESS(flags.address),
        TRPI_OPTION_FORMAT(flags.format),
        {"--tail", "SIZE", "logs: begin this far before the end (default: 64KiB)", &flags.tail,
         NULL, NULL},
        {"--follow", NULL, "logs: go on with what comes, until its end or Ctrl-C", NULL,
         &flags.follows, NULL},
        {"--grace", "SECONDS", "stop: SIGKILL follows SIGTERM after this (default: 30)",
         &flags.grace, NULL, NULL},
    };
    const trpi_usage usage = {.command = "jobs",
                              .arguments = "[get|logs|stop JOB]",
                              .summary = "Lists submitted jobs, or shows, prints or stops one.",
                              .details = "stop: SIGTERM to all of the job's processes on its node; "
                                         "its actors end with its driver.",
                              .example = "troupe jobs logs j1 --follow",
                              .options = options,
                              .option_count = TRPI_COUNTOF(options),
                              .arguments_max = 2};
    trp_runtime *rt = NULL;
    trp_error err;
    uint64_t job = 0;
    int exit_code = TRPI_EXIT_OK;
    if (!trpi_options_parse(&usage, argc, argv, words, &exit_code)) {
        return exit_code;
    }
    exit_code = check_flags(&flags);
    if (exit_code == TRPI_EXIT_OK) {
        exit_code = check_words(words, &job);
    }
    if (exit_code != TRPI_EXIT_OK) {
        return exit_code;
    }
    trp_code code = trpi_connect(flags.address, &rt, &err);
    if (code == TRP_OK) {
        code = run(rt, words[0], job, &flags, &err);
    }
    trpi_client_close(&rt, true);
    return code == TRP_OK ? TRPI_EXIT_OK : trpi_failed(usage.command, &err);
}
