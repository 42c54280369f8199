/* A package becomes a directory: tar unpacks it beside its place, and it is moved there when it is
 * whole.
 *
 * What tar is not to do stands in its options: take names that lead out of the directory (it
 * refuses "..", drops a leading slash, and makes links that lead out last of all), take owners or
 * set-user-id bits from the archive, or read options from the environment. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors/proc/node_blobs.h"
#include "actors/proc/node_parts.h"
#include "core/base/config.h"
#include "core/net/clock.h"
#include "core/sys/file.h"
#include "core/sys/process.h"

#define UNPACK_STARTS 10 /* of what a start may take */

static void staging_path(const trpi_node *node, const trpi_blob *blob, char *out, size_t size) {
    trpi_format(out, size, "%s/packages/%s.part", node->dir, blob->hash);
}

/* What tar writes on stderr: a file, so that it never waits for us to read it. */
static void words_path(const trpi_node *node, const trpi_blob *blob, char *out, size_t size) {
    trpi_format(out, size, "%s/blobs/%s.err", node->dir, blob->hash);
}

static trp_code spawn_tar(trpi_node *node, trpi_blob *blob, const char *tar_file, trp_error *err) {
    char staging[256], words[256], tar[256];
    const char *argv[] = {"tar",
                          "-xf",
                          tar_file,
                          "--no-same-owner",
                          "--no-same-permissions",
                          "--no-overwrite-dir",
                          "--touch",
                          "--force-local",
                          NULL};
    const char *envp[] = {"PATH=" TRPI_TOOLS_PATH, "LC_ALL=C", NULL};
    staging_path(node, blob, staging, sizeof staging);
    words_path(node, blob, words, sizeof words);
    trp_code code = trpi_dir_remove(staging, err); /* of an attempt that failed */
    if (code == TRP_OK) {
        code = trpi_dir_make(staging, 0700, err);
    }
    if (code == TRP_OK) {
        code = trpi_program_find("tar", NULL, TRPI_TOOLS_PATH, tar, sizeof tar, err);
    }
    if (code != TRP_OK) {
        return code;
    }
    int fd = open(words, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        return trpi_fail(err, TRP_EIO, "create %s: %s", words, strerror(errno));
    }
    trpi_spawn spawn = {.exe = tar,
                        .argv = argv,
                        .envp = envp,
                        .cwd = staging,
                        .in = -1,
                        .out = -1,
                        .err = fd,
                        .keep_fd = -1,
                        .own_group = true,
                        .die_with_parent = true};
    code = trpi_process_spawn(&spawn, &blob->tar, err);
    close(fd);
    return code;
}

void trpi_unpack_start(trpi_node *node, trpi_blob *blob, const char *tar_file) {
    trp_error err = {0};
    blob->phase = TRPI_BLOB_UNPACKING;
    blob->moved_ns = trpi_now_ns();
    if (spawn_tar(node, blob, tar_file, &err) != TRP_OK) {
        trpi_blob_fail(node, blob, &err);
        return;
    }
    trpi_blob_timer(node, blob, trpi_config(TRPI_CONFIG_START_TIMEOUT_MS));
}

void trpi_unpack_due(trpi_node *node, trpi_blob *blob, uint64_t now_ns) {
    uint64_t start_ms = trpi_config(TRPI_CONFIG_START_TIMEOUT_MS);
    if (now_ns - blob->moved_ns >= UNPACK_STARTS * start_ms * TRPI_NS_PER_MS) {
        trpi_kill_group(blob->tar, SIGKILL); /* its end says the rest */
    } else {
        trpi_blob_timer(node, blob, start_ms);
    }
}

/* The first line is the reason; the rest says that tar stops. */
static void first_words(const char *path, char *out, size_t size) {
    trp_buf text = {0};
    out[0] = '\0';
    if (trpi_file_read(path, 64 * 1024, &text, NULL) == TRP_OK && text.size > 0) {
        trpi_format(out, size, "%.*s", (int)strcspn((char *)text.data, "\n"), (char *)text.data);
    }
    trp_buf_release(&text);
}

static trp_code move_in(const trpi_node *node, const trpi_blob *blob, int status, trp_error *err) {
    char staging[256], path[256], words[256], said[400], ended[64];
    staging_path(node, blob, staging, sizeof staging);
    trpi_blob_path(node, blob, path, sizeof path);
    if (status != 0) {
        words_path(node, blob, words, sizeof words);
        first_words(words, said, sizeof said);
        trpi_wait_status_text(status, ended, sizeof ended);
        return trpi_fail(err, TRP_EIO, "unpack: %s%star ended with %s", said, said[0] ? "; " : "",
                         ended);
    }
    if (rename(staging, path) != 0) {
        return trpi_fail(err, TRP_EIO, "%s: %s", path, strerror(errno));
    }
    return TRP_OK;
}

void trpi_unpack_ended(trpi_node *node, trpi_blob *blob, int status) {
    char path[256];
    trp_error err = {0};
    blob->tar = 0;
    if (blob->phase != TRPI_BLOB_UNPACKING) {
        return;
    }
    trp_code code = move_in(node, blob, status, &err);
    words_path(node, blob, path, sizeof path);
    (void)unlink(path);
    if (code == TRP_OK) {
        trpi_format(path, sizeof path, "%s/blobs/%s.tar", node->dir, blob->hash);
        (void)unlink(path);
        trpi_blob_ready(node, blob);
        return;
    }
    staging_path(node, blob, path, sizeof path);
    (void)!trpi_dir_remove(path, NULL); /* if not now, then with the session directory */
    trpi_blob_fail(node, blob, &err);
}
