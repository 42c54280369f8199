#include "tests/lib/runs.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "actors/proc/client.h"
#include "core/sys/file.h"
#include "trainer/ckpt/store.h"

static char storage[64];

uint64_t test_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

const char *test_run_storage(void) {
    if (storage[0] == '\0') {
        snprintf(storage, sizeof storage, "/tmp/trp-runs-XXXXXX");
        assert_non_null(mkdtemp(storage));
    }
    return storage;
}

void test_run_clean(void) {
    if (storage[0] != '\0') {
        (void)!trpi_dir_remove(storage, NULL);
        storage[0] = '\0';
    }
}

int test_runs_begin(test_cluster *cluster, size_t nodes, const trp_actor_type *const *types,
                    trp_runtime **ret_rt) {
    static const test_node node = {.cpus = 2};
    test_cluster_start(cluster, &node, 1);
    for (size_t i = 1; i < nodes; i++) {
        test_cluster_add(cluster, &node);
    }
    *ret_rt = test_connect(cluster, types);
    return 0;
}

int test_runs_end(test_cluster *cluster, trp_runtime **rt) {
    trp_shutdown(rt);
    test_cluster_stop(cluster);
    test_run_clean();
    return 0;
}

static void on_state(test_run_seen *seen, const trp_train_event *event) {
    const char *last = strrchr(seen->states, ' ');
    last = last != NULL ? last + 1 : seen->states;
    if (strcmp(last, event->state) != 0) {
        size_t used = strlen(seen->states);
        snprintf(seen->states + used, sizeof seen->states - used, "%s%s", used > 0 ? " " : "",
                 event->state);
    }
    if (event->worker_count > 0) {
        seen->pid_count = event->worker_count;
        for (size_t i = 0; i < event->worker_count && i < 64; i++) {
            seen->pids[i] = (pid_t)event->workers[i].pid;
        }
    }
}

static void on_event(void *arg, const trp_train_event *event) {
    test_run_seen *seen = arg;
    switch (event->kind) {
    case TRP_TRAIN_STATE:
        on_state(seen, event);
        if (seen->on_state != NULL) {
            seen->on_state(seen, event);
        }
        break;
    case TRP_TRAIN_REPORT:
        seen->reports++;
        if (seen->on_report != NULL) {
            seen->on_report(seen, event);
        }
        break;
    case TRP_TRAIN_CHECKPOINT:
        seen->checkpoints++;
        break;
    case TRP_TRAIN_FAILURE:
        if (seen->failures++ == 0) {
            snprintf(seen->failure, sizeof seen->failure, "%s", event->text);
        }
        if (seen->recoveries < 16) {
            seen->failed_ns[seen->recoveries] = event->at_ns;
        }
        break;
    case TRP_TRAIN_RECOVERED:
        if (seen->recoveries < 16) {
            memcpy(seen->recovery_ms[seen->recoveries], event->recovery_ms,
                   sizeof event->recovery_ms);
            seen->recovered_ns[seen->recoveries++] = event->at_ns;
        }
        break;
    }
}

trp_train_options test_run_options(const char *function, const char *name, int workers,
                                   test_run_seen *seen) {
    trp_train_options options = {
        .function = function, .on_event = on_event, .on_event_arg = seen, .stop = &seen->stop};
    options.scaling.workers = workers;
    options.scaling.cpus_per_worker = 0.5;
    options.run.name = name;
    options.run.storage_path = test_run_storage();
    return options;
}

/* ---- A train function ---- */

trp_code test_wrong(trp_error *err, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    err->code = TRP_EUSER;
    return TRP_EUSER;
}

trp_code test_shard_write(trp_session *session, uint64_t step, trp_error *err) {
    const char *dir;
    char name[64], text[32];
    trp_code code = trp_session_staging(session, &dir, err);
    if (code == TRP_OK) {
        snprintf(name, sizeof name, "shard-%d", trp_session_rank(session));
        snprintf(text, sizeof text, "%lu", (unsigned long)step);
        code = trpi_file_write_atomic(test_path(dir, name), trp_bytes_of(text), err);
    }
    return code;
}

trp_code test_shard_read(const char *checkpoint, int rank, uint64_t *ret_step, trp_error *err) {
    char name[64];
    trp_buf text = {0};
    *ret_step = 0;
    if (checkpoint == NULL) {
        return TRP_OK;
    }
    snprintf(name, sizeof name, "shard-%d", rank);
    trp_code code = trpi_file_read(test_path(checkpoint, name), 0, &text, err);
    if (code == TRP_OK) {
        *ret_step = strtoul((const char *)text.data, NULL, 10);
    }
    trp_buf_release(&text);
    return code;
}

static trp_code count_one(trp_session *session, const test_count *count, uint64_t step,
                          trp_error *err) {
    bool is_due = count->every > 0 && step % count->every == 0;
    trp_code code = trp_comm_barrier(trp_session_comm(session), err);
    nanosleep(&(struct timespec){.tv_nsec = (long)count->pause_ms * 1000000}, NULL);
    if (code == TRP_OK && is_due) {
        code = test_shard_write(session, step, err);
    }
    if (code == TRP_OK) {
        trp_report report = {.step = step, .has_checkpoint = is_due};
        code = trp_session_report(session, &report, err);
    }
    return code;
}

trp_code test_counts(trp_session *session, trp_bytes config, trp_error *err) {
    test_count count;
    uint64_t step;
    memcpy(&count, config.data, sizeof count);
    trp_code code =
        test_shard_read(trp_session_checkpoint(session), trp_session_rank(session), &step, err);
    while (code == TRP_OK && step < count.last) {
        code = count_one(session, &count, ++step, err);
    }
    return code;
}

void test_run_fails(trp_runtime *rt, const trp_train_options *options, trp_code code,
                    const char *text, trp_result *ret_result) {
    trp_error err = {0};
    uint64_t begun_ms = test_now_ms();
    trp_code got = trp_fit(rt, options, ret_result, &err);
    print_message("fit: %s: %s (%lu ms)\n", trp_code_name(got), err.message,
                  (unsigned long)(test_now_ms() - begun_ms));
    assert_int_equal(got, code);
    if (strstr(err.message, text) == NULL) {
        fail_msg("\"%s\" is not in it", text);
    }
}

/* ---- Who is there ---- */

static bool is_living(const json_t *row, const char *type) {
    const char *of = json_string_value(json_object_get(row, "type"));
    const char *state = json_string_value(json_object_get(row, "state"));
    return of != NULL && state != NULL && strcmp(of, type) == 0 && strcmp(state, "dead") != 0;
}

size_t test_actor_pids(trp_runtime *rt, const char *type, pid_t *pids, size_t max) {
    trpi_client_reply *kept = NULL;
    const trpi_msg *reply = NULL;
    trpi_msg msg = {.type = TRPI_MSG_LIST_QUERY, .list_query = {.what = "actors"}};
    size_t count = 0, i;
    json_t *row;
    if (trpi_client_request(rt, &msg, 5000, &kept, &reply, NULL) != TRP_OK) {
        return 0;
    }
    json_t *rows = reply->type == TRPI_MSG_LISTED
                       ? json_loadb(reply->listed.json.data, reply->listed.json.size, 0, NULL)
                       : NULL;
    json_array_foreach(rows, i, row) {
        pid_t pid = (pid_t)json_number_value(json_object_get(row, "pid"));
        if (is_living(row, type) && pid > 0 && count < max) {
            pids[count++] = pid;
        }
    }
    json_decref(rows);
    trpi_client_reply_release(kept);
    return count;
}

/* ---- Results ---- */

uint64_t test_run_step(const char *run_path) {
    trpi_ckpt_store *store = NULL;
    trpi_checkpoint *all = NULL;
    size_t count = 0;
    uint64_t step = 0;
    if (trpi_ckpt_store_open_path(run_path, &store, NULL) == TRP_OK &&
        trpi_ckpt_store_list(store, &all, &count, NULL) == TRP_OK && count > 0) {
        step = all[count - 1].manifest.step;
    }
    trpi_checkpoints_free(all, count);
    trpi_ckpt_store_close(store);
    return step;
}

double test_metric(const trp_result *result, const char *name) {
    for (size_t i = 0; i < result->metric_count; i++) {
        if (strcmp(result->metrics[i].name, name) == 0) {
            return result->metrics[i].value;
        }
    }
    fail_msg("no metric %s", name);
    return 0;
}

size_t test_run_checkpoints(const char *run_path) {
    char **names = NULL;
    size_t count = 0, found = 0;
    assert_int_equal(trpi_dir_list(run_path, &names, &count, NULL), TRP_OK);
    for (size_t i = 0; i < count; i++) {
        found += strncmp(names[i], "checkpoint_", 11) == 0;
    }
    trpi_names_free(names, count);
    return found;
}

const char *test_path(const char *dir, const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}
