#include "actors/bin/node_flags.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static trp_code parse_count(const char *flag, const char *text, double *ret_value, trp_error *err) {
    *ret_value = -1; /* what the machine has */
    if (text == NULL) {
        return TRP_OK;
    }
    double value;
    if (!trpi_parse_double(text, &value) || value < 0 || value > 1e6) {
        return trpi_fail(err, TRP_EINVALID, "%s: \"%s\" is no amount", flag, text);
    }
    *ret_value = value;
    return TRP_OK;
}

static size_t count_entries(const char *text) {
    size_t count = 1;
    for (; *text != '\0'; text++) {
        count += *text == ',';
    }
    return count;
}

static trp_code parse_resources(trpi_parsed_node_flags *parsed, const char *text, trp_error *err) {
    parsed->resources_text = trpi_strdup(text);
    parsed->resources = trpi_alloc(count_entries(text) * sizeof(*parsed->resources));
    char *rest = parsed->resources_text, *entry;
    size_t count = 0;
    while ((entry = strsep(&rest, ",")) != NULL) {
        char *equals = strchr(entry, '=');
        double amount;
        if (equals == NULL || equals == entry || !trpi_parse_double(equals + 1, &amount) ||
            amount < 0) {
            return trpi_fail(err, TRP_EINVALID, "--resources: \"%s\" is not NAME=AMOUNT", entry);
        }
        *equals = '\0';
        if (strcmp(entry, "cpu") == 0 || strcmp(entry, "gpu") == 0 ||
            strcmp(entry, "memory") == 0) {
            return trpi_fail(err, TRP_EINVALID, "--resources: %s has a flag of its own: %s", entry,
                             entry[0] == 'm'   ? "--memory"
                             : entry[0] == 'c' ? "--num-cpus"
                                               : "--num-gpus");
        }
        parsed->resources[count++] = (trp_resource){.name = entry, .amount = amount};
    }
    parsed->options.resources = parsed->resources;
    parsed->options.resource_count = count;
    return TRP_OK;
}

static trp_code parse_labels(trpi_parsed_node_flags *parsed, const char *text, trp_error *err) {
    parsed->labels_text = trpi_strdup(text);
    parsed->labels = trpi_alloc((count_entries(text) + 1) * sizeof(*parsed->labels));
    char *rest = parsed->labels_text, *entry;
    size_t count = 0;
    while ((entry = strsep(&rest, ",")) != NULL) {
        char *equals = strchr(entry, '=');
        if (equals == NULL || equals == entry) {
            return trpi_fail(err, TRP_EINVALID, "--labels: \"%s\" is not KEY=VALUE", entry);
        }
        parsed->labels[count++] = entry;
    }
    parsed->options.labels = parsed->labels;
    return TRP_OK;
}

trp_code trpi_node_flags_parse(const trpi_node_flags *flags, trpi_parsed_node_flags *ret_parsed,
                               trp_error *err) {
    trpi_parsed_node_flags parsed = {.options = {.host = flags->host, .name = flags->name}};
    trp_code code = parse_count("--num-cpus", flags->cpus, &parsed.options.cpus, err);
    if (code == TRP_OK) {
        code = parse_count("--num-gpus", flags->gpus, &parsed.options.gpus, err);
    }
    if (code == TRP_OK && parsed.options.gpus > 0 &&
        parsed.options.gpus != floor(parsed.options.gpus)) {
        code = trpi_fail(err, TRP_EINVALID, "--num-gpus: %s: a node has whole GPUs", flags->gpus);
    }
    if (code == TRP_OK && flags->memory != NULL &&
        (!trpi_parse_size(flags->memory, &parsed.options.memory_bytes) ||
         parsed.options.memory_bytes == 0)) {
        code = trpi_fail(err, TRP_EINVALID, "--memory: \"%s\" is no size; write it like 8GiB",
                         flags->memory);
    }
    if (code == TRP_OK && flags->resources != NULL) {
        code = parse_resources(&parsed, flags->resources, err);
    }
    if (code == TRP_OK && flags->labels != NULL) {
        code = parse_labels(&parsed, flags->labels, err);
    }
    if (code != TRP_OK) {
        trpi_node_flags_release(&parsed);
        return code;
    }
    *ret_parsed = parsed;
    return TRP_OK;
}

void trpi_node_flags_release(trpi_parsed_node_flags *parsed) {
    free(parsed->resources);
    free(parsed->resources_text);
    free(parsed->labels);
    free(parsed->labels_text);
    *parsed = (trpi_parsed_node_flags){0};
}

size_t trpi_node_flags_append(const trpi_node_flags *flags, const char **argv, size_t count) {
    const char *const pairs[][2] = {
        {"--host", flags->host},           {"--num-cpus", flags->cpus},
        {"--num-gpus", flags->gpus},       {"--memory", flags->memory},
        {"--resources", flags->resources}, {"--labels", flags->labels},
        {"--node-name", flags->name},
    };
    for (size_t i = 0; i < TRPI_COUNTOF(pairs); i++) {
        if (pairs[i][1] != NULL) {
            argv[count++] = pairs[i][0];
            argv[count++] = pairs[i][1];
        }
    }
    return count;
}
