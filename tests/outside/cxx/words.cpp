// words.cpp: an actor in C++. It counts words; an exception must not leave a method.
#include <cstdio>
#include <map>
#include <new>
#include <stdexcept>
#include <string>

#include <troupe/runtime.h>
#include <troupe/value.h>

namespace {

struct counter {
    std::map<std::string, int64_t> words;
};

// The state is zeroed bytes, in which the constructor makes the object.
trp_code start(trp_context *, void *state, trp_bytes, trp_error *) {
    new (state) counter();
    return TRP_OK;
}

void stop(trp_context *, void *state) {
    static_cast<counter *>(state)->~counter();
}

trp_code add(trp_context *, void *state, trp_bytes args, trp_buf *reply, trp_error *err) try {
    trp_bytes word;
    if (trp_code code = trp_unpack(args, err, "S", &word)) {
        return code;
    }
    if (word.size == 0) {
        throw std::invalid_argument("an empty word");
    }
    std::string key(static_cast<const char *>(word.data), word.size);
    return trp_pack(reply, err, "i", ++static_cast<counter *>(state)->words[key]);
} catch (const std::exception &e) {
    return trp_raise(err, "std::exception", "%s", e.what());
}

const trp_method methods[] = {{"add", add, nullptr}, {nullptr, nullptr, nullptr}};

trp_actor_type make_type() {
    trp_actor_type type = {};
    type.name = "words";
    type.state_size = sizeof(counter);
    type.methods = methods;
    type.start = start;
    type.stop = stop;
    return type;
}

const trp_actor_type words = make_type();
const trp_actor_type *const types[] = {&words, nullptr};

int fail(const trp_error &err) {
    std::fprintf(stderr, "words: %s\n", err.message);
    return 1;
}

} // namespace

int main() {
    trp_runtime *rt;
    trp_actor actor;
    trp_error err;
    trp_spawn_options options = {};
    options.cpus = 1;
    if (trp_init(types, nullptr, &rt, &err) || trp_spawn(rt, "words", {}, &options, &actor, &err)) {
        return fail(err);
    }
    for (std::string word : {"to", "be", "or", "not", "to", "be", ""}) {
        trp_buf args = {}, reply = {};
        int64_t count = 0;
        trp_code code = trp_pack(&args, &err, "S", word.data(), word.size());
        if (!code) {
            code = trp_ask(rt, actor, "add", trp_buf_bytes(&args), 10000, &reply, &err);
        }
        if (code == TRP_EUSER) {
            std::printf("%s: %s\n", err.type, std::string(err.message).c_str());
        } else if (code || trp_unpack(trp_buf_bytes(&reply), &err, "i", &count)) {
            return fail(err);
        } else {
            std::printf("%s %d\n", word.c_str(), static_cast<int>(count));
        }
        trp_buf_release(&args);
        trp_buf_release(&reply);
    }
    trp_shutdown(&rt);
    return 0;
}
