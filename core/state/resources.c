#include "core/state/resources.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Names ---- */

static uint32_t add_name(trpi_resource_names *names, const char *name) {
    names->names = trpi_realloc(names->names, (names->count + 1) * sizeof(char *));
    names->names[names->count] = trpi_strdup(name);
    (void)trpi_index_put(&names->numbers, trp_bytes_of(name), (void *)(names->count + 1));
    return (uint32_t)names->count++;
}

void trpi_resource_names_init(trpi_resource_names *names) {
    *names = (trpi_resource_names){0};
    add_name(names, "cpu"); /* in the order of trpi_known_resource */
    add_name(names, "gpu");
    add_name(names, "memory");
}

void trpi_resource_names_release(trpi_resource_names *names) {
    for (size_t i = 0; i < names->count; i++) {
        free(names->names[i]);
    }
    free(names->names);
    trpi_index_release(&names->numbers);
    *names = (trpi_resource_names){0};
}

const char *trpi_resource_name(const trpi_resource_names *names, uint32_t resource) {
    TRP_ASSERT(resource < names->count);
    return names->names[resource];
}

static trp_code number_of(trpi_resource_names *names, const char *name, uint32_t *ret_resource,
                          trp_error *err) {
    uintptr_t known = (uintptr_t)trpi_index_get(&names->numbers, trp_bytes_of(name));
    if (known) {
        *ret_resource = (uint32_t)(known - 1);
        return TRP_OK;
    }
    size_t length = strlen(name);
    if (length == 0 || length > TRPI_RESOURCE_NAME_MAX) {
        return trpi_fail(err, TRP_EINVALID, "resource \"%.70s\": a name has 1 to %d bytes", name,
                         TRPI_RESOURCE_NAME_MAX);
    }
    if (names->count == TRPI_RESOURCE_NAMES_MAX) {
        return trpi_fail(err, TRP_EBUSY, "resource \"%s\": this cluster knows %d names already",
                         name, TRPI_RESOURCE_NAMES_MAX);
    }
    *ret_resource = add_name(names, name);
    return TRP_OK;
}

/* ---- Requests ---- */

void trpi_amount_text(int64_t amount, char *out, size_t size) {
    int64_t whole = amount / TRPI_ONE, rest = amount % TRPI_ONE;
    if (rest == 0) {
        trpi_format(out, size, "%" PRId64, whole);
        return;
    }
    int digits = 4;
    while (rest % 10 == 0) {
        rest /= 10;
        digits--;
    }
    trpi_format(out, size, "%" PRId64 ".%0*" PRId64, whole, digits, rest);
}

static trp_code check_amount(const trpi_resource *asked, uint32_t resource, trp_error *err) {
    if (asked->amount < 0 || asked->amount > TRPI_AMOUNT_MAX) {
        return trpi_fail(err, TRP_EINVALID, "resource %s: %" PRId64 "/10000 is out of range",
                         asked->name, asked->amount);
    }
    if (resource == TRPI_GPU && asked->amount > TRPI_ONE && asked->amount % TRPI_ONE != 0) {
        char text[32];
        trpi_amount_text(asked->amount, text, sizeof(text));
        return trpi_fail(err, TRP_EINVALID, "%s gpu: above 1 it must be a whole number", text);
    }
    return TRP_OK;
}

/* Puts an amount at its place in the order. */
static trp_code insert_amount(trpi_request *request, trpi_amount amount, const char *name,
                              trp_error *err) {
    size_t at = request->count;
    while (at > 0 && request->amounts[at - 1].resource > amount.resource) {
        at--;
    }
    if (at > 0 && request->amounts[at - 1].resource == amount.resource) {
        return trpi_fail(err, TRP_EINVALID, "resource %s is named twice", name);
    }
    memmove(&request->amounts[at + 1], &request->amounts[at],
            (request->count - at) * sizeof(amount));
    request->amounts[at] = amount;
    request->count++;
    return TRP_OK;
}

trp_code trpi_request_parse(trpi_resource_names *names, const trpi_resource *list, size_t count,
                            trpi_request *ret_request, trp_error *err) {
    if (count > TRPI_RESOURCES_MAX) {
        return trpi_fail(err, TRP_EINVALID, "%zu resources, at most %d", count, TRPI_RESOURCES_MAX);
    }
    trpi_request request = {0};
    trp_code code = TRP_OK;
    if (count) {
        request.amounts = trpi_alloc(count * sizeof(trpi_amount));
    }
    for (size_t i = 0; i < count; i++) {
        trpi_amount amount = {.amount = list[i].amount};
        code = number_of(names, list[i].name, &amount.resource, err);
        if (code == TRP_OK) {
            code = check_amount(&list[i], amount.resource, err);
        }
        if (code == TRP_OK && amount.amount > 0) {
            code = insert_amount(&request, amount, list[i].name, err);
        }
        if (code != TRP_OK) {
            trpi_request_release(&request);
            return code;
        }
    }
    *ret_request = request;
    return TRP_OK;
}

void trpi_request_release(trpi_request *request) {
    free(request->amounts);
    *request = (trpi_request){0};
}

int64_t trpi_request_amount(const trpi_request *request, uint32_t resource) {
    for (size_t i = 0; i < request->count; i++) {
        if (request->amounts[i].resource == resource) {
            return request->amounts[i].amount;
        }
    }
    return 0;
}

void trpi_request_add(trpi_request *sum, const trpi_request *more) {
    size_t a = 0, b = 0, most = sum->count + more->count;
    trpi_request both = {.amounts = trpi_alloc(TRPI_MAX(most, (size_t)1) * sizeof(trpi_amount))};
    while (a < sum->count || b < more->count) {
        bool from_a = b == more->count ||
                      (a < sum->count && sum->amounts[a].resource <= more->amounts[b].resource);
        trpi_amount next = from_a ? sum->amounts[a++] : more->amounts[b++];
        if (from_a && b < more->count && more->amounts[b].resource == next.resource) {
            next.amount += more->amounts[b++].amount;
        }
        both.amounts[both.count++] = next;
    }
    trpi_request_release(sum);
    *sum = both;
}

void trpi_request_text(const trpi_request *request, const trpi_resource_names *names, char *out,
                       size_t size) {
    trpi_format(out, size, "%s", request->count ? "" : "nothing");
    for (size_t i = 0; i < request->count; i++) {
        char amount[32];
        trpi_amount_text(request->amounts[i].amount, amount, sizeof(amount));
        size_t used = strlen(out);
        trpi_format(out + used, size - used, "%s%s %s", i ? ", " : "", amount,
                    trpi_resource_name(names, request->amounts[i].resource));
    }
}
