/* client_options.h: what a user asks for is checked where it was written, before anybody hears of
 * it. Each refusal is TRP_EINVALID, names the option and says what it may be. Pure. */
#ifndef TRPI_CLIENT_OPTIONS_H
#define TRPI_CLIENT_OPTIONS_H

#include <troupe/actor.h>

/* type: the actor's, NULL when it is not known here. */
TRP_CHECKED trp_code trpi_spawn_check(const trp_spawn_options *options, const trp_actor_type *type,
                                      trp_error *err);
TRP_CHECKED trp_code trpi_call_check(const trp_call_options *options, trp_error *err);
TRP_CHECKED trp_code trpi_gang_check(const trp_gang_options *options, trp_error *err);
/* "KEY=value" strings, ends with NULL; NULL is none. */
TRP_CHECKED trp_code trpi_env_check(const char *const *env, trp_error *err);

#endif
