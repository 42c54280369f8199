/* error.c: the texts of codes and causes, and how an error is filled in while unwinding. */
#include <troupe/error.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <troupe/actor.h>

#include "core/base/base.h"

enum error_class { CLASS_RETRY, CLASS_FATAL, CLASS_USER };

static const struct {
    const char *name, *text;
    enum error_class class_;
} codes[TRP_CODE_COUNT] = {[TRP_OK] = {"TRP_OK", "no error", CLASS_FATAL},
#define X(name_, class_name, text_) [TRP_E##name_] = {"TRP_E" #name_, text_, CLASS_##class_name},
                           TRP_ERROR_MAP(X)
#undef X
};

/* A code may have come over the wire: any number is possible. */
static bool is_code(trp_code code) {
    return (unsigned)code < TRP_CODE_COUNT;
}

const char *trp_code_text(trp_code code) {
    return is_code(code) ? codes[code].text : "unknown error";
}

const char *trp_code_name(trp_code code) {
    return is_code(code) ? codes[code].name : "TRP_E?";
}

bool trp_code_retryable(trp_code code) {
    return is_code(code) && codes[code].class_ == CLASS_RETRY;
}

const char *trp_cause_text(trp_cause cause) {
    static const char *const texts[TRP_CAUSE_COUNT] = {
#define X(name, text) [TRP_CAUSE_##name] = text,
        TRP_CAUSE_MAP(X)
#undef X
    };
    return (unsigned)cause < TRP_CAUSE_COUNT ? texts[cause] : "unknown cause";
}

__attribute__((format(printf, 3, 0))) static void fail_with(trp_error *err, trp_code code,
                                                            const char *format, va_list args) {
    /* Formatted aside first: an argument may be err->message itself. */
    char message[sizeof(err->message)];
    (void)vsnprintf(message, sizeof(message), format, args);
    trpi_error_clear(err);
    err->code = code;
    memcpy(err->message, message, sizeof(message));
}

trp_code trpi_fail(trp_error *err, trp_code code, const char *format, ...) {
    if (err != NULL) {
        va_list args;
        va_start(args, format);
        fail_with(err, code, format, args);
        va_end(args);
    }
    return code;
}

trp_code trp_raise_at(trp_error *err, const char *file, int line, const char *function,
                      const char *type, const char *format, ...) {
    if (err != NULL) {
        const char *slash = strrchr(file, '/'); /* where the compiler ran is nobody's business */
        char kept[sizeof(err->type)];           /* `type` may be err->type, raised again */
        TRPI_SET(kept, type != NULL ? type : "");
        va_list args;
        va_start(args, format);
        fail_with(err, TRP_EUSER, format, args);
        va_end(args);
        memcpy(err->type, kept, sizeof(kept));
        trpi_format(err->where, sizeof(err->where), "%s:%d %s()", slash ? slash + 1 : file, line,
                    function);
    }
    return TRP_EUSER;
}

trp_code trpi_context(trp_error *err, trp_code code, const char *format, ...) {
    if (err != NULL) {
        char message[sizeof(err->message)];
        va_list args;
        va_start(args, format);
        (void)vsnprintf(message, sizeof(message), format, args);
        va_end(args);
        size_t used = strlen(message);
        trpi_format(message + used, sizeof(message) - used, ": %s", err->message);
        err->code = code;
        memcpy(err->message, message, sizeof(message));
    }
    return code;
}

void trpi_error_clear(trp_error *err) {
    if (err != NULL) {
        err->code = TRP_OK;
        err->node = 0;
        err->actor = 0;
        err->message[0] = '\0';
        err->type[0] = '\0';
        err->where[0] = '\0';
    }
}
