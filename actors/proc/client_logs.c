/* client_logs.c: what the job's workers write, on the driver's terminal: stdout to its stdout,
 * stderr to its stderr. Only the control thread is in here, and the last flush after it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/proc/client_internal.h"
#include "core/base/config.h"
#include "core/net/clock.h"

trpi_repeats *trpi_logs_open(void) {
    trpi_repeats *repeats = trpi_alloc(sizeof(*repeats));
    repeats->window_ns = trpi_config(TRPI_CONFIG_LOG_REPEAT_MS) * 1000000;
    return repeats;
}

/* One write each, so that lines of several threads do not mix. */
static void print_both(trp_buf texts[2]) {
    FILE *const files[2] = {stdout, stderr};
    for (int i = 0; i < 2; i++) {
        if (texts[i].size > 0) {
            fwrite(texts[i].data, 1, texts[i].size, files[i]);
            fflush(files[i]);
        }
        trp_buf_release(&texts[i]);
    }
}

/* Appends the line, if it is one to print now. */
static trp_code take_line(trp_runtime *rt, const trpi_msg_log_lines *lines, const char *who,
                          trp_bytes line, uint64_t now_ns, trp_buf *text) {
    size_t before = text->size;
    trp_code code = trp_buf_printf(text, "%s %.*s", who, (int)line.size, (const char *)line.data);
    if (code != TRP_OK) {
        return code;
    }
    trp_bytes shown = {(const char *)text->data + before, text->size - before};
    if (!trpi_repeats_line(rt->repeats, now_ns, lines->actor, lines->is_stderr, line, shown)) {
        text->size = before;
        return TRP_OK;
    }
    return trp_buf_append(text, "\n", 1);
}

void trpi_logs_print(trp_runtime *rt, const trpi_msg_log_lines *lines) {
    char who[256];
    trp_buf texts[2] = {{0}};
    trp_buf *text = &texts[lines->is_stderr];
    uint64_t now_ns = trpi_now_ns();
    trp_code code = TRP_OK;
    const char *line = lines->text.data;
    const char *end = line + lines->text.size;
    trpi_repeats_tell(rt->repeats, now_ns, texts);
    trpi_format(who, sizeof(who), "(%s a%" PRIu64 " pid=%" PRId64 ", n%" PRIu64 ")", lines->label,
                lines->actor, lines->pid, lines->node);
    if (lines->dropped > 0) {
        code = trp_buf_printf(
            text, "%s [%" PRIu64 " lines left out: troupe logs a%" PRIu64 " has them]\n", who,
            lines->dropped, lines->actor);
    }
    while (line < end && code == TRP_OK) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t size = (size_t)((stop != NULL ? stop : end) - line);
        code = take_line(rt, lines, who, (trp_bytes){line, size}, now_ns, text);
        line += size + 1;
    }
    print_both(texts);
}

void trpi_logs_tend(trp_runtime *rt, uint64_t now_ns) {
    trp_buf texts[2] = {{0}};
    if (trpi_repeats_next_ns(rt->repeats) <= now_ns) {
        trpi_repeats_tell(rt->repeats, now_ns, texts);
        print_both(texts);
    }
}

void trpi_logs_close(trp_runtime *rt) {
    trp_buf texts[2] = {{0}};
    if (rt->repeats != NULL) {
        trpi_repeats_tell(rt->repeats, UINT64_MAX, texts);
        print_both(texts);
        trpi_repeats_release(rt->repeats);
        free(rt->repeats);
        rt->repeats = NULL;
    }
}
