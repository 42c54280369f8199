/* function.h: the table of train functions that this program has registered. */
#ifndef TRPI_FUNCTION_H
#define TRPI_FUNCTION_H

#include <troupe/train.h>

#include "core/base/base.h"

/* TRP_EINVALID names the nearest registered one. */
TRP_CHECKED trp_code trpi_function_find(const char *name, trp_train_fn *ret_run, trp_error *err);

#endif
