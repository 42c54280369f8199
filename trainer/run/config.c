#include "trainer/run/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "trainer/run/function.h"

enum {
    WORKERS_MAX = 4096,
    REPORT_TIMEOUT_MS = 60000,
    START_TIMEOUT_MS = 60000,
    PATH_BYTES = 4096,
};

/* Amounts are fixed point, 1/10000: one that is not would be rounded behind the user's back. */
static trp_code check_amount(const char *what, double amount, trp_error *err) {
    if (!isfinite(amount) || amount < 0 || amount > 1e9) {
        return trpi_fail(err, TRP_EINVALID, "%s is %g; it must be 0 or more", what, amount);
    }
    double units = amount * 10000;
    if (fabs(units - round(units)) > 1e-6 * fmax(units, 1)) {
        return trpi_fail(err, TRP_EINVALID, "%s is %.10g; it must be a multiple of 0.0001", what,
                         amount);
    }
    return TRP_OK;
}

static trp_code check_resources(const trp_scaling_config *scaling, trp_error *err) {
    trp_code code = check_amount("scaling.cpus_per_worker", scaling->cpus_per_worker, err);
    if (code == TRP_OK) {
        code = check_amount("scaling.gpus_per_worker", scaling->gpus_per_worker, err);
    }
    if (code == TRP_OK && scaling->gpus_per_worker > 1 &&
        scaling->gpus_per_worker != floor(scaling->gpus_per_worker)) {
        code = trpi_fail(err, TRP_EINVALID,
                         "scaling.gpus_per_worker is %g; above 1 it must be a whole number",
                         scaling->gpus_per_worker);
    }
    for (size_t i = 0; code == TRP_OK && i < scaling->resource_count; i++) {
        const trp_resource *resource = &scaling->resources_per_worker[i];
        if (resource->name == NULL || resource->name[0] == '\0') {
            return trpi_fail(err, TRP_EINVALID, "scaling.resources_per_worker[%zu] has no name", i);
        }
        char what[128];
        trpi_format(what, sizeof(what), "scaling.resources_per_worker \"%s\"", resource->name);
        code = check_amount(what, resource->amount, err);
    }
    return code;
}

static trp_code check_scaling(const trp_scaling_config *scaling, trp_error *err) {
    if (scaling->workers < 0 || scaling->workers > WORKERS_MAX) {
        return trpi_fail(err, TRP_EINVALID, "scaling.workers is %d; it must be 1 to %d",
                         scaling->workers, WORKERS_MAX);
    }
    if ((unsigned)scaling->placement > TRP_STRICT_SPREAD) {
        return trpi_fail(err, TRP_EINVALID, "scaling.placement is %d, which is no trp_strategy",
                         (int)scaling->placement);
    }
    return check_resources(scaling, err);
}

static trp_code check_run(const trp_run_config *run, trp_error *err) {
    const trp_checkpoint_config *checkpoint = &run->checkpoint;
    if (run->failure.max_failures < -1) {
        return trpi_fail(err, TRP_EINVALID,
                         "run.failure.max_failures is %d; it must be -1 (unlimited), 0 or more",
                         run->failure.max_failures);
    }
    if (checkpoint->keep < 0) {
        return trpi_fail(err, TRP_EINVALID,
                         "run.checkpoint.keep is %d; it must be 0 (keep all), 1 or more",
                         checkpoint->keep);
    }
    if ((unsigned)checkpoint->order > TRP_SCORE_MIN) {
        return trpi_fail(err, TRP_EINVALID,
                         "run.checkpoint.order is %d; it must be TRP_SCORE_MAX or TRP_SCORE_MIN",
                         (int)checkpoint->order);
    }
    if (checkpoint->order == TRP_SCORE_MIN && checkpoint->score_by == NULL) {
        return trpi_fail(err, TRP_EINVALID,
                         "run.checkpoint.order is TRP_SCORE_MIN but score_by names no metric");
    }
    if (checkpoint->score_by != NULL && checkpoint->score_by[0] == '\0') {
        return trpi_fail(err, TRP_EINVALID,
                         "run.checkpoint.score_by is empty; name a metric, or NULL for the newest");
    }
    if ((unsigned)run->resume > TRP_RESUME_NEVER) {
        return trpi_fail(err, TRP_EINVALID, "run.resume is %d, which is no trp_resume",
                         (int)run->resume);
    }
    return TRP_OK;
}

/* An absolute path: the trainer may have another working directory. */
static trp_code storage_of(const char *asked, trpi_arena *arena, const char **ret_path,
                           trp_error *err) {
    char path[PATH_BYTES];
    int length = 0;
    if (asked != NULL && asked[0] == '\0') {
        return trpi_fail(err, TRP_EINVALID, "run.storage_path is empty; NULL is the default");
    }
    if (asked == NULL) {
        const char *home = getenv("HOME");
        if (home == NULL || home[0] != '/') {
            return trpi_fail(err, TRP_EINVALID,
                             "run.storage_path is not given and HOME is not set");
        }
        length = snprintf(path, sizeof(path), "%s/troupe_results", home);
    } else if (asked[0] == '/' || strstr(asked, "://") != NULL) {
        length = snprintf(path, sizeof(path), "%s", asked);
    } else {
        char cwd[PATH_BYTES];
        if (getcwd(cwd, sizeof(cwd)) == NULL) {
            return trpi_fail(err, TRP_EINVALID,
                             "run.storage_path is relative and there is no "
                             "working directory");
        }
        length = snprintf(path, sizeof(path), "%s/%s", cwd, asked);
    }
    if (length < 0 || (size_t)length >= sizeof(path)) {
        return trpi_fail(err, TRP_EINVALID, "run.storage_path is longer than %d bytes", PATH_BYTES);
    }
    *ret_path = trpi_arena_text(arena, path, (size_t)length);
    return *ret_path != NULL ? TRP_OK : trpi_fail(err, TRP_ENOMEM, "run.storage_path");
}

static trp_code name_of(const char *asked, trpi_arena *arena, const char **ret_name,
                        trp_error *err) {
    if (asked != NULL) {
        *ret_name = asked; /* its form is the store's business */
        return TRP_OK;
    }
    char name[64];
    time_t now = time(NULL);
    struct tm local;
    size_t length =
        strftime(name, sizeof(name), "train_run-%Y-%m-%d_%H-%M-%S", localtime_r(&now, &local));
    *ret_name = trpi_arena_text(arena, name, length);
    return *ret_name != NULL ? TRP_OK : trpi_fail(err, TRP_ENOMEM, "run.name");
}

static trp_code copy_resources(const trp_scaling_config *scaling, trpi_arena *arena,
                               trpi_run_plan *plan, trp_error *err) {
    plan->resources = trpi_arena_alloc(arena, scaling->resource_count * sizeof(*plan->resources));
    if (plan->resources == NULL) {
        return trpi_fail(err, TRP_ENOMEM, "scaling.resources_per_worker");
    }
    plan->resources_count = scaling->resource_count;
    for (size_t i = 0; i < scaling->resource_count; i++) {
        plan->resources[i].name = scaling->resources_per_worker[i].name;
        plan->resources[i].amount = scaling->resources_per_worker[i].amount;
    }
    return TRP_OK;
}

static void fill(const trp_train_options *options, trpi_run_plan *plan) {
    const trp_scaling_config *scaling = &options->scaling;
    const trp_run_config *run = &options->run;
    bool asks_nothing = scaling->cpus_per_worker == 0 && scaling->gpus_per_worker == 0 &&
                        scaling->resource_count == 0;
    plan->function = options->function;
    plan->config = options->config;
    plan->workers = scaling->workers > 0 ? scaling->workers : 1;
    plan->cpus = asks_nothing ? 1 : scaling->cpus_per_worker;
    plan->gpus = scaling->gpus_per_worker;
    plan->placement = scaling->placement;
    plan->max_failures = run->failure.max_failures;
    plan->keep = (uint64_t)run->checkpoint.keep;
    plan->score_by = run->checkpoint.score_by != NULL ? run->checkpoint.score_by : "";
    plan->order = run->checkpoint.order;
    plan->report_timeout_ms =
        run->report_timeout_ms > 0 ? run->report_timeout_ms : REPORT_TIMEOUT_MS;
    plan->start_timeout_ms = run->start_timeout_ms > 0 ? run->start_timeout_ms : START_TIMEOUT_MS;
}

trp_code trpi_train_config_check(const trp_train_options *options, trpi_arena *arena,
                                 trpi_run_plan *ret_plan, trp_error *err) {
    trpi_run_plan plan = {0};
    trp_train_fn run;
    if (options->function == NULL || options->function[0] == '\0') {
        return trpi_fail(err, TRP_EINVALID, "function is not given: name the train function");
    }
    trp_code code = trpi_function_find(options->function, &run, err);
    if (code == TRP_OK) {
        code = check_scaling(&options->scaling, err);
    }
    if (code == TRP_OK) {
        code = check_run(&options->run, err);
    }
    if (code == TRP_OK) {
        code = copy_resources(&options->scaling, arena, &plan, err);
    }
    if (code == TRP_OK) {
        code = storage_of(options->run.storage_path, arena, &plan.storage, err);
    }
    if (code == TRP_OK) {
        code = name_of(options->run.name, arena, &plan.name, err);
    }
    if (code == TRP_OK) {
        fill(options, &plan);
        *ret_plan = plan;
    }
    return code;
}
