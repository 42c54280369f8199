/* own_loop.c: a program that has an event loop already. Results and deaths come in through two
 * descriptors that it polls beside its own, here a timer; nothing blocks, nothing is a callback. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <troupe/runtime.h>
#include <unistd.h>

/* Sleeps for as many milliseconds as the text says. */
static trp_code nap(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply, trp_error *err) {
    char text[16];
    int ms;
    (void)ctx, (void)state;
    snprintf(text, sizeof text, "%.*s", (int)args.size, (const char *)args.data);
    if (sscanf(text, "%d", &ms) != 1 || ms < 0) {
        return trp_raise(err, "ValueError", "\"%s\" is no time", text);
    }
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
    return trp_buf_printf(reply, "slept %d ms", ms);
}

static const trp_method methods[] = {{.name = "nap", .run = nap}, {.name = NULL}};
static const trp_actor_type sleeper = {.name = "sleeper", .methods = methods};
static const trp_actor_type *const types[] = {&sleeper, NULL};

/* An actor that is watched, and a call that will be heard of. */
static trp_code begin(trp_runtime *rt, const char *ms, trp_actor *ret_actor, trp_error *err) {
    trp_ref ref;
    trp_code code = trp_spawn(rt, "sleeper", (trp_bytes){0}, NULL, ret_actor, err);
    if (code == TRP_OK) {
        code = trp_monitor(rt, *ret_actor, err);
    }
    if (code == TRP_OK) {
        code = trp_call(rt, *ret_actor, "nap", trp_bytes_of(ms), 0, &ref, err);
    }
    return code == TRP_OK ? trp_notify(rt, ref, err) : code;
}

/* All results that are there; returns how many. */
static int take_results(trp_runtime *rt) {
    trp_ref ref;
    trp_bytes value;
    trp_error err;
    int count = 0;
    for (; trp_next_done(rt, 0, &ref, NULL) == TRP_OK; count++) {
        if (trp_get(rt, ref, 0, &value, &err) == TRP_OK) {
            printf("result: %.*s\n", (int)value.size, (const char *)value.data);
        } else {
            printf("failed: %s\n", trp_code_text(err.code));
        }
        trp_ref_release(rt, ref);
    }
    return count;
}

static int take_deaths(trp_runtime *rt) {
    trp_death death;
    int count = 0;
    for (; trp_next_death(rt, 0, &death, NULL) == TRP_OK; count++) {
        printf("death: %s\n", death.message);
    }
    return count;
}

int main(void) {
    const struct itimerspec soon = {.it_value = {.tv_nsec = 300000000}};
    trp_actor quick, slow;
    trp_runtime *rt;
    trp_error err;
    if (trp_init(types, NULL, &rt, &err) || begin(rt, "100", &quick, &err) ||
        begin(rt, "60000", &slow, &err)) {
        return fprintf(stderr, "own_loop: %s\n", err.message), 1;
    }
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    if (timer < 0 || timerfd_settime(timer, 0, &soon, NULL) != 0) {
        return perror("own_loop: timer"), 1;
    }
    struct pollfd fds[] = {{.fd = trp_done_fd(rt), .events = POLLIN},
                           {.fd = trp_deaths_fd(rt), .events = POLLIN},
                           {.fd = timer, .events = POLLIN}};
    for (int results = 0, deaths = 0; results < 2 || deaths < 1;) {
        int ready = poll(fds, 3, 20000);
        if (ready < 0 && errno == EINTR) {
            continue;
        }
        if (ready <= 0) {
            return fprintf(stderr, "own_loop: nothing has happened for 20 s\n"), 1;
        }
        results += fds[0].revents ? take_results(rt) : 0;
        deaths += fds[1].revents ? take_deaths(rt) : 0;
        if (fds[2].revents) {
            printf("timer: that is too long\n");
            fds[2].fd = -1; /* poll() passes over it */
            if (trp_kill(rt, slow, false, &err)) {
                return fprintf(stderr, "own_loop: %s\n", err.message), 1;
            }
        }
    }
    close(timer);
    trp_shutdown(&rt);
    return 0;
}
