/* store_commit.c: how a checkpoint becomes durable, and how one goes. store.h tells the order of
 * steps; each is announced with trpi_ckpt_store_step(), so that tests can end the process there. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/sys/file.h"
#include "trainer/ckpt/store_internal.h"
#include "trainer/ckpt/tree.h"

static const char *text_of(const trp_buf *path) {
    return (const char *)path->data;
}

static trp_code staging_path(const char *run_dir, uint64_t attempt, uint64_t number, trp_buf *path,
                             trp_error *err) {
    return trpi_ckpt_store_path_set(path, err, "%s/.staging-%" PRIu64 "-%" PRIu64, run_dir, attempt,
                                    number);
}

/* A run belongs to the highest attempt that has swept it. */
static trp_code check_attempt(const char *run_dir, uint64_t attempt, trp_error *err) {
    bool found;
    uint64_t owner;
    trp_code code =
        trpi_ckpt_store_read_number(run_dir, TRPI_CKPT_STORE_ATTEMPT, &found, &owner, err);
    if (!code && found && owner > attempt) {
        code = trpi_fail(err, TRP_ECANCELED,
                         "%s: attempt %" PRIu64 " owns the run, this is attempt %" PRIu64, run_dir,
                         owner, attempt);
    }
    return code;
}

static trp_code remove_tree(const char *path, trp_error *err) {
    trpi_ckpt_store_step();
    return trpi_dir_remove(path, err);
}

static trp_code sync_path(const char *path, trp_error *err) {
    trpi_ckpt_store_step();
    return trpi_file_sync(path, err);
}

static trp_code rename_path(const char *from, const char *to, trp_error *err) {
    trpi_ckpt_store_step();
    if (rename(from, to) != 0) {
        trp_code code = errno == ENOENT                         ? TRP_ENOTFOUND
                        : errno == EEXIST || errno == ENOTEMPTY ? TRP_EEXISTS
                                                                : TRP_EIO;
        return trpi_fail(err, code, "rename %s to %s: %s", from, to, strerror(errno));
    }
    return TRP_OK;
}

/* ---- Staging and sealing: the rank's side ---- */

trp_code trpi_ckpt_store_stage(const char *run_dir, uint64_t attempt, uint64_t number, int rank,
                               trp_buf *ret_dir, trp_error *err) {
    trp_buf staging = {0}, dir = {0};
    if (!trpi_file_exists(run_dir)) {
        return trpi_fail(err, TRP_ENOTFOUND, "%s: there is no such run directory", run_dir);
    }
    trp_code code = check_attempt(run_dir, attempt, err);
    if (!code) {
        code = staging_path(run_dir, attempt, number, &staging, err);
    }
    if (!code) {
        code = trpi_ckpt_store_path_set(&dir, err, "%s/.rank-%d", text_of(&staging), rank);
    }
    if (!code) {
        code = remove_tree(text_of(&dir), err);
    }
    if (!code) {
        trpi_ckpt_store_step();
        code = trpi_dir_make(text_of(&dir), 0755, err);
    }
    if (!code && trp_buf_printf(ret_dir, "%s", text_of(&dir))) {
        code = trpi_fail(err, TRP_ENOMEM, "a path");
    }
    trp_buf_release(&staging);
    trp_buf_release(&dir);
    return code;
}

typedef struct sealing {
    int rank;
    trpi_manifest *entries;
} sealing;

static trp_code seal_one(void *arg, const char *name, const char *path, const struct stat *st,
                         trp_error *err) {
    sealing *s = arg;
    uint64_t size;
    char xxh3[33];
    if (!S_ISDIR(st->st_mode) && !S_ISREG(st->st_mode)) {
        return trpi_fail(err, TRP_EINVALID, "%s: a checkpoint holds regular files only", path);
    }
    /* Synced before it is read back, so that an error of the disk is met here. */
    trp_code code = sync_path(path, err);
    if (code || S_ISDIR(st->st_mode)) {
        return code;
    }
    code = trpi_file_checksum(path, &size, xxh3, err);
    return code ? code : trpi_manifest_add_file(s->entries, name, size, xxh3, s->rank, err);
}

trp_code trpi_ckpt_store_seal(const char *dir, int rank, trpi_manifest *entries, trp_error *err) {
    sealing s = {.rank = rank, .entries = entries};
    return trpi_tree_walk(dir, seal_one, &s, err);
}

/* ---- Committing ---- */

/* Parents of a file's new place, for names with slashes. */
static trp_code make_parents(const char *path, trp_error *err) {
    char *parent = strdup(path);
    if (!parent) {
        return trpi_fail(err, TRP_ENOMEM, "%s", path);
    }
    *strrchr(parent, '/') = '\0';
    trp_code code = trpi_dir_make(parent, 0755, err);
    free(parent);
    return code;
}

static trp_code check_size(const char *path, uint64_t size, trp_error *err) {
    struct stat st;
    if (lstat(path, &st) != 0) {
        return trpi_fail(err, errno == ENOENT ? TRP_ENOTFOUND : TRP_EIO, "%s: %s", path,
                         strerror(errno));
    }
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != size) {
        return trpi_fail(err, TRP_ECORRUPT,
                         "%s: has %lld bytes, had %" PRIu64 " when it was sealed", path,
                         (long long)st.st_size, size);
    }
    return TRP_OK;
}

/* From the rank's directory into the checkpoint's. A commit that is tried again after an error
 * finds some files moved already. */
static trp_code move_up(const char *staging, const trpi_manifest_file *file, trp_error *err) {
    trp_buf from = {0}, to = {0};
    trp_code code =
        trpi_ckpt_store_path_set(&from, err, "%s/.rank-%d/%s", staging, file->rank, file->name);
    if (!code) {
        code = trpi_ckpt_store_path_set(&to, err, "%s/%s", staging, file->name);
    }
    if (!code && !trpi_file_exists(text_of(&from)) && trpi_file_exists(text_of(&to))) {
        code = check_size(text_of(&to), file->size, err);
        goto out;
    }
    if (!code) {
        code = check_size(text_of(&from), file->size, err);
    }
    if (!code) {
        code = make_parents(text_of(&to), err);
    }
    if (!code) {
        code = rename_path(text_of(&from), text_of(&to), err);
    }
out:
    trp_buf_release(&from);
    trp_buf_release(&to);
    return code;
}

/* What ranks staged and did not seal is no part of the checkpoint. */
static trp_code drop_rank_dirs(const char *staging, trp_error *err) {
    char **names = NULL;
    size_t count = 0;
    trp_buf path = {0};
    trp_code code = trpi_dir_list(staging, &names, &count, err);
    for (size_t i = 0; !code && i < count; i++) {
        if (strncmp(names[i], ".rank-", strlen(".rank-")) != 0) {
            continue;
        }
        code = trpi_ckpt_store_path_set(&path, err, "%s/%s", staging, names[i]);
        code = code ? code : remove_tree(text_of(&path), err);
    }
    trp_buf_release(&path);
    trpi_names_free(names, count);
    return code;
}

static trp_code sync_dir(void *arg, const char *name, const char *path, const struct stat *st,
                         trp_error *err) {
    return S_ISDIR(st->st_mode) ? sync_path(path, err) : TRP_OK;
}

/* Everything but the rename. */
static trp_code assemble(const char *staging, trpi_manifest *manifest, trp_error *err) {
    for (size_t i = 0; i < manifest->file_count; i++) {
        trp_code code = move_up(staging, &manifest->files[i], err);
        if (code) {
            return code;
        }
    }
    trp_code code = drop_rank_dirs(staging, err);
    if (!code) {
        trpi_ckpt_store_step();
        code = trpi_manifest_write(manifest, staging, err);
    }
    return code ? code : trpi_tree_walk(staging, sync_dir, NULL, err);
}

static trp_code check_number(const trpi_ckpt_store *store, uint64_t number, trp_error *err) {
    uint64_t next;
    trp_code code = trpi_ckpt_store_next_number(store, &next, err);
    if (!code && number < next) {
        code = trpi_fail(err, TRP_EEXISTS,
                         "%s: number %" PRIu64 " was used before, the next is %" PRIu64,
                         store->path, number, next);
    }
    return code;
}

static trp_code publish(const trpi_ckpt_store *store, const char *staging,
                        const trpi_manifest *manifest, trp_buf *target, trp_error *err) {
    trp_code code = trpi_ckpt_store_path_set(target, err, "%s/checkpoint_%06" PRIu64, store->path,
                                             manifest->number);
    if (!code) { /* again, right before it counts */
        code = check_attempt(store->path, manifest->attempt, err);
    }
    if (!code) {
        code = rename_path(staging, text_of(target), err);
    }
    return code ? code : sync_path(store->path, err);
}

trp_code trpi_ckpt_store_commit(trpi_ckpt_store *store, trpi_manifest *manifest, char **ret_path,
                                trp_error *err) {
    trp_buf staging = {0}, target = {0};
    trp_code code = check_attempt(store->path, manifest->attempt, err);
    if (!code) {
        code = check_number(store, manifest->number, err);
    }
    if (!code) {
        code = staging_path(store->path, manifest->attempt, manifest->number, &staging, err);
    }
    if (!code && !trpi_file_exists(text_of(&staging))) {
        code = trpi_fail(err, TRP_ECANCELED, "%s: is gone", text_of(&staging));
    }
    if (!code) {
        code = assemble(text_of(&staging), manifest, err);
    }
    if (!code) {
        code = publish(store, text_of(&staging), manifest, &target, err);
    }
    if (!code && ret_path && !(*ret_path = strdup(text_of(&target)))) {
        code = trpi_fail(err, TRP_ENOMEM, "a path");
    }
    trp_buf_release(&staging);
    trp_buf_release(&target);
    return code ? trpi_context(err, code, "checkpoint %" PRIu64, manifest->number) : TRP_OK;
}

trp_code trpi_ckpt_store_discard(trpi_ckpt_store *store, uint64_t attempt, uint64_t number,
                                 trp_error *err) {
    trp_buf staging = {0};
    trp_code code = staging_path(store->path, attempt, number, &staging, err);
    if (!code) {
        code = remove_tree(text_of(&staging), err);
    }
    trp_buf_release(&staging);
    return code;
}

/* ---- Going ---- */

/* When the highest number goes, it must be remembered, or it would be used again. */
static trp_code remember_number(trpi_ckpt_store *store, uint64_t number, trp_error *err) {
    uint64_t next;
    trp_code code = trpi_ckpt_store_next_number(store, &next, err);
    if (!code && number + 1 == next) {
        code = trpi_ckpt_store_write_number(store->path, TRPI_CKPT_STORE_LAST_NUMBER, number, err);
    }
    return code;
}

trp_code trpi_ckpt_store_remove(trpi_ckpt_store *store, uint64_t number, trp_error *err) {
    trp_buf path = {0}, deleted = {0};
    trp_code code =
        trpi_ckpt_store_path_set(&path, err, "%s/checkpoint_%06" PRIu64, store->path, number);
    if (!code && !trpi_file_exists(text_of(&path))) {
        code = trpi_fail(err, TRP_ENOTFOUND, "%s: there is no such checkpoint", text_of(&path));
    }
    if (!code) {
        code = trpi_ckpt_store_path_set(&deleted, err, "%s/.deleted-%" PRIu64, store->path, number);
    }
    if (!code) {
        code = remember_number(store, number, err);
    }
    if (!code) {
        code = remove_tree(text_of(&deleted), err); /* of an earlier, interrupted removal */
    }
    if (!code) {
        code = rename_path(text_of(&path), text_of(&deleted), err);
    }
    if (!code) {
        code = sync_path(store->path, err);
    }
    if (!code) {
        code = remove_tree(text_of(&deleted), err);
    }
    trp_buf_release(&path);
    trp_buf_release(&deleted);
    return code;
}

/* The fence first: an older attempt that still runs must not stage anew what is swept away. */
static trp_code raise_fence(trpi_ckpt_store *store, uint64_t attempt, trp_error *err) {
    bool found = false;
    uint64_t owner = 0;
    trp_code code =
        trpi_ckpt_store_read_number(store->path, TRPI_CKPT_STORE_ATTEMPT, &found, &owner, err);
    if (code || (found && owner == attempt)) {
        return code;
    }
    if (found && owner > attempt) {
        return trpi_fail(err, TRP_ECANCELED,
                         "%s: attempt %" PRIu64 " owns the run, this is attempt %" PRIu64,
                         store->path, owner, attempt);
    }
    return trpi_ckpt_store_write_number(store->path, TRPI_CKPT_STORE_ATTEMPT, attempt, err);
}

static trp_code claim_locked(trpi_ckpt_store *store, uint64_t attempt, trp_error *err) {
    uint64_t owner = 0;
    trp_code code = trpi_ckpt_store_attempt(store, &owner, err);
    if (!code && owner >= attempt) {
        return trpi_fail(err, TRP_ECANCELED,
                         "%s: another driver has taken this run over, with attempt %" PRIu64
                         "; ours would have been attempt %" PRIu64,
                         store->path, owner, attempt);
    }
    return code ? code
                : trpi_ckpt_store_write_number(store->path, TRPI_CKPT_STORE_ATTEMPT, attempt, err);
}

/* The lock is of the directory itself and goes with its holder, so nothing is left to clean up. It
 * is held for two small files' time: whoever meets it lost the race. */
trp_code trpi_ckpt_store_claim(trpi_ckpt_store *store, uint64_t attempt, trp_error *err) {
    int fd = open(store->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return trpi_fail(err, TRP_EIO, "%s: %s", store->path, strerror(errno));
    }
    trp_code code;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        code = claim_locked(store, attempt, err);
    } else if (errno == EWOULDBLOCK) {
        code = trpi_fail(err, TRP_ECANCELED, "%s: another driver takes this run at this moment",
                         store->path);
    } else {
        code = trpi_fail(err, TRP_EIO, "%s: lock: %s", store->path, strerror(errno));
    }
    close(fd);
    return code;
}

/* An older attempt may have passed the fence just before it was raised, and be about to rename this
 * very directory: so it is renamed first. Whoever comes first has all of it, and no checkpoint is
 * emptied while it becomes one. */
static trp_code sweep_staging(const trpi_ckpt_store *store, const char *name, trp_error *err) {
    trp_buf path = {0}, deleted = {0};
    trp_code code = trpi_ckpt_store_path_set(&path, err, "%s/%s", store->path, name);
    if (!code) {
        code = trpi_ckpt_store_path_set(&deleted, err, "%s/.deleted%s", store->path,
                                        strchr(name, '-'));
    }
    if (!code) {
        code = remove_tree(text_of(&deleted), err);
    }
    if (!code) {
        code = rename_path(text_of(&path), text_of(&deleted), err);
    }
    if (code == TRP_ENOTFOUND) {
        trpi_error_clear(err); /* it has become a checkpoint */
        code = TRP_OK;
    } else if (!code) {
        code = remove_tree(text_of(&deleted), err);
    }
    trp_buf_release(&path);
    trp_buf_release(&deleted);
    return code;
}

trp_code trpi_ckpt_store_sweep(trpi_ckpt_store *store, uint64_t attempt, trp_error *err) {
    char **names = NULL;
    size_t count = 0;
    uint64_t of;
    trp_buf path = {0};
    trp_code code = raise_fence(store, attempt, err);
    if (!code) {
        code = trpi_dir_list(store->path, &names, &count, err);
    }
    for (size_t i = 0; !code && i < count; i++) {
        if (trpi_ckpt_store_is_staging(names[i], &of) && of < attempt) {
            code = sweep_staging(store, names[i], err);
        } else if (strncmp(names[i], ".deleted-", strlen(".deleted-")) == 0) {
            code = trpi_ckpt_store_path_set(&path, err, "%s/%s", store->path, names[i]);
            code = code ? code : remove_tree(text_of(&path), err);
        }
    }
    trp_buf_release(&path);
    trpi_names_free(names, count);
    return code;
}

trp_code trpi_ckpt_store_attempt(const trpi_ckpt_store *store, uint64_t *ret_attempt,
                                 trp_error *err) {
    bool found = false;
    uint64_t attempt = 0;
    trp_code code =
        trpi_ckpt_store_read_number(store->path, TRPI_CKPT_STORE_ATTEMPT, &found, &attempt, err);
    if (!code) {
        *ret_attempt = found ? attempt : 0;
    }
    return code;
}
