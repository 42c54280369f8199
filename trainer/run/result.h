/* result.h: from the trainer's last message to what trp_fit() hands out. */
#ifndef TRPI_RESULT_H
#define TRPI_RESULT_H

#include <troupe/train.h>

#include "trainer/run/messages.h"

/* Copies everything. TRP_ENOMEM leaves *result releasable. */
TRP_CHECKED trp_code trpi_result_fill(trp_result *result, const trpi_run_result *message,
                                      trp_error *err);

#endif
