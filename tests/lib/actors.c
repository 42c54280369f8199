#include "tests/lib/actors.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/lib/child.h"
#include "tests/lib/cluster.h"
#include "tests/lib/methods.h"

enum { CALL_TIMEOUT_MS = 30000 };

/* ---- The subject ---- */

typedef struct subject {
    long count;
} subject;

static trp_code subject_start(trp_context *ctx, void *state, trp_bytes args, trp_error *err) {
    char what[32];
    test_text_of(args, what, sizeof what);
    if (strcmp(what, "fail") == 0) {
        err->code = TRP_EUSER;
        snprintf(err->message, sizeof err->message, "asked to fail at start");
        return TRP_EUSER;
    }
    if (strcmp(what, "crash") == 0) {
        raise(SIGSEGV);
    }
    if (strcmp(what, "sleep") == 0) {
        test_sleep_ms(3600000);
    }
    return TRP_OK;
}

static trp_code subject_add(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    return trp_buf_printf(reply, "%ld", ++((subject *)state)->count);
}

static trp_code subject_crash_at(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                                 trp_error *err) {
    if (((subject *)state)->count + 1 == test_number_of(args)) {
        raise(SIGKILL);
    }
    return subject_add(ctx, state, args, reply, err);
}

static trp_code subject_pid(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                            trp_error *err) {
    return trp_buf_printf(reply, "%d", (int)getpid());
}

static trp_code subject_sleep(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                              trp_error *err) {
    test_sleep_ms(test_number_of(args));
    return trp_buf_printf(reply, "slept");
}

static trp_code subject_exit(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                             trp_error *err) {
    exit((int)test_number_of(args));
}

static trp_code subject_raise(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                              trp_error *err) {
    fprintf(stderr, "subject raises %ld\n", test_number_of(args));
    raise((int)test_number_of(args));
    return TRP_OK;
}

static trp_code subject_leave(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                              trp_error *err) {
    trp_context_exit(ctx);
    return trp_buf_printf(reply, "leaving");
}

static trp_code subject_fail(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                             trp_error *err) {
    err->code = TRP_EUSER;
    snprintf(err->message, sizeof err->message, "asked to fail");
    return TRP_EUSER;
}

static trp_code subject_getenv(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                               trp_error *err) {
    char name[64];
    const char *value = getenv(test_text_of(args, name, sizeof name));
    return trp_buf_printf(reply, "%s", value != NULL ? value : "(unset)");
}

static trp_code subject_devices(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                                trp_error *err) {
    return subject_getenv(ctx, state, trp_bytes_of("CUDA_VISIBLE_DEVICES"), reply, err);
}

static trp_code subject_print(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                              trp_error *err) {
    char text[256];
    test_text_of(args, text, sizeof text);
    printf("out: %s\n", text);
    fprintf(stderr, "err: %s\n", text);
    return TRP_OK;
}

static trp_code subject_spawn(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                              trp_error *err) {
    trp_runtime *rt = trp_context_runtime(ctx, err);
    trp_actor child = {0};
    if (rt == NULL) {
        return err->code;
    }
    trp_code code = trp_spawn(rt, "subject", (trp_bytes){0}, NULL, &child, err);
    if (code == TRP_OK) {
        code = trp_actor_wait_alive(rt, child, CALL_TIMEOUT_MS, err);
    }
    return code != TRP_OK ? code : trp_buf_printf(reply, "%llu", (unsigned long long)child.id);
}

static trp_code subject_fork(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                             trp_error *err) {
    pid_t pid;
    trp_code code = test_stray_start(false, &pid, err);
    return code != TRP_OK ? code : trp_buf_printf(reply, "%d", (int)pid);
}

static trp_code subject_echo(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                             trp_error *err) {
    return trp_buf_append(reply, args.data, args.size);
}

static const trp_method subject_methods[] = {
    {"add", subject_add},         {"crash_at", subject_crash_at}, {"pid", subject_pid},
    {"sleep", subject_sleep},     {"exit", subject_exit},         {"raise", subject_raise},
    {"leave", subject_leave},     {"fail", subject_fail},         {"getenv", subject_getenv},
    {"devices", subject_devices}, {"print", subject_print},       {"spawn", subject_spawn},
    {"fork", subject_fork},       {"echo", subject_echo},         {NULL, NULL},
};

const trp_actor_type test_subject_type = {
    .name = "subject",
    .state_size = sizeof(subject),
    .methods = subject_methods,
    .start = subject_start,
};

const trp_actor_type *const test_types[] = {&test_subject_type, NULL};

/* ---- Short ways to use it ---- */

trp_actor test_spawn(trp_runtime *rt, const trp_spawn_options *options, const char *start) {
    trp_actor actor = {0};
    TEST_OK(trp_spawn(rt, "subject", trp_bytes_of(start), options, &actor, err));
    return actor;
}

trp_ref test_call(trp_runtime *rt, trp_actor actor, const char *method, const char *argument) {
    trp_ref ref = {0};
    TEST_OK(trp_call(rt, actor, method, trp_bytes_of(argument), 0, &ref, err));
    return ref;
}

const char *test_ask(trp_runtime *rt, trp_actor actor, const char *method, const char *argument,
                     trp_code *ret_code, trp_error *err) {
    static char answer[4096];
    trp_buf reply = {0};
    trp_error own = {0};
    if (err == NULL) {
        err = &own;
    }
    trp_code code =
        trp_ask(rt, actor, method, trp_bytes_of(argument), CALL_TIMEOUT_MS, &reply, err);
    if (ret_code != NULL) {
        *ret_code = code;
    } else {
        test_check_ok(code, err, method, __FILE__, __LINE__);
    }
    test_text_of(code == TRP_OK ? trp_buf_bytes(&reply) : (trp_bytes){0}, answer, sizeof answer);
    trp_buf_release(&reply);
    return answer;
}

long test_ask_number(trp_runtime *rt, trp_actor actor, const char *method, const char *argument) {
    return strtol(test_ask(rt, actor, method, argument, NULL, NULL), NULL, 10);
}

trp_death test_wait_death(trp_runtime *rt, trp_actor actor) {
    trp_death death;
    do {
        TEST_OK(trp_next_death(rt, CALL_TIMEOUT_MS, &death, err));
    } while (death.actor.id != actor.id);
    return death;
}
