/* daemons.c: processes in the background: this program again, with a hidden subcommand. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/bin/command.h"
#include "actors/bin/node_flags.h"
#include "actors/proc/head.h"
#include "actors/proc/node.h"
#include "core/base/config.h"
#include "core/net/clock.h"
#include "core/net/sock.h"
#include "core/sys/file.h"
#include "core/sys/host.h"
#include "core/sys/process.h"

#define LOG_SHOWN 2000 /* bytes of a failed daemon's log */
#define STOP_MS 5000

/* ---- Starting one ---- */

static trp_code spawn(const char **argv, size_t count, int ready_fd, int log_fd, pid_t *ret_pid,
                      trp_error *err) {
    char exe[1024], ready[16];
    trp_code code = trpi_host_exe(exe, sizeof(exe), err);
    if (code != TRP_OK) {
        return code;
    }
    trpi_format(ready, sizeof(ready), "%d", ready_fd);
    argv[count] = "--ready-fd";
    argv[count + 1] = ready;
    argv[count + 2] = NULL;
    trpi_spawn how = {.exe = exe,
                      .argv = argv,
                      .cwd = "/",
                      .in = -1,
                      .out = log_fd,
                      .err = log_fd,
                      .keep_fd = ready_fd,
                      .new_session = true};
    return trpi_process_spawn(&how, ret_pid, err);
}

/* One line, or what came before the end, the deadline or an interrupt, which returns true. */
static bool read_line(int fd, int interrupt_fd, char *line, size_t size, uint64_t deadline_ns) {
    size_t used = 0;
    bool interrupted = false;
    while (used + 1 < size && memchr(line, '\n', used) == NULL) {
        trpi_poll_item items[] = {{.fd = fd}, {.fd = interrupt_fd}};
        if (trpi_poll(items, interrupt_fd >= 0 ? 2 : 1, trpi_left_ms(deadline_ns)) != TRP_OK) {
            if (trpi_now_ns() >= deadline_ns) {
                break;
            }
            continue;
        }
        interrupted = items[1].ready;
        if (interrupted) {
            break;
        }
        ssize_t got = read(fd, line + used, size - 1 - used);
        if (got <= 0) {
            break;
        }
        used += (size_t)got;
    }
    line[used] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return interrupted;
}

static trp_code take_ready_line(const char *line, trpi_daemon *daemon, trp_error *err) {
    if (strncmp(line, "error: ", 7) == 0) {
        return trpi_fail(err, TRP_EIO, "%s", line + 7);
    }
    if (sscanf(line, "%159s %159s", daemon->words[0], daemon->words[1]) == 2) {
        return TRP_OK;
    }
    trp_buf log = {0};
    size_t skip = 0;
    if (trpi_file_read(daemon->log, 0, &log, NULL) == TRP_OK && log.size > LOG_SHOWN) {
        skip = log.size - LOG_SHOWN;
    }
    trp_code code = trpi_fail(err, TRP_EIO, "it did not become ready; its log ends with: %.*s",
                              (int)(log.size - skip), log.size ? (char *)log.data + skip : "");
    trp_buf_release(&log);
    return code;
}

static trp_code open_log(trpi_daemon *daemon, int *ret_fd, trp_error *err) {
    char root[160];
    trp_code code = trpi_session_root(root, sizeof(root), err);
    if (code != TRP_OK) {
        return code;
    }
    /* A relative one means this directory, and daemons run in "/". */
    if (setenv("TROUPE_SESSION_ROOT", root, 1) != 0) {
        return trpi_fail(err, TRP_ENOMEM, "setenv: %s", strerror(errno));
    }
    static int number;
    trpi_format(daemon->log, sizeof(daemon->log), "%s/starting-%d-%d.log", root, (int)getpid(),
                number++);
    *ret_fd = open(daemon->log, O_CREAT | O_WRONLY | O_APPEND | O_TRUNC | O_CLOEXEC, 0600);
    if (*ret_fd < 0) {
        return trpi_fail(err, TRP_EIO, "%s: %s", daemon->log, strerror(errno));
    }
    return TRP_OK;
}

void trpi_daemon_stop(const trpi_daemon *daemon) {
    trpi_pidfd_signal(daemon->pidfd, SIGTERM);
    if (!trpi_daemon_await_end(daemon->pidfd, trpi_deadline_ns(STOP_MS))) {
        trpi_kill_group(daemon->pid, SIGKILL);
        (void)trpi_daemon_await_end(daemon->pidfd, trpi_deadline_ns(STOP_MS));
    }
}

trp_code trpi_daemon_start(const char **argv, size_t count, int interrupt_fd,
                           trpi_daemon *ret_daemon, trp_error *err) {
    trpi_daemon daemon = {.pidfd = -1};
    char line[1024] = "";
    int log_fd = -1, ready[2] = {-1, -1};
    trp_code code = open_log(&daemon, &log_fd, err);
    if (code != TRP_OK) {
        return code;
    }
    if (pipe2(ready, O_CLOEXEC) != 0) {
        code = trpi_fail(err, TRP_EBUSY, "pipe: %s", strerror(errno));
        goto out;
    }
    code = spawn(argv, count, ready[1], log_fd, &daemon.pid, err);
    if (code != TRP_OK) {
        goto out;
    }
    daemon.pidfd = trpi_pidfd_open(daemon.pid);
    close(ready[1]); /* so that its death ends the line */
    ready[1] = -1;
    bool interrupted = read_line(ready[0], interrupt_fd, line, sizeof(line),
                                 trpi_deadline_ns(trpi_config(TRPI_CONFIG_START_TIMEOUT_MS)));
    code = interrupted ? trpi_fail(err, TRP_ECANCELED, "interrupted")
                       : take_ready_line(line, &daemon, err);
    if (interrupted) {
        trpi_daemon_stop(&daemon);
    } else if (code != TRP_OK) {
        trpi_kill_group(daemon.pid, SIGKILL);
        (void)trpi_daemon_await_end(daemon.pidfd, trpi_deadline_ns(1000));
    }
out:
    close(log_fd);
    close(ready[0]);
    if (ready[1] >= 0) {
        close(ready[1]);
    }
    if (code != TRP_OK) {
        (void)unlink(daemon.log);
        if (daemon.pidfd >= 0) {
            close(daemon.pidfd);
        }
        return code;
    }
    *ret_daemon = daemon;
    return TRP_OK;
}

void trpi_daemon_adopt_log(trpi_daemon *daemon, const char *role, const char *cluster) {
    char root[160], path[sizeof(daemon->log)];
    if (trpi_session_root(root, sizeof(root), NULL) != TRP_OK) {
        return;
    }
    trpi_format(path, sizeof(path), "%s/%.8s/%s-%d.log", root, cluster, role, (int)daemon->pid);
    if (rename(daemon->log, path) == 0) {
        TRPI_SET(daemon->log, path);
    }
}

bool trpi_daemon_await_end(int pidfd, uint64_t deadline_ns) {
    trpi_poll_item item = {.fd = pidfd};
    while (pidfd >= 0 && trpi_poll(&item, 1, trpi_left_ms(deadline_ns)) != TRP_OK) {
        if (trpi_now_ns() >= deadline_ns) {
            return false;
        }
    }
    return true;
}

/* ---- Being one ---- */

static int ready_fd_of(const char *text) {
    uint64_t fd;
    return text != NULL && trpi_parse_u64(text, INT32_MAX, &fd) ? (int)fd : -1;
}

int trpi_command_head(int argc, char **argv) {
    const char *host = NULL, *port = "0", *ready_fd = NULL;
    const trpi_option options[] = {
        {"--host", "IP", "address to bind", &host, NULL},
        {"--port", "N", "port to bind", &port, NULL},
        {"--ready-fd", "FD", "descriptor that hears when it is ready", &ready_fd, NULL},
    };
    const trpi_usage usage = {.command = "head-process",
                              .arguments = "",
                              .summary = "The head itself; troupe start runs it.",
                              .options = options,
                              .option_count = TRPI_COUNTOF(options)};
    int code = TRPI_EXIT_OK;
    uint64_t number;
    if (!trpi_options_parse(&usage, argc, argv, NULL, &code)) {
        return code;
    }
    if (!trpi_parse_u64(port, 65535, &number)) {
        return trpi_usage_error(usage.command, "--port: \"%s\" is no port", port);
    }
    trpi_head_options head = {
        .host = host, .port = (uint16_t)number, .ready_fd = ready_fd_of(ready_fd)};
    return trpi_head_main(&head);
}

int trpi_command_node(int argc, char **argv) {
    const char *address = NULL, *ready_fd = NULL;
    trpi_node_flags flags = {0};
    const trpi_option options[] = {
        {"--address", "HOST:PORT", "the head", &address, NULL},
        {"--ready-fd", "FD", "descriptor that hears when it is ready", &ready_fd, NULL},
        TRPI_NODE_FLAG_ROWS(flags),
    };
    const trpi_usage usage = {.command = "node-process",
                              .arguments = "",
                              .summary = "A node daemon itself; troupe start runs it.",
                              .options = options,
                              .option_count = TRPI_COUNTOF(options)};
    trpi_parsed_node_flags parsed;
    trp_error err;
    int code = TRPI_EXIT_OK;
    if (!trpi_options_parse(&usage, argc, argv, NULL, &code)) {
        return code;
    }
    if (address == NULL) {
        return trpi_usage_error(usage.command, "--address is missing");
    }
    if (trpi_node_flags_parse(&flags, &parsed, &err) != TRP_OK) {
        return trpi_usage_error(usage.command, "%s", err.message);
    }
    parsed.options.address = address;
    parsed.options.ready_fd = ready_fd_of(ready_fd);
    code = trpi_node_main(&parsed.options);
    trpi_node_flags_release(&parsed);
    return code;
}
