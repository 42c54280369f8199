#include "actors/state/caller_types.h"

#include <string.h>

size_t trpi_types_size(const char *const *names) {
    size_t size = 1;
    for (size_t i = 0; names != NULL && names[i] != NULL; i++) {
        size += names[i][0] != '\0' ? strlen(names[i]) + 1 : 0;
    }
    return size;
}

void trpi_types_pack(const char *const *names, char *out) {
    for (size_t i = 0; names != NULL && names[i] != NULL; i++) {
        size_t size = strlen(names[i]) + 1;
        if (size > 1) { /* an empty one would end the list */
            memcpy(out, names[i], size);
            out += size;
        }
    }
    *out = '\0';
}

bool trpi_types_have(const char *types, const char *type) {
    for (; types != NULL && *types != '\0'; types += strlen(types) + 1) {
        if (strcmp(types, "*") == 0 || strcmp(types, type) == 0) {
            return true;
        }
    }
    return false;
}
