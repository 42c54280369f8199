#include "core/state/labels.h"

#include <stdlib.h>
#include <string.h>

#define WORD_MAX 63

static size_t word_size(const char *text) {
    return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:");
}

static char *copy_word(const char *text, size_t size) {
    char *copy = trpi_alloc(size + 1);
    memcpy(copy, text, size);
    return copy;
}

static trp_code malformed(const char *text, trp_error *err) {
    return trpi_fail(err, TRP_EINVALID,
                     "label \"%.100s\": words of letters, digits and -_./: of 1 to %d bytes, as in "
                     "zone=a",
                     text, WORD_MAX);
}

/* ---- Labels ---- */

void trpi_labels_release(trpi_labels *labels) {
    for (size_t i = 0; i < labels->count; i++) {
        free(labels->items[i].key);
        free(labels->items[i].value);
    }
    free(labels->items);
    *labels = (trpi_labels){0};
}

static const trpi_label *find(const trpi_labels *labels, const char *key) {
    size_t low = 0, high = labels->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(labels->items[middle].key, key);
        if (order == 0) {
            return &labels->items[middle];
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

static trp_code parse_label(const char *text, trpi_label *ret_label, trp_error *err) {
    size_t key = word_size(text), value = text[key] == '=' ? word_size(text + key + 1) : 0;
    bool whole = text[key] == '\0' || (value && text[key + 1 + value] == '\0');
    if (key == 0 || key > WORD_MAX || value > WORD_MAX || !whole) {
        return malformed(text, err);
    }
    *ret_label = (trpi_label){copy_word(text, key), copy_word(text + key + (value > 0), value)};
    return TRP_OK;
}

static int by_key(const void *left, const void *right) {
    return strcmp(((const trpi_label *)left)->key, ((const trpi_label *)right)->key);
}

static trp_code check_unique(const trpi_labels *labels, trp_error *err) {
    for (size_t i = 1; i < labels->count; i++) {
        if (strcmp(labels->items[i - 1].key, labels->items[i].key) == 0) {
            return trpi_fail(err, TRP_EINVALID, "label %s is given twice", labels->items[i].key);
        }
    }
    return TRP_OK;
}

trp_code trpi_labels_parse(const trpi_text *list, size_t count, trpi_labels *ret_labels,
                           trp_error *err) {
    trpi_labels labels = {0};
    if (count > TRPI_LABELS_MAX) {
        return trpi_fail(err, TRP_EINVALID, "%zu labels, at most %d", count, TRPI_LABELS_MAX);
    }
    labels.items = count ? trpi_alloc(count * sizeof(trpi_label)) : NULL;
    trp_code code = TRP_OK;
    for (size_t i = 0; i < count && code == TRP_OK; i++) {
        code = parse_label(list[i].value, &labels.items[labels.count], err);
        labels.count += code == TRP_OK;
    }
    if (code == TRP_OK && count) {
        qsort(labels.items, labels.count, sizeof(trpi_label), by_key);
        code = check_unique(&labels, err);
    }
    if (code != TRP_OK) {
        trpi_labels_release(&labels);
        return code;
    }
    *ret_labels = labels;
    return TRP_OK;
}

/* ---- Rules ---- */

void trpi_label_rules_release(trpi_label_rules *rules) {
    for (size_t i = 0; i < rules->count; i++) {
        trpi_label_rule *rule = &rules->items[i];
        for (size_t k = 0; k < rule->value_count; k++) {
            free(rule->values[k]);
        }
        free(rule->values);
        free(rule->text);
        free(rule->key);
    }
    free(rules->items);
    *rules = (trpi_label_rules){0};
}

/* "a|b|c", to the end of the text. */
static trp_code parse_values(const char *text, trpi_label_rule *rule, trp_error *err) {
    for (const char *at = text;;) {
        size_t size = word_size(at);
        if (size == 0 || size > WORD_MAX || rule->value_count == TRPI_LABEL_VALUES_MAX) {
            return malformed(rule->text, err);
        }
        rule->values = trpi_realloc(rule->values, (rule->value_count + 1) * sizeof(*rule->values));
        rule->values[rule->value_count++] = copy_word(at, size);
        at += size;
        if (*at == '\0') {
            return TRP_OK;
        }
        if (*at++ != '|') {
            return malformed(rule->text, err);
        }
    }
}

static trp_code parse_rule(const char *text, trpi_label_rule *rule, trp_error *err) {
    bool negated = text[0] == '!';
    const char *key = text + negated;
    size_t size = word_size(key);
    const char *rest = key + size;
    rule->text = trpi_strdup(text);
    rule->key = copy_word(key, size);
    if (size == 0 || size > WORD_MAX) {
        return malformed(text, err);
    }
    if (*rest == '\0') {
        rule->relation = negated ? TRPI_LABEL_NOT_THERE : TRPI_LABEL_THERE;
        return TRP_OK;
    }
    if (!negated && rest[0] == '=') {
        rule->relation = TRPI_LABEL_IS;
        return parse_values(rest + 1, rule, err);
    }
    if (!negated && rest[0] == '!' && rest[1] == '=') {
        rule->relation = TRPI_LABEL_IS_NOT;
        return parse_values(rest + 2, rule, err);
    }
    return malformed(text, err);
}

trp_code trpi_label_rules_parse(const trpi_text *list, size_t count, trpi_label_rules *ret_rules,
                                trp_error *err) {
    trpi_label_rules rules = {0};
    if (count > TRPI_LABEL_RULES_MAX) {
        return trpi_fail(err, TRP_EINVALID, "%zu label rules, at most %d", count,
                         TRPI_LABEL_RULES_MAX);
    }
    rules.items = count ? trpi_alloc(count * sizeof(trpi_label_rule)) : NULL;
    for (size_t i = 0; i < count; i++) {
        rules.count++; /* also one that fails: it may own some of its parts */
        trp_code code = parse_rule(list[i].value, &rules.items[i], err);
        if (code != TRP_OK) {
            trpi_label_rules_release(&rules);
            return code;
        }
    }
    *ret_rules = rules;
    return TRP_OK;
}

bool trpi_label_rule_holds(const trpi_label_rule *rule, const trpi_labels *labels) {
    const trpi_label *label = find(labels, rule->key);
    bool listed = false;
    for (size_t i = 0; label && i < rule->value_count; i++) {
        listed |= strcmp(label->value, rule->values[i]) == 0;
    }
    switch (rule->relation) {
    case TRPI_LABEL_IS:
        return listed;
    case TRPI_LABEL_IS_NOT:
        return !listed;
    case TRPI_LABEL_THERE:
        return label != NULL;
    case TRPI_LABEL_NOT_THERE:
        return label == NULL;
    }
    return false;
}

bool trpi_labels_match(const trpi_label_rules *rules, const trpi_labels *labels) {
    for (size_t i = 0; i < rules->count; i++) {
        if (!trpi_label_rule_holds(&rules->items[i], labels)) {
            return false;
        }
    }
    return true;
}

void trpi_label_rules_text(const trpi_label_rules *rules, char *out, size_t size) {
    trpi_format(out, size, "%s", "");
    for (size_t i = 0; i < rules->count; i++) {
        size_t used = strlen(out);
        trpi_format(out + used, size - used, "%s%s", i ? ", " : "", rules->items[i].text);
    }
}
