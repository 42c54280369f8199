/* The programs whose actors run here, and the few workers of each that are kept ready: the warm
 * pool. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "actors/proc/node_parts.h"
#include "core/base/config.h"
#include "core/base/log.h"
#include "core/net/clock.h"

#define FORKING_MAX 32    /* requests under way per zygote, so that no socket buffer ever fills */
#define REFILL_AFTER_MS 3 /* the actor that has just taken a worker starts undisturbed */

/* ---- Lists ---- */

void trpi_program_unlist(trpi_node_worker *worker) {
    trpi_program *program = worker->program;
    switch (worker->list) {
    case TRPI_LIST_WANTED:
        TAILQ_REMOVE(&program->wanted, worker, link);
        program->waiting--;
        break;
    case TRPI_LIST_SPARE:
        TAILQ_REMOVE(&program->spare, worker, link);
        program->unbound--;
        break;
    case TRPI_LIST_IDLE:
        TAILQ_REMOVE(&program->idle, worker, link);
        program->unbound--;
        break;
    case TRPI_LIST_NONE:
        break;
    }
    worker->list = TRPI_LIST_NONE;
}

void trpi_program_list_wanted(trpi_node_worker *worker) {
    trpi_program_unlist(worker);
    TAILQ_INSERT_TAIL(&worker->program->wanted, worker, link);
    worker->list = TRPI_LIST_WANTED;
    worker->program->waiting++;
    worker->phase = TRPI_WORKER_WANTED;
}

void trpi_program_list_spare(trpi_node_worker *worker) {
    TAILQ_INSERT_TAIL(&worker->program->spare, worker, link);
    worker->list = TRPI_LIST_SPARE;
    worker->program->unbound++;
}

void trpi_program_list_idle(trpi_node_worker *worker) {
    trpi_program_unlist(worker);
    TAILQ_INSERT_HEAD(&worker->program->idle, worker, link); /* the warmest first */
    worker->list = TRPI_LIST_IDLE;
    worker->program->unbound++;
}

/* ---- Programs ---- */

void trpi_program_wake_at(trpi_node *node, const trpi_program *program, uint64_t due_ns) {
    trpi_node_timer(node, TRPI_TIMER_PROGRAM, program->id, due_ns);
}

/* A file that was built anew is another program, though its path is the same. */
static trpi_exe_identity identity_of(const char *exe) {
    struct stat info;
    trpi_exe_identity identity = {0};
    if (stat(exe, &info) == 0) {
        identity.device = info.st_dev;
        identity.inode = info.st_ino;
        identity.size = (uint64_t)info.st_size;
        identity.changed_ns =
            (uint64_t)info.st_mtim.tv_sec * TRPI_NS_PER_S + (uint64_t)info.st_mtim.tv_nsec;
    }
    return identity;
}

static trpi_program *program_new(trpi_node *node, const trpi_msg_start *start,
                                 const trpi_exe_identity *identity) {
    trpi_program *program = trpi_alloc(sizeof *program);
    program->id = ++node->last_program;
    program->exe = trpi_strdup(start->exe);
    program->cwd = trpi_strdup(start->cwd);
    program->exe_hash = trpi_strdup(start->exe_hash);
    program->package = trpi_strdup(start->package);
    program->job = start->owner_job;
    program->identity = *identity;
    program->sock = program->pipe = -1;
    program->output.tail_max = trpi_config(TRPI_CONFIG_LOG_TAIL_BYTES);
    TAILQ_INIT(&program->wanted);
    TAILQ_INIT(&program->spare);
    TAILQ_INIT(&program->idle);
    TAILQ_INSERT_TAIL(&node->programs, program, link);
    trpi_map_set(&node->programs_by_id, program->id, program);
    return program;
}

static void program_free(trpi_node *node, trpi_program *program) {
    if (!program->closing) {
        TAILQ_REMOVE(&node->programs, program, link);
    }
    trpi_map_remove(&node->programs_by_id, program->id);
    trpi_zygote_close(node, program);
    trpi_output_release(&program->output);
    trpi_blobs_release(node, &program->exe_blob);
    trpi_blobs_release(node, &program->package_blob);
    free(program->exe);
    free(program->cwd);
    free(program->exe_hash);
    free(program->package);
    free(program);
}

static void end_unbound(trpi_node *node, struct trpi_worker_list *list) {
    trpi_node_worker *worker, *next;
    TRPI_TAILQ_FOREACH_SAFE(worker, list, link, next) {
        trpi_node_worker_end(node, worker, TRP_CAUSE_KILLED, "its program is not in use");
    }
}

/* A program out of use: its zygote goes when it owes no start any more, the record with the last
 * process. May free it. */
static void end_closing(trpi_node *node, trpi_program *program) {
    if (program->workers == 0 && program->zygote == 0) {
        program_free(node, program);
    } else if (TAILQ_EMPTY(&program->wanted) && program->forking == 0) {
        trpi_zygote_kill(program);
    }
}

/* Takes it out of use. May free it. */
static void program_close(trpi_node *node, trpi_program *program) {
    trpi_log(TRPI_INFO, "program_closed", "exe=%s", program->exe);
    TAILQ_REMOVE(&node->programs, program, link);
    program->closing = true;
    program->held++;
    end_unbound(node, &program->idle);
    end_unbound(node, &program->spare);
    program->held--;
    end_closing(node, program);
}

static bool serves(const trpi_program *program, const trpi_msg_start *start) {
    return strcmp(program->exe, start->exe) == 0 && strcmp(program->cwd, start->cwd) == 0 &&
           strcmp(program->exe_hash, start->exe_hash) == 0 &&
           strcmp(program->package, start->package) == 0;
}

trpi_program *trpi_program_get(trpi_node *node, const trpi_msg_start *start) {
    /* With a hash it is the content that counts, whatever the path names by now. */
    trpi_exe_identity identity =
        start->exe_hash[0] ? (trpi_exe_identity){0} : identity_of(start->exe);
    trpi_program *program;
    TAILQ_FOREACH(program, &node->programs, link) {
        if (serves(program, start)) {
            break;
        }
    }
    if (program && memcmp(&program->identity, &identity, sizeof identity) != 0) {
        if (program->zygote == 0) {
            program->identity = identity;
            program->retry_ns = 0; /* what was wrong with the old file says nothing of this one */
        } else {
            program_close(node, program); /* serves those who asked for it before */
            program = NULL;
        }
    }
    return program ? program : program_new(node, start, &identity);
}

trpi_node_worker *trpi_program_worker(trpi_node *node, trpi_program *program) {
    trpi_node_worker *worker = TAILQ_FIRST(&program->idle);
    if (!worker) {
        worker = TAILQ_FIRST(&program->spare);
    }
    if (worker) {
        trpi_program_unlist(worker);
        return worker;
    }
    worker = trpi_node_worker_new(node, program);
    trpi_program_list_wanted(worker);
    return worker;
}

/* ---- The pool ---- */

static bool may_fork(const trpi_program *program) {
    return program->phase == TRPI_PROGRAM_READY && program->forking < FORKING_MAX &&
           trpi_now_ns() >= program->paused_ns;
}

/* Asks for what is wanted, then for what the pool lacks. */
void trpi_program_refill(trpi_node *node, trpi_program *program) {
    if (node->phase != TRPI_NODE_SERVING) {
        return;
    }
    if (program->phase == TRPI_PROGRAM_DOWN && !TAILQ_EMPTY(&program->wanted)) {
        trpi_zygote_start(node, program);
        return;
    }
    trpi_node_worker *worker;
    while (may_fork(program) && (worker = TAILQ_FIRST(&program->wanted)) != NULL) {
        if (!trpi_zygote_fork(node, program, worker)) {
            return;
        }
    }
    if (program->closing) {
        end_closing(node, program);
        return;
    }
    uint64_t warm = trpi_node_memory_is_tight(node) ? 0 : trpi_config(TRPI_CONFIG_WARM_WORKERS);
    while (may_fork(program) && program->unbound < warm && program->bound > 0) {
        worker = trpi_node_worker_new(node, program);
        if (!trpi_zygote_fork(node, program, worker)) {
            trpi_node_worker_free(node, worker);
            return;
        }
        worker->due_ns = trpi_deadline_ns(trpi_config(TRPI_CONFIG_START_TIMEOUT_MS));
        trpi_node_timer(node, TRPI_TIMER_WORKER, worker->token, worker->due_ns);
    }
}

void trpi_program_refill_soon(trpi_node *node, trpi_program *program) {
    trpi_program_wake_at(node, program, trpi_deadline_ns(REFILL_AFTER_MS));
}

void trpi_programs_go_on(trpi_node *node) {
    trpi_program *program;
    size_t cursor = 0;
    while ((program = trpi_map_next(&node->programs_by_id, &cursor)) != NULL) {
        if (program->phase == TRPI_PROGRAM_DOWN && !TAILQ_EMPTY(&program->wanted)) {
            trpi_program_wake_at(node, program, trpi_now_ns());
        }
    }
}

/* ---- Time ---- */

void trpi_program_worker_freed(trpi_node *node, trpi_program *program) {
    if (program->held > 0) {
        return;
    }
    if (program->closing) {
        end_closing(node, program);
    } else if (program->bound == 0) {
        program->idle_since_ns = trpi_now_ns();
        trpi_program_wake_at(node, program,
                             trpi_deadline_ns(trpi_config(TRPI_CONFIG_WARM_IDLE_MS)));
    }
}

void trpi_program_due(trpi_node *node, trpi_program *program, uint64_t now_ns) {
    uint64_t idle_ns = trpi_config(TRPI_CONFIG_WARM_IDLE_MS) * TRPI_NS_PER_MS;
    if (node->phase != TRPI_NODE_SERVING) {
        return;
    }
    if (!program->closing && program->bound == 0 && TAILQ_EMPTY(&program->wanted) &&
        now_ns - program->idle_since_ns >= idle_ns) {
        program_close(node, program);
        return;
    }
    if (program->phase == TRPI_PROGRAM_STARTING && now_ns >= program->ready_due_ns) {
        TRPI_SET(program->trouble, "it did not reach trp_init() in time");
        trpi_zygote_kill(program);
        return;
    }
    if (program->forking > 0 && now_ns >= program->fork_due_ns) {
        TRPI_SET(program->trouble, "its zygote hangs");
        trpi_zygote_kill(program);
        return;
    }
    if (program->forking > 0 && program->fork_wake_ns <= now_ns) {
        program->fork_wake_ns = program->fork_due_ns;
        trpi_program_wake_at(node, program, program->fork_due_ns);
    }
    trpi_program_refill(node, program);
}

void trpi_program_end_all(trpi_node *node) {
    size_t cursor = 0;
    trpi_node_worker *worker;
    trpi_program *program;
    while ((worker = trpi_map_next(&node->workers, &cursor)) != NULL) {
        worker->program->held++; /* until the records are gone, and then all at once */
        trpi_node_worker_free(node, worker);
        cursor = 0;
    }
    cursor = 0;
    while ((program = trpi_map_next(&node->programs_by_id, &cursor)) != NULL) {
        program_free(node, program);
        cursor = 0;
    }
}
