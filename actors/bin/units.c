#include "actors/bin/units.h"

#include <inttypes.h>
#include <string.h>

void trpi_size_text(uint64_t bytes, char *out, size_t size) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < TRPI_COUNTOF(units)) {
        value /= 1024;
        unit++;
    }
    trpi_format(out, size, unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

void trpi_duration_text(double seconds, char *out, size_t size) {
    if (seconds < 10) {
        trpi_format(out, size, "%.1f s", seconds);
    } else if (seconds < 120) {
        trpi_format(out, size, "%.0f s", seconds);
    } else if (seconds < 2 * 3600) {
        trpi_format(out, size, "%.0f min", seconds / 60);
    } else if (seconds < 2 * 86400) {
        trpi_format(out, size, "%.1f h", seconds / 3600);
    } else {
        trpi_format(out, size, "%.1f days", seconds / 86400);
    }
}

void trpi_count_text(uint64_t count, char *out, size_t size) {
    char digits[32];
    trpi_format(digits, sizeof(digits), "%" PRIu64, count);
    size_t length = strlen(digits), used = 0;
    for (size_t i = 0; i < length && used + 2 < size; i++) {
        if (i > 0 && (length - i) % 3 == 0) {
            out[used++] = ',';
        }
        out[used++] = digits[i];
    }
    out[used] = '\0';
}
