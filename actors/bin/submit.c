/* submit.c: troupe submit: a program that runs on the cluster as a job. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/bin/command.h"
#include "actors/proc/client.h"
#include "actors/proc/client_package.h"
#include "core/base/config.h"

static volatile sig_atomic_t is_interrupted;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    is_interrupted = 1;
}

typedef struct submission {
    const char *address, *working_dir, *name;
    trpi_words env;
    const char **argv; /* ends with NULL */
    bool no_wait;
} submission;

/* ---- Telling the head ---- */

static trpi_text *texts_of(const char *const *items, size_t count) {
    trpi_text *texts = trpi_alloc((count + 1) * sizeof(*texts));
    for (size_t i = 0; i < count; i++) {
        texts[i].value = items[i];
    }
    return texts;
}

static trp_code take_answer(const trpi_msg *reply, uint64_t *ret_job, trp_error *err) {
    if (reply->type == TRPI_MSG_DONE) {
        return trpi_fail(err, (trp_code)reply->done.code, "%s", reply->done.message);
    }
    if (reply->type != TRPI_MSG_JOBBED) {
        return trpi_fail(err, TRP_EPROTOCOL, "the head answered with %s",
                         trpi_msg_name(reply->type));
    }
    if (reply->jobbed.code != TRP_OK) {
        return trpi_fail(err, (trp_code)reply->jobbed.code, "%s", reply->jobbed.message);
    }
    *ret_job = reply->jobbed.job;
    return TRP_OK;
}

static trp_code say(trp_runtime *rt, const submission *what, const char *package, uint64_t *ret_job,
                    trp_error *err) {
    trpi_client_reply *storage;
    const trpi_msg *reply;
    char cwd[PATH_MAX] = "";
    size_t count = 0;
    if (package[0] == '\0' && getcwd(cwd, sizeof(cwd)) == NULL) {
        return trpi_fail(err, TRP_EIO, "working directory: %s", strerror(errno));
    }
    while (what->argv[count] != NULL) {
        count++;
    }
    trpi_msg msg = {.type = TRPI_MSG_JOB_SUBMIT,
                    .job_submit = {.name = what->name ? what->name : "",
                                   .argv = texts_of(what->argv, count),
                                   .argv_count = count,
                                   .env = texts_of(what->env.items, what->env.count),
                                   .env_count = what->env.count,
                                   .cwd = cwd,
                                   .package = package}};
    trp_code code = trpi_client_request(rt, &msg, trpi_config(TRPI_CONFIG_REQUEST_TIMEOUT_MS),
                                        &storage, &reply, err);
    if (code == TRP_OK) {
        code = take_answer(reply, ret_job, err);
        trpi_client_reply_release(storage);
    }
    free(msg.job_submit.argv);
    free(msg.job_submit.env);
    return code;
}

/* Brings the files first, so that the job never waits for us. */
static trp_code submit(trp_runtime *rt, const submission *what, uint64_t *ret_job, trp_error *err) {
    trpi_package package = {0};
    trp_code code = TRP_OK;
    if (what->working_dir != NULL) {
        code = trpi_package_of_dir(what->working_dir, &package, err);
    }
    if (code == TRP_OK && what->working_dir != NULL) {
        code = trpi_package_upload(rt, &package, err);
    }
    if (code == TRP_OK) {
        code = say(rt, what, package.hash, ret_job, err);
    }
    trpi_package_close(&package);
    return code;
}

/* ---- Following it ---- */

/* Its number; and why it has not begun, if there is a reason. */
static void announce(trp_runtime *rt, uint64_t job) {
    json_t *row = NULL;
    const char *reason = NULL;
    if (trpi_find_job(rt, job, &row, NULL) == TRP_OK && !trpi_job_is_over(row)) {
        reason = json_string_value(json_object_get(row, "reason"));
    }
    bool has_reason = reason != NULL && reason[0] != '\0';
    fprintf(stderr, "troupe submit: job j%" PRIu64 "%s%s\n", job, has_reason ? " " : "",
            has_reason ? reason : "");
    if (row != NULL) {
        json_decref(row);
    }
}

static trp_code follow(trp_runtime *rt, uint64_t job, int *ret_exit, trp_error *err) {
    json_t *row = NULL;
    trp_code code = trpi_job_print(rt, job, UINT64_MAX, true, &is_interrupted, &row, err);
    if (code == TRP_OK && !trpi_job_is_over(row)) {
        const char *state = json_string_value(json_object_get(row, "state"));
        bool waits = state != NULL && strcmp(state, "PENDING") == 0;
        fprintf(stderr,
                "\ntroupe submit: job j%" PRIu64 " %s; troupe jobs logs --follow j%" PRIu64
                " shows it, troupe jobs stop j%" PRIu64 " stops it\n",
                job, waits ? "still waits for a node" : "runs on", job, job);
        *ret_exit = 128 + SIGINT;
    } else if (code == TRP_OK) {
        *ret_exit = trpi_job_exit_code(row);
        fprintf(stderr, "troupe submit: job j%" PRIu64 ": %s (%s)\n", job,
                json_string_value(json_object_get(row, "state")),
                json_string_value(json_object_get(row, "reason")));
    }
    if (row != NULL) {
        json_decref(row);
    }
    return code;
}

static int run(const submission *what) {
    trp_runtime *rt = NULL;
    trp_error err;
    uint64_t job = 0;
    int exit_code = TRPI_EXIT_OK;
    struct sigaction action = {.sa_handler = on_interrupt};
    trp_code code = trpi_connect(what->address, &rt, &err);
    if (code == TRP_OK) {
        code = submit(rt, what, &job, &err);
    }
    if (code == TRP_OK && what->no_wait) {
        printf("j%" PRIu64 "\n", job);
    } else if (code == TRP_OK) {
        announce(rt, job);
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
        code = follow(rt, job, &exit_code, &err);
    }
    trpi_client_close(&rt, true);
    return code == TRP_OK ? exit_code : trpi_failed("submit", &err);
}

static int check(const submission *what) {
    for (size_t i = 0; i < what->env.count; i++) {
        const char *equals = strchr(what->env.items[i], '=');
        if (equals == NULL || equals == what->env.items[i]) {
            return trpi_usage_error("submit", "--env: \"%s\" is not NAME=VALUE",
                                    what->env.items[i]);
        }
    }
    return TRPI_EXIT_OK;
}

int trpi_command_submit(int argc, char **argv) {
    submission what = {0};
    const trpi_option options[] = {
        TRPI_OPTION_ADDRESS(what.address),
        {"--working-dir", "DIR", "send its files; the job and its workers run in their copy of it",
         &what.working_dir, NULL, NULL},
        {"--env", "NAME=VALUE", "for the program's environment; may be given again", NULL, NULL,
         &what.env},
        {"--name", "NAME", "for display (default: the program's)", &what.name, NULL, NULL},
        {"--no-wait", NULL, "print the job's id and return", NULL, &what.no_wait, NULL},
    };
    const trpi_usage usage = {
        .command = "submit",
        .arguments = "[--] PROGRAM [ARGUMENT...]",
        .summary = "Runs a program as a job on a node of the cluster and follows its output.",
        .details =
            "PROGRAM is looked for in DIR, else in the current directory, which the node must "
            "then\n"
            "have, and then in PATH. Copies of DIR are shared by all processes of a node; .git "
            "and\n"
            "what DIR/.troupeignore names are not sent. TROUPE_ADDRESS leads the program to the\n"
            "cluster. Ctrl-C ends the following, not the job. The exit code is the job's, or 128 "
            "+\n"
            "its signal.",
        .example = "troupe submit --working-dir . --env EPOCHS=3 -- ./train_it --fast",
        .options = options,
        .option_count = TRPI_COUNTOF(options),
        .arguments_min = 1,
        .arguments_max = (size_t)argc,
        .ends_at_argument = true};
    int exit_code = TRPI_EXIT_OK;
    what.argv = trpi_alloc(((size_t)argc + 1) * sizeof(*what.argv));
    if (trpi_options_parse(&usage, argc, argv, what.argv, &exit_code)) {
        exit_code = check(&what);
        exit_code = exit_code == TRPI_EXIT_OK ? run(&what) : exit_code;
    }
    free(what.argv);
    free(what.env.items);
    return exit_code;
}
