/* id.h: UUIDs, the only ids that are drawn without the head. */
#ifndef TRPI_ID_H
#define TRPI_ID_H

#include "core/base/base.h"

#define TRPI_UUID_TEXT 37 /* 36 characters and NUL */

void trpi_uuid(char ret_text[TRPI_UUID_TEXT]);
uint64_t trpi_random_u64(void); /* from a UUID: for tokens, never for pure code */

#endif
