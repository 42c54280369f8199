/* config.h: what the driver asked for, checked whole before any process is started, as a plan. */
#ifndef TRPI_TRAIN_CONFIG_H
#define TRPI_TRAIN_CONFIG_H

#include <troupe/train.h>

#include "trainer/run/messages.h"

/* Fills in the defaults. The plan borrows from options and from the arena. TRP_EINVALID says which
 * field is wrong, what it is and what it may be. Touches no file. */
TRP_CHECKED trp_code trpi_train_config_check(const trp_train_options *options, trpi_arena *arena,
                                             trpi_run_plan *ret_plan, trp_error *err);

#endif
