#include "trainer/run/function.h"

#include <string.h>

enum { NEAREST_AMONG = 64 };

/* Set once, before trp_init(), and read-only from then on. */
static const trp_train_function *functions;

void trp_train_register(const trp_train_function *table) {
    functions = table;
}

trp_code trpi_function_find(const char *name, trp_train_fn *ret_run, trp_error *err) {
    const char *names[NEAREST_AMONG];
    size_t count = 0;
    for (const trp_train_function *f = functions; f != NULL && f->name != NULL; f++) {
        if (strcmp(f->name, name) == 0) {
            *ret_run = f->run;
            return TRP_OK;
        }
        if (count < NEAREST_AMONG) {
            names[count++] = f->name;
        }
    }
    if (count == 0) {
        return trpi_fail(err, TRP_EINVALID,
                         "train function \"%s\": none is registered; call trp_train_register() "
                         "before trp_init()",
                         name);
    }
    const char *near = trpi_nearest(name, names, count);
    return trpi_fail(err, TRP_EINVALID, "train function \"%s\" is not registered%s%s%s", name,
                     near != NULL ? "; did you mean \"" : "", near != NULL ? near : "",
                     near != NULL ? "\"?" : "");
}
