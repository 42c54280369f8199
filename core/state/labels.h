/* labels.h: what a node is called, and which names an actor wants or does not want.
 *
 * A node has labels "key=value" or just "key". A rule is one of
 *
 *     "k=v"  "k=a|b"   the value is one of these
 *     "k!=v" "k!=a|b"  the value is none of these; a node without the key is fine
 *     "k"    "!k"      it has the key, or has not
 *
 * and all rules must hold. Keys and values are letters, digits and - _ . / : at most 63 bytes. */
#ifndef TRPI_LABELS_H
#define TRPI_LABELS_H

#include "core/wire/msg.h"

#define TRPI_LABELS_MAX 256 /* of one node */
#define TRPI_LABEL_RULES_MAX 64
#define TRPI_LABEL_VALUES_MAX 64 /* of one rule */

typedef struct trpi_label {
    char *key, *value; /* value "" when it has none */
} trpi_label;

typedef struct trpi_labels {
    trpi_label *items; /* in order of keys, each once */
    size_t count;
} trpi_labels; /* zeroed = none */

/* TRP_EINVALID: malformed, a key twice, too many. */
TRP_CHECKED trp_code trpi_labels_parse(const trpi_text *list, size_t count, trpi_labels *ret_labels,
                                       trp_error *err);
void trpi_labels_release(trpi_labels *labels);

typedef enum {
    TRPI_LABEL_IS,
    TRPI_LABEL_IS_NOT,
    TRPI_LABEL_THERE,
    TRPI_LABEL_NOT_THERE
} trpi_label_relation;

typedef struct trpi_label_rule {
    trpi_label_relation relation;
    char *text;    /* as it was written */
    char *key;     /* "k" */
    char **values; /* of IS and IS_NOT, at least one */
    size_t value_count;
} trpi_label_rule;

typedef struct trpi_label_rules {
    trpi_label_rule *items;
    size_t count;
} trpi_label_rules; /* zeroed = none, which every node satisfies */

TRP_CHECKED trp_code trpi_label_rules_parse(const trpi_text *list, size_t count,
                                            trpi_label_rules *ret_rules, trp_error *err);
void trpi_label_rules_release(trpi_label_rules *rules);

bool trpi_label_rule_holds(const trpi_label_rule *rule, const trpi_labels *labels);
bool trpi_labels_match(const trpi_label_rules *rules, const trpi_labels *labels); /* all hold */
/* "zone=a, ssd"; "" for none. */
void trpi_label_rules_text(const trpi_label_rules *rules, char *out, size_t size);

#endif
