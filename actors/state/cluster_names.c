/* cluster_names.c: actors and groups by name, unique in a namespace.
 *
 * What holds: a name is in its index exactly as long as its actor or group is neither dead nor
 * about to be. */
#include <string.h>

#include "actors/state/cluster_parts.h"

#define KEY_SIZE (2 * TRPI_TEXT_MAX + 2)

/* "namespace" NUL "name": no text can hold a NUL, so no two pairs share a key. */
static trp_bytes key_of(char *out, const char *space, const char *name) {
    size_t first = strlen(space) + 1, second = strlen(name);
    memcpy(out, space, first);
    memcpy(out + first, name, second);
    return (trp_bytes){out, first + second};
}

static void *named(const trpi_index *index, const char *space, const char *name) {
    char key[KEY_SIZE];
    if (!name[0] || strlen(name) > TRPI_TEXT_MAX || strlen(space) > TRPI_TEXT_MAX) {
        return NULL;
    }
    return trpi_index_get(index, key_of(key, space, name));
}

static const char *space_of(const trpi_cluster *c, uint64_t job) {
    const trpi_job_rec *of = trpi_table_get(&c->jobs, job);
    return of->namespace_name;
}

trpi_actor_rec *trpi_actor_named(const trpi_cluster *c, const char *space, const char *name) {
    return named(&c->names, space, name);
}

trpi_group_rec *trpi_group_named(const trpi_cluster *c, const char *space, const char *name) {
    return named(&c->group_names, space, name);
}

void trpi_actor_name_take(trpi_cluster *c, trpi_actor_rec *actor) {
    char key[KEY_SIZE];
    if (actor->name[0]) {
        (void)trpi_index_put(&c->names, key_of(key, space_of(c, actor->job), actor->name), actor);
        actor->named = true;
    }
}

void trpi_group_name_take(trpi_cluster *c, trpi_group_rec *group) {
    char key[KEY_SIZE];
    if (group->name[0]) {
        trp_bytes name = key_of(key, space_of(c, group->job), group->name);
        (void)trpi_index_put(&c->group_names, name, group);
        group->named = true;
    }
}

void trpi_actor_name_drop(trpi_cluster *c, trpi_actor_rec *actor) {
    char key[KEY_SIZE];
    if (actor->named) {
        trpi_index_remove(&c->names, key_of(key, space_of(c, actor->job), actor->name));
        actor->named = false;
    }
}

void trpi_group_name_drop(trpi_cluster *c, trpi_group_rec *group) {
    char key[KEY_SIZE];
    if (group->named) {
        trpi_index_remove(&c->group_names, key_of(key, space_of(c, group->job), group->name));
        group->named = false;
    }
}
