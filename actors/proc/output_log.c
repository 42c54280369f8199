#include "actors/proc/output_log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_SIZE 32
#define LOOK_BACK_BYTES                                                                            \
    ((uint64_t)64 << 20) /* how far the last lines of a stream are looked for                      \
                          */
#define LOOK_BLOCK_BYTES ((uint64_t)65536)

/* ---- The files of a log ---- */

typedef struct log_file {
    uint64_t start, size;
} log_file;

typedef struct log_files {
    int dir;
    log_file *items; /* in order */
    size_t count;
} log_files;

static void file_name(uint64_t start, char *out) {
    trpi_format(out, NAME_SIZE, "%020" PRIu64, start);
}

static int compare_files(const void *left, const void *right) {
    const log_file *a = left, *b = right;
    return (a->start > b->start) - (a->start < b->start);
}

static void files_close(log_files *files) {
    if (files->dir >= 0) {
        close(files->dir);
    }
    free(files->items);
}

static void add_file(log_files *files, const char *name) {
    struct stat info;
    uint64_t start;
    if (strlen(name) == 20 && trpi_parse_u64(name, UINT64_MAX, &start) &&
        fstatat(files->dir, name, &info, AT_SYMLINK_NOFOLLOW) == 0) {
        files->items = trpi_realloc(files->items, (files->count + 1) * sizeof(*files->items));
        files->items[files->count++] = (log_file){start, (uint64_t)info.st_size};
    }
}

static trp_code files_open(const char *path, log_files *ret_files, trp_error *err) {
    log_files files = {.dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    DIR *list = files.dir >= 0 ? fdopendir(dup(files.dir)) : NULL;
    if (list == NULL) {
        trp_code code = errno == ENOENT ? TRP_ENOTFOUND : TRP_EIO;
        (void)trpi_fail(err, code, "open %s: %s", path, strerror(errno));
        files_close(&files);
        return code;
    }
    const struct dirent *entry;
    while ((entry = readdir(list)) != NULL) {
        add_file(&files, entry->d_name);
    }
    closedir(list);
    if (files.count > 0) {
        qsort(files.items, files.count, sizeof(*files.items), compare_files);
    }
    *ret_files = files;
    return TRP_OK;
}

static uint64_t end_of(const log_files *files) {
    const log_file *last = files->count > 0 ? &files->items[files->count - 1] : NULL;
    return last != NULL ? last->start + last->size : 0;
}

static uint64_t start_of(const log_files *files) {
    return files->count > 0 ? files->items[0].start : 0;
}

/* For one writer: the log is made when it isn't there. */
static trp_code files_open_to_write(const char *path, log_files *ret_files, trp_error *err) {
    trp_code code = files_open(path, ret_files, NULL);
    if (code == TRP_ENOTFOUND && mkdir(path, 0700) != 0 && errno != EEXIST) {
        return trpi_fail(err, TRP_EIO, "make %s: %s", path, strerror(errno));
    }
    return code == TRP_OK ? code : files_open(path, ret_files, err);
}

/* ---- Lives ---- */

typedef struct log_life {
    uint64_t incarnation, start;
} log_life;

/* free() *ret_lives. */
static size_t read_lives(int dir, log_life **ret_lives) {
    size_t count = 0;
    log_life life, *lives = NULL;
    int fd = openat(dir, "lives", O_RDONLY | O_CLOEXEC);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    while (file != NULL &&
           fscanf(file, "%" SCNu64 " %" SCNu64 "\n", &life.incarnation, &life.start) == 2) {
        lives = trpi_realloc(lives, (count + 1) * sizeof(*lives));
        lives[count++] = life;
    }
    if (file != NULL) {
        fclose(file);
    }
    *ret_lives = lives;
    return count;
}

/* Replaces the file at once, so that a reader sees all of it or the one before. */
static trp_code write_lives(int dir, const log_life *lives, size_t count, trp_error *err) {
    int fd = openat(dir, "lives.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    for (size_t i = 0; file != NULL && i < count; i++) {
        fprintf(file, "%" PRIu64 " %" PRIu64 "\n", lives[i].incarnation, lives[i].start);
    }
    if (file == NULL || fclose(file) != 0 || renameat(dir, "lives.new", dir, "lives") != 0) {
        return trpi_fail(err, TRP_EIO, "write an actor's lives: %s", strerror(errno));
    }
    return TRP_OK;
}

trp_code trpi_output_log_begin(const trpi_output_log *log, uint64_t incarnation, trp_error *err) {
    log_files files;
    log_life *lives;
    size_t kept = 0;
    trp_code code = files_open_to_write(log->path, &files, err);
    if (code != TRP_OK) {
        return code;
    }
    size_t count = read_lives(files.dir, &lives);
    for (size_t i = 0; i < count; i++) { /* of what has been rotated away nobody can read */
        bool is_gone = i + 1 < count && lives[i + 1].start <= start_of(&files);
        if (!is_gone && lives[i].incarnation != incarnation) {
            lives[kept++] = lives[i];
        }
    }
    lives = trpi_realloc(lives, (kept + 1) * sizeof(*lives));
    lives[kept++] = (log_life){incarnation, end_of(&files)};
    code = write_lives(files.dir, lives, kept, err);
    free(lives);
    files_close(&files);
    return code;
}

/* Bytes [*ret_start, *ret_end) are that incarnation's. */
static trp_code find_life(const log_files *files, uint64_t incarnation, uint64_t *ret_start,
                          uint64_t *ret_end, trp_error *err) {
    log_life *lives;
    size_t count = read_lives(files->dir, &lives), at = 0;
    while (at < count && lives[at].incarnation != incarnation) {
        at++;
    }
    if (at < count) {
        *ret_start = lives[at].start;
        *ret_end = at + 1 < count ? lives[at + 1].start : end_of(files);
    }
    free(lives);
    return at < count
               ? TRP_OK
               : trpi_fail(err, TRP_ENOTFOUND,
                           "nothing that incarnation %" PRIu64 " wrote is kept here", incarnation);
}

/* ---- Writing ---- */

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

static trp_code append_to(const log_files *files, uint64_t start, trp_bytes text, const char *path,
                          trp_error *err) {
    char name[NAME_SIZE];
    struct stat before;
    file_name(start, name);
    int fd = openat(files->dir, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || fstat(fd, &before) != 0) {
        trp_code code = trpi_fail(err, TRP_EIO, "open %s/%s: %s", path, name, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return code;
    }
    trp_code code = write_all(fd, text, path, err);
    if (code != TRP_OK) {
        /* The part of a line that fitted would be glued to the next one. */
        (void)!ftruncate(fd, before.st_size);
    }
    close(fd);
    return code;
}

/* The oldest go until `files` are left, with the one that was just begun. */
static void remove_oldest(const log_files *files, size_t kept) {
    for (size_t i = 0; i + kept < files->count + 1; i++) {
        char name[NAME_SIZE];
        file_name(files->items[i].start, name);
        (void)unlinkat(files->dir, name, 0);
    }
}

/* The marked lines go to the last file, or, when it is full, to a new one. */
static trp_code append_piece(const trpi_output_log *log, trp_bytes piece, trp_error *err) {
    log_files files;
    trp_code code = files_open_to_write(log->path, &files, err);
    if (code != TRP_OK) {
        return code;
    }
    uint64_t last = files.count > 0 ? files.items[files.count - 1].start : 0;
    uint64_t end = end_of(&files);
    bool is_full = end > last && end - last + piece.size > log->file_bytes;
    code = append_to(&files, is_full ? end : last, piece, log->path, err);
    if (code == TRP_OK && is_full) {
        remove_oldest(&files, log->files);
    }
    files_close(&files);
    return code;
}

/* Takes back what was written behind that end. */
static void undo(const char *path, uint64_t end) {
    log_files files;
    if (files_open(path, &files, NULL) != TRP_OK) {
        return;
    }
    for (size_t i = 0; i < files.count; i++) {
        char name[NAME_SIZE];
        const log_file *file = &files.items[i];
        file_name(file->start, name);
        if (file->start > end || (file->start == end && end > 0)) {
            (void)unlinkat(files.dir, name, 0);
        } else if (file->start + file->size > end) {
            int fd = openat(files.dir, name, O_WRONLY | O_CLOEXEC);
            (void)!ftruncate(fd, (off_t)(end - file->start));
            close(fd);
        }
    }
    files_close(&files);
}

/* The first lines that a file of this size holds, one at least. */
static size_t first_lines(trp_bytes text, uint64_t file_bytes) {
    if (text.size <= file_bytes) {
        return text.size;
    }
    const char *first = text.data, *last = memrchr(first, '\n', (size_t)file_bytes);
    last = last != NULL ? last : memchr(first, '\n', text.size);
    return last != NULL ? (size_t)(last - first) + 1 : text.size;
}

trp_code trpi_output_log_append(const trpi_output_log *log, char mark, trp_bytes text,
                                trp_error *err) {
    /* Opened for each batch: a descriptor per actor would cost the daemon a third of its limit. */
    trp_buf marked = {0};
    log_files before;
    trp_code code = mark_lines(mark, text, &marked);
    code = code == TRP_OK ? files_open_to_write(log->path, &before, err)
                          : trpi_fail(err, code, "log lines");
    if (code == TRP_OK) {
        uint64_t end = end_of(&before);
        trp_bytes rest = trp_buf_bytes(&marked);
        files_close(&before);
        while (code == TRP_OK && rest.size > 0) {
            size_t size = first_lines(rest, log->file_bytes);
            code = append_piece(log, (trp_bytes){rest.data, size}, err);
            rest = (trp_bytes){(const char *)rest.data + size, rest.size - size};
        }
        if (code != TRP_OK) {
            undo(log->path, end);
        }
    }
    trp_buf_release(&marked);
    return code;
}

/* ---- Reading ---- */

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

/* Reads what is there at an offset, at most size bytes of one file: no line is in two. */
static trp_code read_at(const log_files *files, uint64_t offset, size_t size, trp_buf *raw,
                        trp_error *err) {
    char name[NAME_SIZE];
    size_t at = 0;
    while (at + 1 < files->count && files->items[at + 1].start <= offset) {
        at++;
    }
    const log_file *file = &files->items[at];
    raw->size = 0;
    if (files->count == 0 || offset >= file->start + file->size) {
        return TRP_OK;
    }
    if (trp_buf_reserve(raw, size) != TRP_OK) {
        return trpi_fail(err, TRP_ENOMEM, "read %zu bytes of a log", size);
    }
    file_name(file->start, name);
    int fd = openat(files->dir, name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? pread(fd, raw->data, size, (off_t)(offset - file->start)) : -1;
    trp_code code = n >= 0 ? TRP_OK : trpi_fail(err, TRP_EIO, "read %s: %s", name, strerror(errno));
    if (fd >= 0) {
        close(fd);
    }
    raw->size = n >= 0 ? (size_t)n : 0;
    return code;
}

/* Where a query for the last bytes starts: behind the line that the cut would break. */
static uint64_t tail_by_bytes(const log_files *files, uint64_t low, uint64_t high,
                              uint64_t tail_bytes) {
    trp_buf block = {0};
    if (tail_bytes >= high - low) {
        return low;
    }
    uint64_t start = high - tail_bytes, at = start - 1, found = high;
    while (at < high && read_at(files, at, 4096, &block, NULL) == TRP_OK && block.size > 0) {
        const char *newline = memchr(block.data, '\n', block.size);
        if (newline != NULL) {
            found = at + (uint64_t)(newline - (const char *)block.data) + 1;
            break;
        }
        at += block.size;
    }
    trp_buf_release(&block);
    return TRPI_MIN(found, high);
}

/* Counts the wanted lines that begin in the block, the last one first. *at: where the last of those
 * counted begins. */
static void count_back(const char *stream, const trp_buf *block, uint64_t offset,
                       bool begins_with_line, uint64_t *left, uint64_t *at) {
    const char *text = (const char *)block->data;
    for (size_t i = block->size; i-- > 0 && *left > 0;) {
        bool begins = i > 0 ? text[i - 1] == '\n' : begins_with_line;
        if (begins && wanted(stream, text[i])) {
            *at = offset + i;
            --*left;
        }
    }
}

/* Block by block from the end. A block is read with the byte before it: a line begins behind a
 * newline, and at the beginning of a file. */
static uint64_t tail_by_lines(const log_files *files, const trpi_output_query *query, uint64_t low,
                              uint64_t high) {
    trp_buf block = {0};
    uint64_t left = query->tail_lines, found = high, to = high;
    low = high - low > LOOK_BACK_BYTES ? high - LOOK_BACK_BYTES : low;
    for (size_t i = files->count; i-- > 0 && left > 0 && to > low;) {
        uint64_t start = files->items[i].start;
        while (left > 0 && to > TRPI_MAX(start, low)) {
            uint64_t from = to - TRPI_MIN(to - TRPI_MAX(start, low), LOOK_BLOCK_BYTES);
            uint64_t before = from > start ? 1 : 0;
            if (read_at(files, from - before, (size_t)(to - from + before), &block, NULL) !=
                TRP_OK) {
                break;
            }
            count_back(query->stream, &block, from - before, before == 0, &left, &found);
            to = from;
        }
    }
    trp_buf_release(&block);
    return found;
}

/* What of the log is asked for, and where in it the query begins. */
static trp_code find_place(const log_files *files, const trpi_output_query *query,
                           uint64_t *ret_offset, uint64_t *ret_end, uint64_t *ret_lost,
                           trp_error *err) {
    uint64_t low = 0, high = end_of(files), kept = start_of(files);
    if (query->incarnation != 0) {
        trp_code code = find_life(files, query->incarnation, &low, &high, err);
        if (code != TRP_OK) {
            return code;
        }
    }
    *ret_end = TRPI_MAX(high, kept);
    *ret_lost = 0;
    if (query->offset == UINT64_MAX) {
        low = TRPI_MIN(TRPI_MAX(low, kept), *ret_end);
        *ret_offset = query->tail_lines > 0
                          ? tail_by_lines(files, query, low, *ret_end)
                          : tail_by_bytes(files, low, *ret_end, query->tail_bytes);
        return TRP_OK;
    }
    uint64_t asked = TRPI_MIN(TRPI_MAX(query->offset, low), *ret_end);
    *ret_offset = TRPI_MAX(asked, kept);
    *ret_lost = *ret_offset - asked;
    return TRP_OK;
}

trp_code trpi_output_log_read(const trpi_output_log *log, const trpi_output_query *query,
                              trp_buf *data, trpi_output_answer *ret_answer, trp_error *err) {
    const char *stream = query->stream;
    if (*stream && strcmp(stream, "out") != 0 && strcmp(stream, "err") != 0) {
        return trpi_fail(err, TRP_EINVALID, "stream \"%s\": use \"out\", \"err\" or \"\"", stream);
    }
    log_files files;
    trp_code code = files_open(log->path, &files, err);
    if (code != TRP_OK) {
        return code;
    }
    trp_buf raw = {0};
    uint64_t offset, end, lost;
    code = find_place(&files, query, &offset, &end, &lost, err);
    size_t size = code == TRP_OK ? (size_t)TRPI_MIN(end - offset, (uint64_t)query->bytes_max) : 0;
    if (code == TRP_OK && size > 0) {
        code = read_at(&files, offset, size, &raw, err);
    }
    if (code == TRP_OK) {
        size_t used = take_lines(stream, &raw, raw.size == query->bytes_max, data);
        *ret_answer = (trpi_output_answer){.next_offset = offset + used, .lost = lost};
    }
    files_close(&files);
    trp_buf_release(&raw);
    return code;
}

uint64_t trpi_output_log_size(const char *path) {
    log_files files;
    uint64_t size = 0;
    if (files_open(path, &files, NULL) == TRP_OK) {
        size = end_of(&files) - start_of(&files);
        files_close(&files);
    }
    return size;
}
