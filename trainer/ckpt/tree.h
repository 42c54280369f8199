/* tree.h: the files below a directory, in a fixed order. */
#ifndef TRPI_TREE_H
#define TRPI_TREE_H

#include <sys/stat.h>

#include "core/base/base.h"

/* One thing below the root: `name` relative to it, `path` to open it. Directories are visited after
 * what is in them, the root last with the name "". Links are not followed. */
typedef trp_code (*trpi_tree_fn)(void *arg, const char *name, const char *path,
                                 const struct stat *st, trp_error *err);

/* Stops at the first error of the visitor. TRP_EINVALID below 32 levels. */
TRP_CHECKED trp_code trpi_tree_walk(const char *root, trpi_tree_fn visit, void *arg,
                                    trp_error *err);

#endif
