/* client_address.c: which head a process means. */
#include <stdlib.h>
#include <string.h>

#include "actors/proc/client.h"
#include "core/base/config.h"
#include "core/sys/session.h"

static trp_code check_address(const char *address, const char *from, trp_error *err) {
    const char *colon = strrchr(address, ':');
    uint64_t port = 0;
    if (colon == NULL || colon == address || !trpi_parse_u64(colon + 1, 65535, &port) ||
        port == 0) {
        return trpi_fail(err, TRP_EINVALID, "%s: \"%s\" is not HOST:PORT", from, address);
    }
    return TRP_OK;
}

/* Appends the addresses of living heads; returns how many there are. */
static size_t find_heads(char *first, size_t size, char *all, size_t all_size) {
    trpi_pidfile *files = NULL;
    bool *alive = NULL;
    size_t count = 0, heads = 0;
    if (trpi_pidfile_list(&files, &alive, &count, NULL) != TRP_OK) {
        return 0; /* no session root, so nothing of ours runs here */
    }
    for (size_t i = 0; i < count; i++) {
        if (!alive[i] || strcmp(files[i].role, "head") != 0) {
            continue;
        }
        if (heads++ == 0) {
            trpi_format(first, size, "%s", files[i].address);
        }
        size_t used = strlen(all);
        trpi_format(all + used, all_size - used, "%s%s", used ? ", " : "", files[i].address);
    }
    free(files);
    free(alive);
    return heads;
}

trp_code trpi_client_address(const char *given, char *out, size_t size, trp_error *err) {
    const char *environment = getenv("TROUPE_ADDRESS");
    if (given != NULL && given[0] != '\0') {
        trpi_format(out, size, "%s", given);
        return check_address(given, "address", err);
    }
    if (environment != NULL && environment[0] != '\0') {
        trpi_format(out, size, "%s", environment);
        return check_address(environment, "TROUPE_ADDRESS", err);
    }
    char all[512] = "";
    size_t heads = find_heads(out, size, all, sizeof(all));
    if (heads > 1) {
        return trpi_fail(err, TRP_EINVALID,
                         "several clusters of yours run on this host (%s); choose one with "
                         "TROUPE_ADDRESS or --address",
                         all);
    }
    if (heads == 0) {
        trpi_format(out, size, "127.0.0.1:%u", (unsigned)trpi_config(TRPI_CONFIG_PORT));
    }
    return TRP_OK;
}
