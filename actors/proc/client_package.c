#include "actors/proc/client_package.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/base/hash.h"
#include "core/net/clock.h"
#include "core/sys/file.h"
#include "core/sys/process.h"

#define PATTERNS_MAX 1000
#define OPTIONS_MAX 16 /* of tar, before the patterns */
#define IGNORE_BYTES_MAX ((size_t)1 << 20)
#define CHUNK_BYTES ((size_t)256 * 1024)
#define LARGEST 3
#define END_MS 5000 /* for tar to end, once it has closed its pipe */
#define MIB (1024.0 * 1024.0)

/* ---- The executable ---- */

#define SELF "/proc/self/exe" /* the file that runs, whatever its name names by now */

trp_code trpi_package_of_exe(trpi_package *ret_package, trp_error *err) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static trpi_package known;
    trpi_file_id id;
    trp_code code = TRP_OK;
    pthread_mutex_lock(&lock);
    if (known.hash[0] == '\0') {
        int fd = open(SELF, O_RDONLY | O_CLOEXEC);
        code = fd < 0 ? trpi_fail(err, TRP_EIO, "open %s: %s", SELF, strerror(errno))
                      : trpi_file_id_of(fd, SELF, &id, err);
        if (code == TRP_OK) {
            code = trpi_content_hash(fd, SELF, known.hash, err);
        }
        if (code == TRP_OK) {
            known.size = id.size;
            known.fd = -1;
            known.path = SELF;
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    *ret_package = known;
    pthread_mutex_unlock(&lock);
    return code;
}

/* ---- What tar is told ---- */

typedef struct packing {
    char dir[PATH_MAX], tar[PATH_MAX];
    char *patterns[PATTERNS_MAX]; /* "--exclude=..." and what makes it anchored or not */
    size_t pattern_count;
    int words; /* what tar says on stderr: a file without a name */
    int out;   /* our end of the pipe */
    pid_t pid;
    uint64_t bytes; /* that came */
} packing;

static trp_code add_pattern(packing *p, char *line, trp_error *err) {
    size_t length = strcspn(line, "\r\n");
    line[length] = '\0';
    while (length > 1 && strchr("/ \t", line[length - 1]) != NULL) {
        line[--length] = '\0'; /* "build/" is build */
    }
    if (length == 0 || line[0] == '#') {
        return TRP_OK;
    }
    if (line[0] == '!') {
        return trpi_fail(err, TRP_EINVALID,
                         "%s/.troupeignore: \"%.64s\": what is left out can't be taken in again",
                         p->dir, line);
    }
    if (p->pattern_count + 2 > PATTERNS_MAX) {
        return trpi_fail(err, TRP_EINVALID, "%s/.troupeignore: more than %d patterns", p->dir,
                         PATTERNS_MAX / 2);
    }
    char option[PATH_MAX];
    bool at_top = line[0] == '/';
    trpi_format(option, sizeof(option), "--exclude=%s%s", at_top ? "." : "", line);
    p->patterns[p->pattern_count++] = trpi_strdup(at_top ? "--anchored" : "--no-anchored");
    p->patterns[p->pattern_count++] = trpi_strdup(option);
    return TRP_OK;
}

static trp_code read_patterns(packing *p, trp_error *err) {
    char path[PATH_MAX + 16];
    trp_buf text = {0};
    trpi_format(path, sizeof(path), "%s/.troupeignore", p->dir);
    trp_code code = trpi_file_read(path, IGNORE_BYTES_MAX, &text, err);
    if (code == TRP_ENOTFOUND) {
        code = TRP_OK;
    } else if (code == TRP_OK) {
        char *rest = (char *)text.data, *line;
        while (code == TRP_OK && (line = strsep(&rest, "\n")) != NULL) {
            code = add_pattern(p, line, err);
        }
    }
    trp_buf_release(&text);
    return code;
}

/* Nothing of when, by whom and in which order the files were made gets into the archive. A
 * directory that its owner may not write could not be removed from a node. */
static trp_code start_tar(packing *p, const char *mode, const char *file, trp_error *err) {
    const char *argv[OPTIONS_MAX + PATTERNS_MAX + 2] = {"tar",
                                                        mode,
                                                        file,
                                                        "--format=gnu",
                                                        "--sort=name",
                                                        "--mtime=@0",
                                                        "--owner=0",
                                                        "--group=0",
                                                        "--numeric-owner",
                                                        "--mode=u+rwX",
                                                        "--force-local",
                                                        "--exclude=.git"};
    const char *envp[] = {"PATH=" TRPI_TOOLS_PATH, "LC_ALL=C", NULL};
    size_t count = 12;
    int fds[2];
    for (size_t i = 0; i < p->pattern_count; i++) {
        argv[count++] = p->patterns[i];
    }
    argv[count] = ".";
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return trpi_fail(err, TRP_EBUSY, "pipe: %s", strerror(errno));
    }
    trpi_spawn spawn = {.exe = p->tar,
                        .argv = argv,
                        .envp = envp,
                        .cwd = p->dir,
                        .in = -1,
                        .out = fds[1],
                        .err = p->words,
                        .keep_fd = -1,
                        .own_group = true,
                        .die_with_parent = true};
    trp_code code = trpi_process_spawn(&spawn, &p->pid, err);
    close(fds[1]);
    p->out = fds[0];
    if (code != TRP_OK) {
        close(p->out);
    }
    return code;
}

/* Reads once, waiting for as long as a start may take. *ret_size 0: the end. */
static trp_code read_tar(packing *p, char *chunk, size_t *ret_size, trp_error *err) {
    uint64_t patience_ms = trpi_config(TRPI_CONFIG_START_TIMEOUT_MS);
    uint64_t deadline_ns = trpi_deadline_ns(patience_ms);
    for (;;) {
        struct pollfd item = {.fd = p->out, .events = POLLIN};
        int ready = poll(&item, 1, trpi_left_ms(deadline_ns));
        if (ready == 0) {
            return trpi_fail(err, TRP_ETIMEOUT, "reading %s has not moved on for %.1f s", p->dir,
                             (double)patience_ms / 1e3);
        }
        ssize_t size = ready < 0 ? -1 : read(p->out, chunk, CHUNK_BYTES);
        if (size >= 0) {
            *ret_size = (size_t)size;
            return TRP_OK;
        }
        if (errno != EINTR) {
            return trpi_fail(err, TRP_EIO, "read from tar: %s", strerror(errno));
        }
    }
}

static void first_words(int words, char *out, size_t size) {
    ssize_t got = pread(words, out, size - 1, 0);
    out[TRPI_MAX(got, 0)] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

/* As waitpid(), but 0 when the time has passed. */
static pid_t await_end(pid_t pid, int *status, uint64_t timeout_ms) {
    struct pollfd item = {.fd = trpi_pidfd_open(pid), .events = POLLIN};
    uint64_t deadline_ns = trpi_deadline_ns(timeout_ms);
    pid_t got;
    while ((got = waitpid(pid, status, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
        int left_ms = trpi_left_ms(deadline_ns);
        if (left_ms == 0) {
            break;
        }
        (void)poll(&item, item.fd >= 0, item.fd >= 0 ? left_ms : 5);
    }
    if (item.fd >= 0) {
        close(item.fd);
    }
    return got;
}

/* The end of its pipe has come already, or it is to be killed. */
static trp_code end_tar(packing *p, bool must_die, trp_error *err) {
    char said[400], ended[64];
    int status = 0;
    close(p->out);
    pid_t got = must_die ? 0 : await_end(p->pid, &status, END_MS);
    if (got == 0) {
        trpi_kill_group(p->pid, SIGKILL);
        (void)await_end(p->pid, &status, END_MS);
        return must_die ? TRP_OK : trpi_fail(err, TRP_ETIMEOUT, "tar does not end");
    }
    first_words(p->words, said, sizeof(said));
    if (got < 0) {
        /* A program that ignores SIGCHLD, or waits for whatever comes, has taken its status: then
         * what tar said decides. */
        status = said[0] != '\0' ? 1 << 8 : 0;
    }
    if (status == 0) {
        return TRP_OK;
    }
    trpi_wait_status_text(status, ended, sizeof(ended));
    return trpi_fail(err, TRP_EIO, "%s%star ended with %s", said, said[0] ? "; " : "", ended);
}

/* ---- Too much ---- */

typedef struct largest_file {
    uint64_t size;
    char name[200];
} largest_file;

typedef struct census {
    uint64_t files, bytes;
    largest_file largest[LARGEST];
} census;

/* "-rw-r--r-- 0/0   12345 1970-01-01 00:00 ./name" */
static void count_line(census *all, char *line) {
    char *name = line;
    for (int i = 0; i < 5 && name != NULL; i++) {
        name = strchr(name + strspn(name, " "), ' ');
    }
    char *size_text = strchr(line, ' ');
    size_text = size_text ? strchr(size_text + strspn(size_text, " "), ' ') : NULL;
    if (line[0] != '-' || name == NULL || size_text == NULL) {
        return;
    }
    largest_file file = {.size = strtoull(size_text, NULL, 10)};
    TRPI_SET(file.name, name + 1);
    all->files++;
    all->bytes += file.size;
    for (size_t i = 0; i < LARGEST; i++) {
        if (file.size > all->largest[i].size) {
            largest_file smaller = all->largest[i];
            all->largest[i] = file;
            file = smaller;
        }
    }
}

/* Into /dev/null tar reads no file, and tells what it would have packed. */
static trp_code take_census(packing *p, census *all, trp_error *err) {
    char *chunk = trpi_alloc(CHUNK_BYTES);
    trp_buf text = {0};
    size_t size = 1, used = 0;
    trp_code code = start_tar(p, "-cvvf", "/dev/null", err);
    while (code == TRP_OK && size > 0) {
        code = read_tar(p, chunk, &size, err);
        if (code == TRP_OK && trp_buf_append(&text, chunk, size) != TRP_OK) {
            code = trpi_fail(err, TRP_ENOMEM, "list of files");
        }
        char *line = (char *)text.data + used, *end;
        while (code == TRP_OK && text.size > used &&
               (end = memchr(line, '\n', text.size - used)) != NULL) {
            *end = '\0';
            count_line(all, line);
            used += (size_t)(end + 1 - line);
            line = end + 1;
        }
        if (used == text.size) {
            trp_buf_clear(&text);
            used = 0;
        }
    }
    if (p->pid > 0) {
        trp_code ended = end_tar(p, code != TRP_OK, code == TRP_OK ? err : NULL);
        code = code == TRP_OK ? ended : code;
    }
    trp_buf_release(&text);
    free(chunk);
    return code;
}

static trp_code too_large(packing *p, uint64_t max, trp_error *err) {
    census all = {0};
    char names[700] = "";
    p->pid = 0;
    if (take_census(p, &all, NULL) != TRP_OK) {
        return trpi_fail(err, TRP_EINVALID, "%s has more than %.1f MiB (TROUPE_PACKAGE_BYTES_MAX)",
                         p->dir, (double)max / MIB);
    }
    for (size_t i = 0; i < LARGEST && all.largest[i].name[0] != '\0'; i++) {
        size_t used = strlen(names);
        trpi_format(names + used, sizeof(names) - used, "%s%s %.1f MiB", i ? ", " : "",
                    all.largest[i].name, (double)all.largest[i].size / MIB);
    }
    return trpi_fail(err, TRP_EINVALID,
                     "%s has %.1f MiB in %llu files, and %.1f are allowed "
                     "(TROUPE_PACKAGE_BYTES_MAX); the largest: %s; .troupeignore leaves files out",
                     p->dir, (double)all.bytes / MIB, (unsigned long long)all.files,
                     (double)max / MIB, names);
}

/* ---- The archive ---- */

/* A file without a name: it goes with its last descriptor. */
static trp_code open_nameless(int *ret_fd, trp_error *err) {
    char path[PATH_MAX];
    const char *dir = getenv("TMPDIR");
    trpi_format(path, sizeof(path), "%s/troupe-XXXXXX", dir != NULL && dir[0] ? dir : "/tmp");
    *ret_fd = mkostemp(path, O_CLOEXEC);
    if (*ret_fd < 0) {
        return trpi_fail(err, TRP_EIO, "create %s: %s", path, strerror(errno));
    }
    (void)unlink(path);
    return TRP_OK;
}

static trp_code pack(packing *p, int fd, trpi_hasher *hasher, trp_error *err) {
    uint64_t max = trpi_config(TRPI_CONFIG_PACKAGE_BYTES_MAX);
    char *chunk = trpi_alloc(CHUNK_BYTES);
    size_t size = 1;
    trp_code code = start_tar(p, "-cf", "-", err);
    if (code != TRP_OK) {
        free(chunk);
        return code;
    }
    while (code == TRP_OK && size > 0 && p->bytes <= max) {
        code = read_tar(p, chunk, &size, err);
        if (code == TRP_OK) {
            trpi_hasher_add(hasher, chunk, size);
            p->bytes += size;
            code = trpi_write_on(fd, "a temporary file", (trp_bytes){chunk, size}, err);
        }
    }
    free(chunk);
    bool must_die = code != TRP_OK || p->bytes > max;
    trp_code ended = end_tar(p, must_die, must_die ? NULL : err);
    if (code == TRP_OK && p->bytes > max) {
        return too_large(p, max, err);
    }
    return code == TRP_OK ? ended : code;
}

static trp_code check_dir(const char *dir, packing *p, trp_error *err) {
    struct stat info;
    if (realpath(dir, p->dir) == NULL) {
        return trpi_fail(err, errno == ENOENT ? TRP_ENOTFOUND : TRP_EIO, "%s: %s", dir,
                         strerror(errno));
    }
    if (stat(p->dir, &info) != 0 || !S_ISDIR(info.st_mode)) {
        return trpi_fail(err, TRP_EINVALID, "%s is no directory", dir);
    }
    return trpi_program_find("tar", NULL, TRPI_TOOLS_PATH, p->tar, sizeof(p->tar), err);
}

trp_code trpi_package_of_dir(const char *dir, trpi_package *ret_package, trp_error *err) {
    packing *p = trpi_alloc(sizeof(*p));
    trpi_hasher *hasher = trpi_hasher_new();
    int fd = -1;
    p->words = -1;
    trp_code code = hasher != NULL ? check_dir(dir, p, err) : trpi_fail(err, TRP_ENOMEM, "hash");
    if (code == TRP_OK) {
        code = read_patterns(p, err);
    }
    if (code == TRP_OK) {
        code = open_nameless(&p->words, err);
    }
    if (code == TRP_OK) {
        code = open_nameless(&fd, err);
    }
    if (code == TRP_OK) {
        code = pack(p, fd, hasher, err);
    }
    if (code == TRP_OK) {
        *ret_package = (trpi_package){.size = p->bytes, .fd = fd, .path = "the packed directory"};
        trpi_hasher_hex(hasher, ret_package->hash);
        fd = -1;
    } else {
        code = trpi_context(err, code, "working directory");
    }
    for (size_t i = 0; i < p->pattern_count; i++) {
        free(p->patterns[i]);
    }
    if (fd >= 0) {
        close(fd);
    }
    if (p->words >= 0) {
        close(p->words);
    }
    trpi_hasher_free(hasher);
    free(p);
    return code;
}

void trpi_package_close(trpi_package *package) {
    if (package == NULL) {
        return;
    }
    if (package->hash[0] != '\0' && package->fd >= 0) {
        close(package->fd);
    }
    memset(package, 0, sizeof(*package));
}
