/* store_internal.h: what the two halves of store.h share: names on disk, and the places to crash.
 */
#ifndef TRPI_CKPT_STORE_INTERNAL_H
#define TRPI_CKPT_STORE_INTERNAL_H

#include "trainer/ckpt/store.h"

struct trpi_ckpt_store {
    char *path; /* {storage}/{name}, without a slash at its end */
};

/* One step that changes the disk is about to be taken; see trpi_ckpt_store_crash_at(). */
void trpi_ckpt_store_step(void);

/* Sets buf to the formatted path; TRP_ENOMEM. */
TRP_CHECKED trp_code trpi_ckpt_store_path_set(trp_buf *buf, trp_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The number of "checkpoint_000012"; false for any other name, also for one written differently. */
bool trpi_ckpt_store_is_checkpoint(const char *name, uint64_t *ret_number);
/* Of ".staging-<attempt>-<number>". */
bool trpi_ckpt_store_is_staging(const char *name, uint64_t *ret_attempt);

/* {run}/.attempt and {run}/.last-number: a number in a file of its own; false when there is none.
 */
TRP_CHECKED trp_code trpi_ckpt_store_read_number(const char *run_dir, const char *name,
                                                 bool *ret_found, uint64_t *ret_number,
                                                 trp_error *err);
TRP_CHECKED trp_code trpi_ckpt_store_write_number(const char *run_dir, const char *name,
                                                  uint64_t number, trp_error *err);

#define TRPI_CKPT_STORE_ATTEMPT ".attempt"
#define TRPI_CKPT_STORE_LAST_NUMBER ".last-number"

#endif
