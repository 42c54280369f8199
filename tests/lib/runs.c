#include "tests/lib/runs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "core/sys/file.h"

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
