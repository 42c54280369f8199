#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/state/labels.h"

static trpi_labels labels(const char *a, const char *b) {
    trpi_text list[] = {{a}, {b}};
    trpi_labels of = {0};
    assert_int_equal(trpi_labels_parse(list, 2, &of, NULL), TRP_OK);
    return of;
}

static bool holds(const char *rule, const trpi_labels *of) {
    trpi_text list[] = {{rule}};
    trpi_label_rules rules = {0};
    trp_error error = {0};
    if (trpi_label_rules_parse(list, 1, &rules, &error) != TRP_OK) {
        fail_msg("%s", error.message);
    }
    bool match = trpi_labels_match(&rules, of);
    trpi_label_rules_release(&rules);
    return match;
}

static void each_kind_of_rule_says_what_it_says(void **state) {
    trpi_labels of = labels("zone=a", "ssd");
    static const struct {
        const char *rule;
        bool holds;
    } cases[] = {
        {"zone=a", true},    {"zone=b", false},    {"zone=b|a", true}, {"zone=b|c", false},
        {"zone!=a", false},  {"zone!=b", true},    {"zone", true},     {"!zone", false},
        {"ssd", true},       {"!ssd", false},      {"ssd=x", false},   {"ssd!=x", true},
        {"rack!=1", true},   {"zone!=b|a", false}, {"rack", false},    {"!rack", true},
        {"rack=1|2", false},
    };
    for (size_t i = 0; i < TRPI_COUNTOF(cases); i++) {
        if (holds(cases[i].rule, &of) != cases[i].holds) {
            fail_msg("%s", cases[i].rule);
        }
    }
    trpi_labels_release(&of);
}

static void all_rules_must_hold(void **state) {
    trpi_labels of = labels("zone=a", "ssd");
    trpi_text list[] = {{"zone=a"}, {"!ssd"}};
    trpi_label_rules rules = {0};
    char text[64];
    assert_int_equal(trpi_label_rules_parse(list, 2, &rules, NULL), TRP_OK);
    assert_false(trpi_labels_match(&rules, &of));
    trpi_label_rules_text(&rules, text, sizeof(text));
    assert_string_equal(text, "zone=a, !ssd");
    trpi_label_rules_release(&rules);
    assert_true(trpi_labels_match(&rules, &of)); /* none: every node */
    trpi_labels_release(&of);
}

static void what_is_malformed_is_refused(void **state) {
    static const char *const bad_rules[] = {"",        "=a",     "zone=", "zone=a|", "zone=|a", "!",
                                            "!zone=a", "zone!a", "a b",   "zone==a", "a=b c"};
    static const char *const bad_labels[] = {"", "=a", "zone=", "zone=a|b", "!zone", "a b"};
    char longest[80] = "zone=";
    memset(longest + 5, 'x', 64);
    for (size_t i = 0; i < TRPI_COUNTOF(bad_rules); i++) {
        trpi_text list[] = {{bad_rules[i]}};
        trpi_label_rules rules;
        trp_error error;
        if (trpi_label_rules_parse(list, 1, &rules, &error) != TRP_EINVALID) {
            fail_msg("%s", bad_rules[i]);
        }
    }
    for (size_t i = 0; i < TRPI_COUNTOF(bad_labels); i++) {
        trpi_text list[] = {{bad_labels[i]}};
        trpi_labels of;
        if (trpi_labels_parse(list, 1, &of, NULL) != TRP_EINVALID) {
            fail_msg("%s", bad_labels[i]);
        }
    }
    trpi_text too_long[] = {{longest}}, twice[] = {{"zone=a"}, {"zone=b"}};
    trpi_labels of;
    trp_error error;
    assert_int_equal(trpi_labels_parse(too_long, 1, &of, NULL), TRP_EINVALID);
    assert_int_equal(trpi_labels_parse(twice, 2, &of, &error), TRP_EINVALID);
    assert_string_equal(error.message, "label zone is given twice");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_rule_says_what_it_says),
        cmocka_unit_test(all_rules_must_hold),
        cmocka_unit_test(what_is_malformed_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
