/* tree.c: see tree.h. */
#include "trainer/ckpt/tree.h"

#include <errno.h>
#include <string.h>

#include "core/sys/file.h"

enum { LEVELS_MAX = 32 };

typedef struct walk {
    trpi_tree_fn visit;
    void *arg;
    size_t root_size; /* of the root's path, with the slash behind it */
} walk;

static const char *name_of(const walk *w, const trp_buf *path) {
    return path->size >= w->root_size ? (const char *)path->data + w->root_size : "";
}

static trp_code walk_one(const walk *w, const trp_buf *path, int level, trp_error *err);

static trp_code walk_entries(const walk *w, const trp_buf *path, int level, trp_error *err) {
    char **names = NULL;
    size_t count = 0;
    if (level >= LEVELS_MAX) {
        return trpi_fail(err, TRP_EINVALID, "%s: more than %d levels of directories",
                         (const char *)path->data, LEVELS_MAX);
    }
    trp_code code = trpi_dir_list((const char *)path->data, &names, &count, err);
    for (size_t i = 0; !code && i < count; i++) {
        trp_buf below = {0};
        code = trp_buf_printf(&below, "%s/%s", (const char *)path->data, names[i]);
        code = code ? trpi_fail(err, code, "a path") : walk_one(w, &below, level + 1, err);
        trp_buf_release(&below);
    }
    trpi_names_free(names, count);
    return code;
}

static trp_code walk_one(const walk *w, const trp_buf *path, int level, trp_error *err) {
    struct stat st;
    const char *text = (const char *)path->data;
    if (lstat(text, &st) != 0) {
        return trpi_fail(err, errno == ENOENT ? TRP_ENOTFOUND : TRP_EIO, "%s: %s", text,
                         strerror(errno));
    }
    if (S_ISDIR(st.st_mode)) {
        trp_code code = walk_entries(w, path, level, err);
        if (code) {
            return code;
        }
    }
    return w->visit(w->arg, name_of(w, path), text, &st, err);
}

trp_code trpi_tree_walk(const char *root, trpi_tree_fn visit, void *arg, trp_error *err) {
    walk w = {.visit = visit, .arg = arg, .root_size = strlen(root) + 1};
    trp_buf path = {0};
    trp_code code = trp_buf_printf(&path, "%s", root);
    code = code ? trpi_fail(err, code, "%s", root) : walk_one(&w, &path, 0, err);
    trp_buf_release(&path);
    return code;
}
