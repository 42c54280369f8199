/* config.h: a checked configuration, as the engine reads it. */
#ifndef TRPI_ZERO_CONFIG_H
#define TRPI_ZERO_CONFIG_H

#include <troupe/zero.h>

#include "core/base/json.h"
#include "trainer/engine/lr.h"

struct trp_zero_config {
    trp_zero_settings settings;
    trpi_lr lr;
    char **notes;
    size_t note_count;
};

/* ---- config_keys.c: names, types and ranges, from config.def ---- */

typedef enum trpi_config_section {
    TRPI_SECTION_top,
    TRPI_SECTION_zero,
    TRPI_SECTION_offload,
    TRPI_SECTION_bf16,
    TRPI_SECTION_fp16,
    TRPI_SECTION_data_types,
    TRPI_SECTION_optimizer,
    TRPI_SECTION_adam,
    TRPI_SECTION_scheduler,
    TRPI_SECTION_warmup,
    TRPI_SECTION_decay,
    TRPI_SECTION_cosine,
    TRPI_SECTION_activation,
    TRPI_SECTION_COUNT
} trpi_config_section;

/* Every key is one of the section's, of its type and in its range; those without effect are noted
 * in config. `where` is the section's name in messages. NULL object: nothing to check. */
TRP_CHECKED trp_code trpi_config_check(json_t *object, trpi_config_section section,
                                       const char *where, trp_zero_config *config, trp_error *err);

/* Adds a line to the notes. */
TRP_CHECKED trp_code trpi_config_note(trp_zero_config *config, trp_error *err, const char *format,
                                      ...) __attribute__((format(printf, 3, 4)));

/* ---- batch.c ---- */

/* Completes train = micro * accumulation * world from those that are given (0 has no meaning of its
 * own: `given` says which are). The message holds all four numbers. */
typedef struct trpi_batch_triple {
    int64_t train, micro, accumulation;
    bool has_train, has_micro, has_accumulation;
} trpi_batch_triple;
TRP_CHECKED trp_code trpi_batch_resolve(trpi_batch_triple *triple, int world, trp_error *err);

#endif
