/* client_logs.c: output of the job's workers on the driver's stderr. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "actors/proc/client_internal.h"

void trpi_logs_print(const trpi_msg_log_lines *lines) {
    char who[256];
    trp_buf text = {0};
    trp_code code = TRP_OK;
    const char *line = lines->text.data;
    const char *end = line + lines->text.size;
    trpi_format(who, sizeof(who), "(%s a%" PRIu64 " n%" PRIu64 " pid=%" PRId64 ")", lines->label,
                lines->actor, lines->node, lines->pid);
    if (lines->dropped > 0) {
        code = trp_buf_printf(
            &text, "%s [%" PRIu64 " lines left out: troupe logs a%" PRIu64 " has them]\n", who,
            lines->dropped, lines->actor);
    }
    while (line < end && code == TRP_OK) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t size = (size_t)((stop != NULL ? stop : end) - line);
        code = trp_buf_printf(&text, "%s %.*s\n", who, (int)size, line);
        line += size + 1;
    }
    /* One write, so that lines of several threads do not mix. */
    fwrite(text.data, 1, text.size, stderr);
    trp_buf_release(&text);
}
