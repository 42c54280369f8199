/* start.c: troupe start. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "actors/bin/command.h"
#include "actors/bin/node_flags.h"
#include "actors/proc/client.h"
#include "actors/proc/node_resources.h"
#include "core/base/config.h"
#include "core/net/clock.h"
#include "core/net/sock.h"

#define ARGV_MAX 32

typedef struct start_flags {
    bool is_head, blocks;
    const char *port, *address;
    trpi_node_flags node;
} start_flags;

typedef struct started {
    trpi_daemon head, node;
    bool has_head, has_node;
    char address[160]; /* that other processes of this host use */
    int interrupt_fd;  /* readable when a signal asks for the end */
} started;

/* ---- Starting ---- */

static trp_code start_head(const start_flags *flags, started *s, trp_error *err) {
    char port[16];
    trpi_format(port, sizeof(port), "%u", (unsigned)trpi_config(TRPI_CONFIG_PORT));
    const char *argv[ARGV_MAX] = {"troupe", "head-process", "--port",
                                  flags->port ? flags->port : port};
    size_t count = 4;
    if (flags->node.host != NULL) {
        argv[count++] = "--host";
        argv[count++] = flags->node.host;
    }
    trp_code code = trpi_daemon_start(argv, count, s->interrupt_fd, &s->head, err);
    if (code != TRP_OK) {
        return trpi_context(err, code, "head");
    }
    trpi_daemon_adopt_log(&s->head, "head", s->head.words[1]);
    s->has_head = true;
    /* Bound to every address, it is reached by any. */
    const char *bound = s->head.words[0];
    bool is_any = strncmp(bound, "0.0.0.0:", 8) == 0;
    trpi_format(s->address, sizeof(s->address), "%s%s", is_any ? "127.0.0.1:" : "",
                is_any ? bound + 8 : bound);
    return TRP_OK;
}

static trp_code start_node(const start_flags *flags, started *s, trp_error *err) {
    const char *argv[ARGV_MAX] = {"troupe", "node-process", "--address", s->address};
    trpi_node_flags node = flags->node;
    if (node.host != NULL && strcmp(node.host, "0.0.0.0") == 0) {
        return trpi_fail(err, TRP_EINVALID,
                         "--host 0.0.0.0: give the one address that other hosts reach this one by");
    }
    size_t count = trpi_node_flags_append(&node, argv, 4);
    trp_code code = trpi_daemon_start(argv, count, s->interrupt_fd, &s->node, err);
    if (code != TRP_OK) {
        return trpi_context(err, code, "node daemon");
    }
    trpi_daemon_adopt_log(&s->node, "node", s->node.words[1]);
    s->has_node = true;
    return TRP_OK;
}

static trp_code check_flags(start_flags *flags, trp_error *err) {
    uint64_t port;
    trpi_parsed_node_flags parsed;
    if (flags->is_head == (flags->address != NULL)) {
        return trpi_fail(
            err, TRP_EINVALID,
            "say %s--head to start a cluster here, or --address HOST:PORT to join one%s",
            flags->is_head ? "either " : "", flags->is_head ? ", not both" : "");
    }
    if (flags->port != NULL && (!flags->is_head || !trpi_parse_u64(flags->port, 65535, &port))) {
        return trpi_fail(err, TRP_EINVALID, "--port: %s",
                         flags->is_head ? "not a port number" : "only with --head");
    }
    trp_code code = trpi_node_flags_parse(&flags->node, &parsed, err);
    if (code == TRP_OK) { /* what the node would refuse, before a head has been started for it */
        trpi_node_resources resources;
        code = trpi_node_resources_init(&parsed.options, &resources, err);
        trpi_node_flags_release(&parsed);
    }
    return code;
}

/* ---- What is said ---- */

static void print_started(const start_flags *flags, const started *s) {
    const char *cluster = s->node.words[1];
    if (s->has_head) {
        printf("head      %s, pid %d, log %s\n", s->head.words[0], (int)s->head.pid, s->head.log);
    }
    printf("node      %s%s, pid %d, log %s\n", s->node.words[0][0] == 'n' ? "" : "n",
           s->node.words[0], (int)s->node.pid, s->node.log);
    printf("cluster   %s\n\n", cluster);
    if (s->has_head && flags->node.host != NULL) {
        printf("on other machines   troupe start --address %s --host THEIR-IP\n", s->head.words[0]);
    } else if (s->has_head) {
        printf("another node here   troupe start --address %s\n", s->address);
        printf("on other machines   start the head with --host IP first: this one listens on this "
               "host only\n");
    }
    printf("what it has         troupe status%s%s\n", s->has_head ? "" : " --address ",
           s->has_head ? "" : s->address);
    printf("programs find it by TROUPE_ADDRESS=%s\n", s->address);
    printf("to stop it          troupe stop --cluster %.8s\n", cluster);
    fflush(stdout);
}

/* ---- Interrupts ----
 *
 * From before the first daemon is started until the end, the signals that would end this command
 * wait in a descriptor: half a cluster is undone first. */

static int hold_signals(sigset_t *ret_signals) {
    sigemptyset(ret_signals);
    sigaddset(ret_signals, SIGINT);
    sigaddset(ret_signals, SIGTERM);
    sigaddset(ret_signals, SIGHUP);
    sigprocmask(SIG_BLOCK, ret_signals, NULL);
    return signalfd(-1, ret_signals, SFD_CLOEXEC);
}

static bool is_interrupted(const started *s) {
    trpi_poll_item item = {.fd = s->interrupt_fd};
    return trpi_poll(&item, 1, 0) == TRP_OK && item.ready;
}

/* What was started for nothing must not stay. */
static void undo(const started *s) {
    size_t stopped;
    trp_error err;
    if (s->has_head && trpi_stop_clusters(s->head.words[1], NULL, &stopped, &err) != TRP_OK) {
        fprintf(stderr, "troupe start: the head still runs: %s\n", err.message);
    }
    if (!s->has_head && s->has_node) {
        trpi_daemon_stop(&s->node);
    }
}

/* --block: until a signal asks for the end, or one of the daemons is gone. */
static int block(const started *s) {
    trpi_poll_item items[] = {
        {.fd = s->interrupt_fd}, {.fd = s->node.pidfd}, {.fd = s->head.pidfd}};
    while (trpi_poll(items, s->has_head ? 3 : 2, -1) != TRP_OK) {
    }
    if (!items[0].ready) {
        bool is_node = items[1].ready;
        fprintf(stderr, "troupe start: the %s has ended; its log: %s\n", is_node ? "node" : "head",
                is_node ? s->node.log : s->head.log);
    }
    trp_error err;
    size_t stopped = 0;
    if (trpi_stop_clusters(s->node.words[1], stdout, &stopped, &err) != TRP_OK) {
        return trpi_failed("start", &err);
    }
    return items[0].ready ? TRPI_EXIT_OK : TRPI_EXIT_FAILED;
}

static trp_code start(const start_flags *flags, started *s, trp_error *err) {
    trp_code code;
    if (flags->is_head) {
        code = start_head(flags, s, err);
    } else {
        code = trpi_client_address(flags->address, s->address, sizeof(s->address), err);
    }
    if (code == TRP_OK) {
        code = start_node(flags, s, err);
    }
    if (code == TRP_OK && !flags->blocks && is_interrupted(s)) {
        code = trpi_fail(err, TRP_ECANCELED, "interrupted");
    }
    return code;
}

/* A node that could not join may have found nobody there, which has an exit code of its own. */
static int failed(const start_flags *flags, const started *s, trp_error *err) {
    trp_runtime *rt = NULL;
    if (!flags->is_head && err->code != TRP_ECANCELED &&
        trpi_connect(s->address, &rt, NULL) == TRP_EDISCONNECTED) {
        err->code = TRP_EDISCONNECTED;
    }
    trpi_client_close(&rt, true);
    return trpi_failed("start", err);
}

int trpi_command_start(int argc, char **argv) {
    start_flags flags = {0};
    const trpi_option options[] = {
        {"--head", NULL, "start a head here, and a node beside it", NULL, &flags.is_head},
        {"--port", "N", "port of the head (default: 6390; 0: any free one)", &flags.port, NULL},
        {"--address", "HOST:PORT", "join the cluster of this head", &flags.address, NULL},
        TRPI_NODE_FLAG_ROWS(flags.node),
        {"--block", NULL, "stay in the foreground; Ctrl-C stops what was started", NULL,
         &flags.blocks},
    };
    const trpi_usage usage = {
        .command = "start",
        .arguments = "",
        .summary = "Starts a head and a node on this host, or a node that joins a cluster.",
        .details = "  troupe start --head\n  troupe start --address 10.0.0.1:6390 --host 10.0.0.2",
        .example = "troupe start --head --num-cpus 8",
        .options = options,
        .option_count = TRPI_COUNTOF(options)};
    started s = {.head.pidfd = -1, .node.pidfd = -1};
    trp_error err;
    int exit_code = TRPI_EXIT_OK;
    if (!trpi_options_parse(&usage, argc, argv, NULL, &exit_code)) {
        return exit_code;
    }
    if (check_flags(&flags, &err) != TRP_OK) {
        return trpi_usage_error(usage.command, "%s", err.message);
    }
    trpi_session_sweep();
    sigset_t signals;
    s.interrupt_fd = hold_signals(&signals);
    if (start(&flags, &s, &err) != TRP_OK) {
        undo(&s);
        sigprocmask(SIG_UNBLOCK, &signals, NULL); /* an interrupt ends us here, as it should */
        return failed(&flags, &s, &err);
    }
    print_started(&flags, &s);
    return flags.blocks ? block(&s) : TRPI_EXIT_OK;
}
