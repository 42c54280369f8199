/* command.h: the subcommands of troupe, and what several of them share. */
#ifndef TRPI_COMMAND_H
#define TRPI_COMMAND_H

#include <signal.h>
#include <stdio.h>
#include <troupe/runtime.h>

#include "actors/bin/options.h"
#include "core/base/json.h"
#include "core/sys/session.h"

/* argv behind the subcommand's name. Return TRPI_EXIT_*. */
int trpi_command_start(int argc, char **argv);
int trpi_command_head(int argc, char **argv); /* hidden: what start runs in the background */
int trpi_command_node(int argc, char **argv); /* hidden */
int trpi_command_stop(int argc, char **argv);
int trpi_command_status(int argc, char **argv);
int trpi_command_list(int argc, char **argv);
int trpi_command_get(int argc, char **argv);
int trpi_command_summary(int argc, char **argv);
int trpi_command_logs(int argc, char **argv);
int trpi_command_kill(int argc, char **argv);
int trpi_command_drain(int argc, char **argv);
int trpi_command_health(int argc, char **argv);
int trpi_command_completion(int argc, char **argv);
int trpi_command_complete_ids(int argc, char **argv); /* hidden: completion's script asks */
int trpi_command_submit(int argc, char **argv);
int trpi_command_jobs(int argc, char **argv);
int trpi_command_config(int argc, char **argv);
int trpi_command_bench(int argc, char **argv);
int trpi_command_bench_peer(int argc, char **argv); /* hidden */

typedef struct trpi_subcommand {
    const char *name;
    const char *summary; /* NULL: hidden */
    int (*run)(int argc, char **argv);
} trpi_subcommand;
extern const trpi_subcommand trpi_subcommands[];
extern const size_t trpi_subcommand_count;

/* The actor types that `troupe bench` spawns: their workers run this program too. */
extern const trp_actor_type *const trpi_bench_types[];

/* Rows of option tables that several commands have. */
#define TRPI_OPTION_ADDRESS(address)                                                               \
    {                                                                                              \
        "--address", "HOST:PORT", "the head (default: TROUPE_ADDRESS, else the one on this host)", \
            &(address), NULL                                                                       \
    }
#define TRPI_OPTION_FORMAT(format)                                                                 \
    { "--format", "table|json", "how to print (default: table)", &(format), NULL }

/* ---- connect.c ---- */

/* Connects as a tool. `address` is a flag's value or NULL. TRP_EDISCONNECTED: no head answers
 * there; TRP_EINVALID: where? */
TRP_CHECKED trp_code trpi_connect(const char *address, trp_runtime **ret_runtime, trp_error *err);
/* The head's answer to LIST_QUERY; free with json_decref(). */
TRP_CHECKED trp_code trpi_query(trp_runtime *rt, const char *what, json_t **ret_json,
                                trp_error *err);
/* The same with a connection for this one question. */
TRP_CHECKED trp_code trpi_query_once(const char *address, const char *what, json_t **ret_json,
                                     trp_error *err);
/* Without an address, and for somebody who is typing: no answer within 300 ms is an error. */
TRP_CHECKED trp_code trpi_query_quickly(const char *what, json_t **ret_json, trp_error *err);
/* One row of "nodes", "actors", ...; free with json_decref(). TRP_ENOTFOUND. list.c */
TRP_CHECKED trp_code trpi_find_row(trp_runtime *rt, const char *kind, uint64_t id, json_t **ret_row,
                                   trp_error *err);
/* "7", "a7" or a name. TRP_EINVALID when several living actors have the name. */
TRP_CHECKED trp_code trpi_find_actor(trp_runtime *rt, const char *word, trp_actor *ret_actor,
                                     trp_error *err);

/* ---- jobs.c ---- */

/* "7" or "j7". */
TRP_CHECKED bool trpi_parse_job(const char *word, uint64_t *ret_job);
/* The row of a job as the head lists it; free with json_decref(). TRP_ENOTFOUND. */
TRP_CHECKED trp_code trpi_find_job(trp_runtime *rt, uint64_t job, json_t **ret_row, trp_error *err);
bool trpi_job_is_over(json_t *row);
/* What a shell would make of its end: its exit code, 128 + its signal, else 1. */
int trpi_job_exit_code(json_t *row);

/* ---- job_output.c ---- */

/* Prints what a job wrote, stdout and stderr to ours, from tail_bytes before the end on
 * (UINT64_MAX: from the beginning). With `follows`: on, until the job is over or
 * *interrupted is set. *ret_row: the job's row by then; json_decref() it. */
TRP_CHECKED trp_code trpi_job_print(trp_runtime *rt, uint64_t job, uint64_t tail_bytes,
                                    bool follows, volatile sig_atomic_t *interrupted,
                                    json_t **ret_row, trp_error *err);

/* ---- daemons.c: processes in the background ---- */

typedef struct trpi_daemon {
    pid_t pid;
    int pidfd;
    char log[256];      /* where its stderr goes */
    char words[2][160]; /* of its ready line */
} trpi_daemon;

/* Runs `troupe ARGV...` in a session of its own and waits until it is ready. The option --ready-fd
 * is added to argv, which has room for it. TRP_EIO with its reason and the end of its log;
 * TRP_ECANCELED as soon as interrupt_fd (-1: none) is readable. After a failure it is gone. */
TRP_CHECKED trp_code trpi_daemon_start(const char **argv, size_t count, int interrupt_fd,
                                       trpi_daemon *ret_daemon, trp_error *err);
/* Ends one in good order, or not. */
void trpi_daemon_stop(const trpi_daemon *daemon);
/* Moves its log to where the rest of its cluster is. */
void trpi_daemon_adopt_log(trpi_daemon *daemon, const char *role, const char *cluster);
/* Waits for the end of a process; false when the deadline has passed. */
bool trpi_daemon_await_end(int pidfd, uint64_t deadline_ns);

/* ---- stop.c ---- */

/* Stops this user's processes of a cluster (an id or the beginning of one; NULL: all clusters) on
 * this host and says on `out`, unless NULL, what it stopped. */
TRP_CHECKED trp_code trpi_stop_clusters(const char *cluster, FILE *out, size_t *ret_count,
                                        trp_error *err);

#endif
