/* cluster_jobs.c: jobs: a driver with all that belongs to it, submitted or started by hand.
 *
 *   JOB_SUBMIT --> PENDING --(1)--> RUNNING --(2)--> SUCCEEDED | FAILED | STOPPED
 *                     |                  ^
 *                     +--(3) STOPPED     +-- a driver's hello
 *
 * (1) trpi_jobs_place, JOB_START  (2) JOB_EXITED, or its node is dead  (3) trpi_job_stop
 *
 * A job that was submitted is what its process group on a node is; a driver that says in its hello
 * that it was started for it becomes its driver, and owns what it owns as any other. A job of a
 * driver that nobody submitted is that driver.
 *
 * What holds: a record stays while the job is under way or has a driver, actors, groups or gangs,
 * and some time after, for display. JOB_END is said again until the job is known to have ended. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/state/cluster_parts.h"

#define ARGV_MAX 4096
#define ARGV_BYTES_MAX (1 << 20)

const char *trpi_job_state_name(trpi_job_state state) {
    static const char *const names[] = {"PENDING", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED"};
    return (unsigned)state < TRPI_COUNTOF(names) ? names[state] : "?";
}

void trpi_job_free(trpi_job_rec *job) {
    char *texts[] = {job->name,   job->namespace_name, job->exe,    job->cwd,
                     job->reason, job->exe_hash,       job->package};
    for (size_t i = 0; i < TRPI_COUNTOF(texts); i++) {
        free(texts[i]);
    }
    trpi_texts_release(&job->env);
    trpi_texts_release(&job->argv);
    trpi_texts_release(&job->submitted_env);
    trpi_table_release(&job->spread);
    free(job->stoppers.items);
    free(job);
}

static bool is_over(const trpi_job_rec *job) {
    return job->state != TRPI_JOB_PENDING && job->state != TRPI_JOB_RUNNING;
}

static trpi_job_rec *new_job(trpi_cluster *c, const char *name, const char *space) {
    trpi_job_rec *job = trpi_alloc(sizeof(*job));
    char own[64];
    job->id = ++c->last_job;
    trpi_format(own, sizeof(own), "job-%" PRIu64, job->id);
    job->name = trpi_strdup(name);
    job->namespace_name = trpi_strdup(space[0] ? space : own);
    job->exe = trpi_strdup("");
    job->cwd = trpi_strdup("");
    job->reason = trpi_strdup("");
    job->exe_hash = trpi_strdup("");
    job->package = trpi_strdup("");
    job->started_ns = c->now_ns;
    trpi_table_put(&c->jobs, job->id, job);
    return job;
}

/* What it keeps of texts that users may make as large as they like. */
static void count_bytes(trpi_cluster *c, trpi_job_rec *job) {
    c->start_bytes -= job->start_bytes;
    job->start_bytes = trpi_texts_bytes(&job->env) + trpi_texts_bytes(&job->argv) +
                       trpi_texts_bytes(&job->submitted_env);
    c->start_bytes += job->start_bytes;
}

void trpi_jobs_forget(trpi_cluster *c) {
    trpi_job_rec *job;
    uint64_t id = 0;
    while (c->jobs.count > c->config.jobs_kept && (job = trpi_table_next(&c->jobs, &id)) != NULL) {
        if (is_over(job) && !job->client && !job->actors && !job->groups && !job->gangs) {
            trpi_table_remove(&c->jobs, id);
            c->start_bytes -= job->start_bytes;
            trpi_job_free(job);
        }
    }
}

/* ---- Drivers ---- */

static trpi_job_rec *submitted_for(trpi_cluster *c, uint64_t submission) {
    trpi_job_rec *job = trpi_table_get(&c->jobs, submission);
    bool fits = job && job->submitted && job->state == TRPI_JOB_RUNNING && !job->client;
    return fits ? job : NULL;
}

trpi_job_rec *trpi_job_of_driver(trpi_cluster *c, const trpi_msg_client_hello *msg, uint64_t client,
                                 trpi_texts *env) {
    trpi_job_rec *job = submitted_for(c, msg->submission);
    if (!job) {
        job = new_job(c, msg->job, msg->namespace_name);
        job->state = TRPI_JOB_RUNNING;
        job->pid = msg->pid;
    } else if (msg->namespace_name[0] && !job->actors && !job->groups) {
        trpi_replace(&job->namespace_name, msg->namespace_name); /* no name is in the old one */
    }
    job->client = client;
    trpi_replace(&job->exe, msg->exe);
    trpi_replace(&job->cwd, msg->cwd);
    trpi_replace(&job->exe_hash, msg->exe_hash);
    trpi_replace(&job->package, msg->package);
    trpi_texts_release(&job->env);
    job->env = *env;
    *env = (trpi_texts){0};
    count_bytes(c, job);
    return job;
}

static void end_job(trpi_cluster *c, trpi_job_rec *job, trpi_job_state state, const char *reason) {
    job->state = state;
    job->ended_ns = c->now_ns;
    trpi_replace(&job->reason, reason);
    if (job->submitted) {
        trpi_node_rec *node = trpi_table_get(&c->nodes, job->node);
        if (node) {
            trpi_table_remove(&node->jobs, job->id);
        }
        job->node = 0;
        trpi_table_remove(&c->pending_jobs, job->id);
        trpi_table_remove(&c->stopping_jobs, job->id);
        trpi_texts_release(&job->submitted_env);
        count_bytes(c, job);
        c->living_jobs--;
    }
    trpi_answer_all(c, &job->stoppers, NULL);
    trpi_client_rec *driver = trpi_table_get(&c->clients, job->client);
    if (driver) {
        trpi_client_end(c, driver, false, "its job has ended");
    }
    trpi_jobs_forget(c);
}

void trpi_job_driver_gone(trpi_cluster *c, uint64_t id, bool orderly, const char *reason) {
    trpi_job_rec *job = trpi_table_get(&c->jobs, id);
    job->client = 0;
    if (!job->submitted) {
        end_job(c, job, orderly ? TRPI_JOB_SUCCEEDED : TRPI_JOB_FAILED, reason);
    }
}

/* ---- Submitting ---- */

static trp_code check_submit(const trpi_cluster *c, const trpi_msg_job_submit *msg,
                             trp_error *err) {
    const char *const paths[] = {msg->cwd, msg->package};
    if (c->stopping) {
        return trpi_fail(err, TRP_EUNAVAILABLE, "the cluster is stopping");
    }
    if (c->living_jobs >= c->config.jobs_max) {
        return trpi_fail(err, TRP_EBUSY, "%" PRIu64 " submitted jobs are under way, the limit",
                         c->living_jobs);
    }
    if (msg->argv_count == 0 || msg->argv_count > ARGV_MAX || !msg->argv[0].value[0]) {
        return trpi_fail(err, TRP_EINVALID, "a program and at most %d words", ARGV_MAX);
    }
    if (strlen(msg->name) > TRPI_TEXT_MAX) {
        return trpi_fail(err, TRP_EINVALID, "a name has at most %d bytes", TRPI_TEXT_MAX);
    }
    for (size_t i = 0; i < TRPI_COUNTOF(paths); i++) {
        if (strlen(paths[i]) > TRPI_PATH_TEXT_MAX) {
            return trpi_fail(err, TRP_EINVALID, "a path has at most %d bytes", TRPI_PATH_TEXT_MAX);
        }
    }
    return TRP_OK;
}

static trp_code check_bytes(const trpi_cluster *c, const trpi_texts *argv, const trpi_texts *env,
                            trp_error *err) {
    uint64_t words = trpi_texts_bytes(argv), all = words + trpi_texts_bytes(env);
    if (words > ARGV_BYTES_MAX) {
        return trpi_fail(err, TRP_EINVALID, "%" PRIu64 " bytes of words, at most %d", words,
                         ARGV_BYTES_MAX);
    }
    if (all > c->config.start_bytes_max - c->start_bytes) {
        return trpi_fail(err, TRP_EBUSY,
                         "the head keeps %" PRIu64 " bytes of arguments and environments, of at "
                         "most %" PRIu64,
                         c->start_bytes, c->config.start_bytes_max);
    }
    return TRP_OK;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static trpi_job_rec *add_submitted(trpi_cluster *c, const trpi_msg_job_submit *msg,
                                   trpi_texts *argv, trpi_texts *env) {
    char name[TRPI_TEXT_MAX + 1];
    TRPI_SET(name, msg->name[0] ? msg->name : base_name(argv->items[0]));
    trpi_job_rec *job = new_job(c, name, "");
    job->submitted = true;
    job->state = TRPI_JOB_PENDING;
    job->argv = *argv;
    job->submitted_env = *env;
    trpi_replace(&job->exe, argv->items[0]);
    trpi_replace(&job->cwd, msg->cwd);
    trpi_replace(&job->package, msg->package);
    *argv = *env = (trpi_texts){0};
    count_bytes(c, job);
    c->living_jobs++;
    trpi_table_put(&c->pending_jobs, job->id, job);
    return job;
}

void trpi_job_submit(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_job_submit *msg) {
    trp_error error = {0};
    trpi_texts argv = {0}, env = {0};
    uint64_t id = 0;
    trp_code code = check_submit(c, msg, &error);
    if (code == TRP_OK) {
        code = trpi_env_parse(msg->env, msg->env_count, &env, &error);
    }
    if (code == TRP_OK) {
        argv = trpi_texts_copy(msg->argv, msg->argv_count);
        code = check_bytes(c, &argv, &env, &error);
    }
    if (code == TRP_OK) {
        id = add_submitted(c, msg, &argv, &env)->id;
    } else {
        (void)trpi_context(&error, code, "submit");
    }
    trpi_texts_release(&argv);
    trpi_texts_release(&env);
    const char *message = trpi_keep(c, error.message);
    trpi_msg_jobbed *answer = &trpi_post(c, client->peer, TRPI_MSG_JOBBED)->jobbed;
    answer->request = msg->request;
    answer->code = error.code;
    answer->message = message;
    answer->job = id;
    trpi_jobs_place(c);
}

/* ---- Where ---- */

/* Part in use of what is scarcest there, in 1/10000. */
static int64_t use_of(const trpi_pool *pool) {
    int64_t worst = 0;
    for (uint32_t resource = TRPI_CPU; resource < TRPI_FIRST_USER_RESOURCE; resource++) {
        worst = TRPI_MAX(worst, trpi_pool_part(pool, resource));
    }
    return worst;
}

/* Beside the head if a node is there, so that files of who submitted are at hand; else where the
 * least is in use. A driver holds no resources. */
static trpi_node_rec *node_for(const trpi_cluster *c) {
    trpi_node_rec *node, *best = NULL;
    int64_t best_use = 0;
    uint64_t id = 0;
    while ((node = trpi_table_next(&c->nodes, &id)) != NULL) {
        const trpi_sched_node *pool = trpi_sched_node_of(&c->sched, id);
        if (!pool || pool->closed) {
            continue;
        }
        if (c->host_id[0] && strcmp(node->host_id, c->host_id) == 0) {
            return node;
        }
        int64_t use = use_of(&pool->pool);
        if (!best || use < best_use) {
            best = node;
            best_use = use;
        }
    }
    return best;
}

static void start(trpi_cluster *c, trpi_job_rec *job, trpi_node_rec *node) {
    trpi_msg_job_start msg = {
        .job = job->id,
        .argv = trpi_keep_texts(c, &job->argv),
        .argv_count = job->argv.count,
        .env = trpi_keep_texts(c, &job->submitted_env),
        .env_count = job->submitted_env.count,
        .cwd = trpi_keep(c, job->cwd),
        .package = trpi_keep(c, job->package),
        .address = c->address,
    };
    trpi_post(c, node->peer, TRPI_MSG_JOB_START)->job_start = msg;
    job->state = TRPI_JOB_RUNNING;
    job->node = job->ran_on = node->id;
    trpi_table_put(&node->jobs, job->id, job);
}

void trpi_jobs_place(trpi_cluster *c) {
    trpi_job_rec *job;
    uint64_t id = 0;
    while (!c->stopping && (job = trpi_table_next(&c->pending_jobs, &id)) != NULL) {
        trpi_node_rec *node = node_for(c);
        if (!node) {
            return;
        }
        trpi_table_remove(&c->pending_jobs, id);
        start(c, job, node);
    }
}

/* ---- What its node tells ---- */

static trpi_job_rec *job_on(trpi_cluster *c, const trpi_node_rec *node, uint64_t id) {
    trpi_job_rec *job = trpi_table_get(&node->jobs, id);
    c->stale += !job;
    return job;
}

void trpi_job_started(trpi_cluster *c, trpi_node_rec *node, const trpi_msg_job_started *msg) {
    trpi_job_rec *job = job_on(c, node, msg->job);
    if (job) {
        job->pid = msg->pid;
    }
}

void trpi_job_exited(trpi_cluster *c, trpi_node_rec *node, const trpi_msg_job_exited *msg) {
    trpi_job_rec *job = job_on(c, node, msg->job);
    char reason[512];
    if (!job) {
        return;
    }
    if (msg->message[0]) {
        TRPI_SET(reason, msg->message);
    } else if (msg->signal) {
        trpi_format(reason, sizeof(reason), "signal %" PRId64, msg->signal);
    } else {
        trpi_format(reason, sizeof(reason), "exit code %" PRId64, msg->exit_code);
    }
    job->exit_code = msg->exit_code;
    job->signal = msg->signal;
    bool good = msg->exit_code == 0 && msg->signal == 0;
    end_job(c, job,
            job->stopping ? TRPI_JOB_STOPPED
            : good        ? TRPI_JOB_SUCCEEDED
                          : TRPI_JOB_FAILED,
            reason);
}

void trpi_jobs_node_dead(trpi_cluster *c, trpi_node_rec *node) {
    trpi_job_rec *job;
    char reason[500], name[128];
    uint64_t id = 0;
    trpi_text_node(c, node->id, name, sizeof(name));
    trpi_format(reason, sizeof(reason), "%s died: %s", name, node->reason);
    while ((job = trpi_table_next(&node->jobs, &id)) != NULL) {
        end_job(c, job, job->stopping ? TRPI_JOB_STOPPED : TRPI_JOB_FAILED, reason);
    }
}

/* ---- Stopping ---- */

static void post_end(trpi_cluster *c, trpi_job_rec *job) {
    const trpi_node_rec *node = trpi_table_get(&c->nodes, job->node);
    uint64_t due_ns = job->stop_due_ns;
    trpi_msg_job_end *msg = &trpi_post(c, node->peer, TRPI_MSG_JOB_END)->job_end;
    msg->job = job->id;
    msg->grace_ms = due_ns > c->now_ns ? (due_ns - c->now_ns) / TRPI_NS_PER_MS + 1 : 0;
    job->said_end_ns = c->now_ns;
}

/* Asked more than once, the earliest deadline holds. */
static void stop(trpi_cluster *c, trpi_job_rec *job, uint64_t grace_ms) {
    uint64_t due_ns = c->now_ns + TRPI_MIN(grace_ms, TRPI_LONG_MS) * TRPI_NS_PER_MS;
    bool sooner = !job->stopping || due_ns < job->stop_due_ns;
    if (job->state == TRPI_JOB_PENDING) {
        end_job(c, job, TRPI_JOB_STOPPED, "stopped before it began");
    } else if (sooner) {
        job->stopping = true;
        job->stop_due_ns = due_ns;
        trpi_table_put(&c->stopping_jobs, job->id, job);
        post_end(c, job);
    }
}

void trpi_job_stop(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_job_stop *msg) {
    trpi_job_rec *job = trpi_table_get(&c->jobs, msg->job);
    trp_error error = {0};
    if (!job) {
        (void)trpi_fail(&error, TRP_ENOTFOUND, "there is no job j%" PRIu64 " (any more)", msg->job);
    } else if (!job->submitted) {
        (void)trpi_fail(&error, TRP_EINVALID,
                        "job j%" PRIu64 " was not submitted: end its driver, pid %" PRId64, job->id,
                        job->pid);
    } else if (!is_over(job)) {
        trpi_ask(&job->stoppers, client->id, msg->request);
        stop(c, job, msg->grace_ms);
        return;
    }
    trpi_post_done(c, client->peer, msg->request, &error);
}

void trpi_jobs_tick(trpi_cluster *c) {
    trpi_job_rec *job;
    uint64_t id = 0;
    while ((job = trpi_table_next(&c->stopping_jobs, &id)) != NULL) {
        if (c->now_ns - job->said_end_ns >= c->config.end_repeat_ms * TRPI_NS_PER_MS) {
            post_end(c, job);
        }
    }
}

/* ---- Files ---- */

static bool names(const trpi_job_rec *job, const char *hash) {
    return strcmp(job->exe_hash, hash) == 0 || strcmp(job->package, hash) == 0;
}

static uint64_t driver_with(const trpi_cluster *c, const trpi_job_rec *job, const char *hash) {
    const trpi_client_rec *driver = job ? trpi_table_get(&c->clients, job->client) : NULL;
    return driver && names(job, hash) ? driver->peer : 0;
}

uint64_t trpi_cluster_holder(const trpi_cluster *c, const char *hash, uint64_t first) {
    const trpi_job_rec *job;
    uint64_t id = 0, peer = driver_with(c, trpi_table_get(&c->jobs, first), hash);
    while (!peer && (job = trpi_table_next(&c->jobs, &id)) != NULL) {
        peer = driver_with(c, job, hash);
    }
    return peer;
}

bool trpi_cluster_uses(const trpi_cluster *c, const char *hash) {
    const trpi_job_rec *job;
    uint64_t id = 0;
    while ((job = trpi_table_next(&c->jobs, &id)) != NULL) {
        if (names(job, hash) && (!is_over(job) || job->client || job->actors)) {
            return true;
        }
    }
    return false;
}
