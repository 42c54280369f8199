#include "core/state/membership.h"

#include <stdlib.h>

void trpi_membership_init(trpi_membership *membership, uint64_t timeout_ns, uint64_t late_ns) {
    *membership = (trpi_membership){.timeout_ns = timeout_ns, .late_ns = late_ns};
}

void trpi_membership_release(trpi_membership *membership) {
    trpi_member *member;
    uint64_t id = 0;
    while ((member = trpi_table_next(&membership->members, &id)) != NULL) {
        free(member);
    }
    trpi_table_release(&membership->members);
}

uint64_t trpi_membership_join(trpi_membership *membership, uint64_t id, uint64_t now_ns) {
    trpi_member *member = trpi_table_get(&membership->members, id);
    if (!member) {
        member = trpi_alloc(sizeof(*member));
        member->id = id;
        trpi_table_put(&membership->members, id, member);
    }
    TRP_ASSERT(!member->living);
    member->living = true;
    member->incarnation++;
    member->joined_ns = member->heard_ns = now_ns;
    return member->incarnation;
}

void trpi_membership_leave(trpi_membership *membership, uint64_t id) {
    trpi_member *member = trpi_table_get(&membership->members, id);
    if (member) {
        member->living = false;
    }
}

void trpi_membership_forget(trpi_membership *membership, uint64_t id) {
    free(trpi_table_remove(&membership->members, id));
}

bool trpi_membership_hears(trpi_membership *membership, uint64_t id, uint64_t incarnation,
                           uint64_t now_ns) {
    trpi_member *member = trpi_table_get(&membership->members, id);
    if (!member || !member->living || member->incarnation != incarnation) {
        return false;
    }
    member->heard_ns = TRPI_MAX(member->heard_ns, now_ns);
    return true;
}

void trpi_membership_tick(trpi_membership *membership, uint64_t now_ns) {
    bool first = membership->ticked_ns == 0;
    bool jumped =
        now_ns < membership->ticked_ns || now_ns - membership->ticked_ns > membership->late_ns;
    if (first || jumped) {
        membership->listening_ns = now_ns;
        membership->tilts += !first;
    }
    membership->ticked_ns = now_ns;
}

const trpi_member *trpi_membership_silent(const trpi_membership *membership, uint64_t *id,
                                          uint64_t now_ns) {
    const trpi_member *member;
    while ((member = trpi_table_next(&membership->members, id)) != NULL) {
        uint64_t since = TRPI_MAX(member->heard_ns, membership->listening_ns);
        if (member->living && now_ns > since && now_ns - since > membership->timeout_ns) {
            return member;
        }
    }
    return NULL;
}

const char *trpi_membership_check(const trpi_membership *membership) {
    const trpi_member *member;
    uint64_t id = 0;
    while ((member = trpi_table_next(&membership->members, &id)) != NULL) {
        if (member->id != id || member->incarnation == 0) {
            return "a member without incarnation";
        }
        if (member->joined_ns > member->heard_ns) {
            return "a member was heard before it joined";
        }
    }
    return NULL;
}
