/* model.h: what a trp_model holds, for the engine. Plain data: nothing here computes. */
#ifndef TRPI_MODEL_H
#define TRPI_MODEL_H

#include <troupe/model.h>

#include "core/base/base.h"

typedef struct trpi_unit {
    const trp_unit_type *type;
    void *state;
    trp_param *params; /* names are owned */
    int param_count;
} trpi_unit;

struct trp_model {
    char name[64];
    trp_model_limits limits;
    trpi_unit *units;
    int unit_count;
};

/* Elements of a tensor of that shape. */
int64_t trpi_param_elements(const trp_param *param);

/* The parameter of that name in units before `unit_end`, or NULL. */
const trp_param *trpi_model_find(const trp_model *model, const char *name, int unit_end);

#endif
