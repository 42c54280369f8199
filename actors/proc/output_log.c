#include "actors/proc/output_log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static trp_code write_all(int fd, trp_bytes data, const char *path, trp_error *err) {
    while (data.size > 0) {
        ssize_t n = write(fd, data.data, data.size);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return trpi_fail(err, TRP_EIO, "write %s: %s", path, strerror(errno));
        }
        data.data = (const char *)data.data + n;
        data.size -= (size_t)n;
    }
    return TRP_OK;
}

static trp_code mark_lines(char mark, trp_bytes text, trp_buf *out) {
    const char *line = text.data;
    const char *end = line + text.size;
    while (line < end) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        const char *next = newline ? newline + 1 : end;
        trp_code code = trp_buf_reserve(out, (size_t)(next - line) + 2);
        if (code != TRP_OK) {
            return code;
        }
        (void)!trp_buf_append(out, (char[]){mark, ' '}, 2);
        (void)!trp_buf_append(out, line, (size_t)(next - line));
        line = next;
    }
    return TRP_OK;
}

trp_code trpi_output_log_append(const char *path, char mark, trp_bytes text, trp_error *err) {
    /* Opened for each batch: a descriptor per actor would cost the daemon a third of its limit. */
    trp_buf marked = {0};
    struct stat before;
    int fd = -1;
    trp_code code = mark_lines(mark, text, &marked);
    if (code != TRP_OK) {
        code = trpi_fail(err, code, "log lines");
        goto out;
    }
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || fstat(fd, &before) != 0) {
        code = trpi_fail(err, TRP_EIO, "open %s: %s", path, strerror(errno));
        goto out;
    }
    code = write_all(fd, trp_buf_bytes(&marked), path, err);
    if (code != TRP_OK) {
        /* The part of a line that fitted would be glued to the next one. */
        (void)!ftruncate(fd, before.st_size);
    }
out:
    if (fd >= 0) {
        close(fd);
    }
    trp_buf_release(&marked);
    return code;
}

static bool wanted(const char *stream, char mark) {
    return stream[0] == '\0' || (stream[0] == 'o' && mark == 'o') ||
           (stream[0] == 'e' && mark == 'e');
}

/* Appends the wanted whole lines of `raw`; returns how many of its bytes were used. */
static size_t take_lines(const char *stream, const trp_buf *raw, bool at_limit, trp_buf *data) {
    const char *line = (const char *)raw->data;
    const char *end = line + raw->size;
    while (line < end) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        const char *next = newline ? newline + 1 : end;
        if (!newline && !(at_limit && line == (const char *)raw->data)) {
            break; /* still being written, or for the next query */
        }
        if (next - line > 2 && wanted(stream, line[0])) {
            if (trp_buf_append(data, line + 2, (size_t)(next - line) - 2) != TRP_OK) {
                break;
            }
        }
        line = next;
    }
    return (size_t)(line - (const char *)raw->data);
}

/* Where a query for the last bytes starts: behind the line that the cut would break. */
static off_t tail_start(int fd, off_t size, uint64_t tail_bytes) {
    if (tail_bytes >= (uint64_t)size) {
        return 0;
    }
    off_t start = size - (off_t)tail_bytes;
    char byte[4096];
    for (off_t at = start - 1; at < size;) {
        ssize_t n = pread(fd, byte, sizeof byte, at);
        if (n <= 0) {
            break;
        }
        const char *newline = memchr(byte, '\n', (size_t)n);
        if (newline) {
            return at + (newline - byte) + 1;
        }
        at += n;
    }
    return start;
}

static trp_code read_at(int fd, off_t offset, size_t bytes_max, trp_buf *raw, const char *path,
                        trp_error *err) {
    if (trp_buf_reserve(raw, bytes_max) != TRP_OK) {
        return trpi_fail(err, TRP_ENOMEM, "read %zu bytes of %s", bytes_max, path);
    }
    ssize_t n = pread(fd, raw->data, bytes_max, offset);
    if (n < 0) {
        return trpi_fail(err, TRP_EIO, "read %s: %s", path, strerror(errno));
    }
    raw->size = (size_t)n;
    return TRP_OK;
}

trp_code trpi_output_log_read(const char *path, const trpi_output_query *query, trp_buf *data,
                              uint64_t *ret_next_offset, trp_error *err) {
    const char *stream = query->stream;
    if (*stream && strcmp(stream, "out") != 0 && strcmp(stream, "err") != 0) {
        return trpi_fail(err, TRP_EINVALID, "stream \"%s\": use \"out\", \"err\" or \"\"", stream);
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return trpi_fail(err, errno == ENOENT ? TRP_ENOTFOUND : TRP_EIO, "open %s: %s", path,
                         strerror(errno));
    }
    trp_buf raw = {0};
    struct stat info;
    trp_code code = TRP_OK;
    if (fstat(fd, &info) != 0) {
        code = trpi_fail(err, TRP_EIO, "stat %s: %s", path, strerror(errno));
        goto out;
    }
    off_t offset = (off_t)TRPI_MIN(query->offset, (uint64_t)info.st_size);
    if (query->offset == UINT64_MAX) {
        offset = tail_start(fd, info.st_size, query->tail_bytes);
    }
    code = read_at(fd, offset, query->bytes_max, &raw, path, err);
    if (code != TRP_OK) {
        goto out;
    }
    size_t used = take_lines(stream, &raw, raw.size == query->bytes_max, data);
    *ret_next_offset = (uint64_t)offset + used;
out:
    close(fd);
    trp_buf_release(&raw);
    return code;
}
