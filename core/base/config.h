/* config.h: every setting of troupe, from one table (config.def). Precedence: value set by a flag >
 * TROUPE_NAME in the environment > default. `troupe config` prints value and origin. */
#ifndef TRPI_CONFIG_H
#define TRPI_CONFIG_H

#include "core/base/base.h"

typedef enum trpi_setting {
#define SETTING(name, value, min, max, text) TRPI_CONFIG_##name,
#include "core/base/config.def"
#undef SETTING
    TRPI_CONFIG_COUNT
} trpi_setting;

/* Reads TROUPE_* once; TRP_EINVALID names a variable that is out of range. Call it early; reading a
 * setting before uses the defaults. A value set by a flag stays. Threads: any. */
TRP_CHECKED trp_code trpi_config_load(trp_error *err);
uint64_t trpi_config(trpi_setting setting);
void trpi_config_set(trpi_setting setting, uint64_t value); /* a flag's, in range */
const char *trpi_config_name(trpi_setting setting);         /* "HEARTBEAT_MS" */
const char *trpi_config_text(trpi_setting setting);         /* one sentence */
const char *trpi_config_origin(trpi_setting setting);       /* "default", "environment", "flag" */

#endif
