/* ranks.c: quadratic on purpose: a gang has at most some thousand workers, and ranks are given once
 * per attempt. */
#include "trainer/state/ranks.h"

#include <string.h>

typedef struct device_name {
    const char *text;
    size_t size;
} device_name;

static bool is_number(device_name name) {
    for (size_t i = 0; i < name.size; i++) {
        if (name.text[i] < '0' || name.text[i] > '9') {
            return false;
        }
    }
    return name.size > 0;
}

static device_name without_zeros(device_name name) {
    while (name.size > 1 && name.text[0] == '0') {
        name.text++;
        name.size--;
    }
    return name;
}

/* Numbers by value ("9" before "10"), in front of everything else, which goes by its bytes. */
static int compare_names(device_name a, device_name b) {
    bool numbers = is_number(a) && is_number(b);
    if (!numbers && is_number(a) != is_number(b)) {
        return is_number(a) ? -1 : 1;
    }
    if (numbers) {
        a = without_zeros(a);
        b = without_zeros(b);
        if (a.size != b.size) {
            return a.size < b.size ? -1 : 1;
        }
    }
    int order = memcmp(a.text, b.text, TRPI_MIN(a.size, b.size));
    if (order == 0 && a.size != b.size) {
        return a.size < b.size ? -1 : 1;
    }
    return order;
}

/* The lowest name of a list; size 0 if the list is empty. */
static device_name lowest_device(const char *devices) {
    device_name lowest = {"", 0};
    const char *at = devices != NULL ? devices : "";
    while (*at != '\0') {
        device_name name = {at, strcspn(at, ",")};
        if (name.size > 0 && (lowest.size == 0 || compare_names(name, lowest) < 0)) {
            lowest = name;
        }
        at += name.size;
        at += *at == ',';
    }
    return lowest;
}

/* Whether slot a comes before slot b, both on one node. */
static bool comes_before(const trpi_rank_slot *slots, size_t a, size_t b) {
    device_name first = lowest_device(slots[a].devices);
    device_name second = lowest_device(slots[b].devices);
    if ((first.size == 0) != (second.size == 0)) {
        return first.size > 0; /* those with devices first */
    }
    int order = first.size == 0 ? 0 : compare_names(first, second);
    return order != 0 ? order < 0 : a < b;
}

static size_t first_on_node(const trpi_rank_slot *slots, size_t index) {
    for (size_t i = 0; i < index; i++) {
        if (slots[i].node == slots[index].node) {
            return i;
        }
    }
    return index;
}

static void place_on_node(trpi_rank_slot *slots, size_t count, size_t index) {
    trpi_rank_slot *slot = &slots[index];
    slot->local_rank = 0;
    slot->local_world = 0;
    for (size_t i = 0; i < count; i++) {
        if (slots[i].node == slot->node) {
            slot->local_world++;
            slot->local_rank += i != index && comes_before(slots, i, index);
        }
    }
}

void trpi_ranks_assign(trpi_rank_slot *slots, size_t count) {
    int nodes = 0;
    int base = 0; /* ranks on the nodes met so far */
    for (size_t i = 0; i < count; i++) {
        size_t first = first_on_node(slots, i);
        place_on_node(slots, count, i);
        if (first == i) {
            slots[i].node_rank = nodes++;
            slots[i].rank = base; /* of its node; made its own below */
            base += slots[i].local_world;
        } else {
            slots[i].node_rank = slots[first].node_rank;
            slots[i].rank = slots[first].rank;
        }
    }
    for (size_t i = 0; i < count; i++) {
        slots[i].rank += slots[i].local_rank;
    }
}
