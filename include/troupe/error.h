/* error.h: every failure in troupe is one of these values.
 *
 * A function that can fail returns a trp_code (0 is good) and writes detail into a caller-owned
 * trp_error, which is always the last parameter and may be NULL. Nothing is kept in errno or in
 * thread-local storage, so an error can travel: it is also a message on the wire. */
#ifndef TROUPE_ERROR_H
#define TROUPE_ERROR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, class, text). Append only: the numbers travel on the wire and are never reused.
 * Class RETRY: the same request may succeed later. FATAL: it will not. USER: user code failed. */
#define TRP_ERROR_MAP(X)                                                                           \
    X(NOMEM, FATAL, "out of memory")                                                               \
    X(INVALID, FATAL, "invalid argument")                                                          \
    X(TIMEOUT, RETRY, "deadline passed")                                                           \
    X(CANCELED, FATAL, "canceled")                                                                 \
    X(NODE_DIED, RETRY, "node died")                                                               \
    X(ACTOR_DIED, FATAL, "actor died")                                                             \
    X(UNAVAILABLE, RETRY, "actor unavailable")                                                     \
    X(USER, USER, "actor method failed")                                                           \
    X(NOTFOUND, FATAL, "not found")                                                                \
    X(EXISTS, FATAL, "already exists")                                                             \
    X(INFEASIBLE, FATAL, "no node can ever hold this request")                                     \
    X(BUSY, RETRY, "limit reached")                                                                \
    X(DISCONNECTED, RETRY, "connection lost")                                                      \
    X(COMM_ABORTED, RETRY, "collective aborted")                                                   \
    X(PROTOCOL, FATAL, "peer speaks another protocol")                                             \
    X(CORRUPT, FATAL, "data is corrupt")                                                           \
    X(DEVICE, RETRY, "device error")                                                               \
    X(IO, RETRY, "storage error")                                                                  \
    X(UNSUPPORTED, FATAL, "not supported")                                                         \
    X(NONFINITE, FATAL, "number is not finite")                                                    \
    X(OBJECT_LOST, RETRY, "object lost")                                                           \
    X(INTERNAL, FATAL, "bug in troupe")

typedef enum trp_code {
    TRP_OK = 0,
#define X(name, class_, text) TRP_E##name,
    TRP_ERROR_MAP(X)
#undef X
        TRP_CODE_COUNT /* one past the last; not a code */
} trp_code;

/* Caller-owned; holds no pointers, so there is nothing to free. */
typedef struct trp_error {
    trp_code code;
    uint64_t node;     /* where it happened; 0 = in this process */
    uint64_t actor;    /* which actor failed; 0 = none */
    char message[768]; /* "spawn counter: node n3: out of memory", outermost context first */
    char type[48];     /* of a TRP_EUSER that trp_raise() made: "KeyError"; else "" */
    char where[160];   /* of that: "counter.c:42 add()", in the worker where it was; else "" */
} trp_error;

/* "out of memory"; static storage, never NULL, "unknown error" for a number that is none. */
const char *trp_code_text(trp_code code);

/* "TRP_ENOMEM"; static storage, never NULL. */
const char *trp_code_name(trp_code code);

/* Whether the same request may succeed later (class RETRY). */
bool trp_code_retryable(trp_code code);

#define TRP_CHECKED __attribute__((warn_unused_result))

/* How user code fails: writes TRP_EUSER, a type for the caller to tell failures by (any short name,
 * compared with strcmp; retry_on in actor.h names such types), the place and a message, and returns
 * TRP_EUSER:  return trp_raise(err, "KeyError", "no key %s", key);
 * All of it travels to the caller, also through methods that only pass an error on. */
#define trp_raise(err, type, ...)                                                                  \
    trp_raise_at((err), __FILE__, __LINE__, __func__, (type), __VA_ARGS__)
trp_code trp_raise_at(trp_error *err, const char *file, int line, const char *function,
                      const char *type, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

#ifdef __cplusplus
}
#endif
#endif
