/* config.c: the table of config.def and where each value came from. */
#include "core/base/config.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

enum origin { ORIGIN_DEFAULT, ORIGIN_ENVIRONMENT, ORIGIN_FLAG };

static const struct {
    const char *name, *variable, *text;
    uint64_t min, max;
} rows[TRPI_CONFIG_COUNT] = {
#define SETTING(name_, value, min_, max_, text_)                                                   \
    [TRPI_CONFIG_##name_] = {#name_, "TROUPE_" #name_, text_, min_, max_},
#include "core/base/config.def"
#undef SETTING
};

/* Atomic, as any thread reads settings; each stands for itself, so no order is needed. */
static _Atomic uint64_t values[TRPI_CONFIG_COUNT] = {
#define SETTING(name, value, min, max, text) [TRPI_CONFIG_##name] = value,
#include "core/base/config.def"
#undef SETTING
};
static _Atomic int origins[TRPI_CONFIG_COUNT];

trp_code trpi_config_load(trp_error *err) {
    for (size_t i = 0; i < TRPI_CONFIG_COUNT; i++) {
        const char *text = getenv(rows[i].variable);
        if (text == NULL || atomic_load(&origins[i]) == ORIGIN_FLAG) {
            continue;
        }
        uint64_t value;
        if (!trpi_parse_u64(text, rows[i].max, &value) || value < rows[i].min) {
            return trpi_fail(err, TRP_EINVALID,
                             "%s=%s: must be a whole number from %" PRIu64 " to %" PRIu64 " (%s)",
                             rows[i].variable, text, rows[i].min, rows[i].max, rows[i].text);
        }
        atomic_store(&values[i], value);
        atomic_store(&origins[i], ORIGIN_ENVIRONMENT);
    }
    return TRP_OK;
}

uint64_t trpi_config(trpi_setting setting) {
    return atomic_load_explicit(&values[setting], memory_order_relaxed);
}

void trpi_config_set(trpi_setting setting, uint64_t value) {
    atomic_store(&values[setting], value);
    atomic_store(&origins[setting], ORIGIN_FLAG);
}

const char *trpi_config_name(trpi_setting setting) {
    return rows[setting].name;
}

const char *trpi_config_text(trpi_setting setting) {
    return rows[setting].text;
}

const char *trpi_config_origin(trpi_setting setting) {
    static const char *const names[] = {"default", "environment", "flag"};
    return names[atomic_load(&origins[setting])];
}
