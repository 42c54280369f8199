/* env.h: environments of workers: "KEY=value" entries, a job's under an actor's. */
#ifndef TRPI_ENV_H
#define TRPI_ENV_H

#include "core/wire/msg.h"

#define TRPI_ENV_MAX 1024 /* entries */

/* A list of texts that it owns. */
typedef struct trpi_texts {
    char **items;
    size_t count;
} trpi_texts; /* zero-initialize */

trpi_texts trpi_texts_copy(const trpi_text *list, size_t count);
void trpi_texts_release(trpi_texts *texts);
uint64_t trpi_texts_bytes(const trpi_texts *texts); /* with the NULs at their ends */

/* Entries in the order of their keys, each key once: of two with one key the later one holds.
 * TRP_EINVALID: too many, or one that is not KEY=value. */
TRP_CHECKED trp_code trpi_env_parse(const trpi_text *list, size_t count, trpi_texts *ret_env,
                                    trp_error *err);
/* All of `over`, and of `under` what `over` does not name. `out` has room for both and borrows from
 * them. Returns how many there are. */
size_t trpi_env_merge(const trpi_texts *under, const trpi_texts *over, trpi_text *out);

#endif
