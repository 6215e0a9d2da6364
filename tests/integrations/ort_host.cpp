// A program without Python that runs a model with npuc's execution provider: ONNX Runtime is opened by its path, and the few
// functions that are needed are taken from its table by their places.
//
//   ort_host LIBONNXRUNTIME LIBNPUC_ORT MODEL INPUT.bin OUTPUT.bin THREADS RUNS [KEY=VALUE ...]
//
// INPUT.bin holds the elements of the only input, float32, of the shape that the model states. Every thread runs the model RUNS
// times and compares each result with the first one; OUTPUT.bin gets the first output.
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Base {
    const void *const *(*api)(uint32_t version);
    const char *(*version)();
};

const void *const *table;

template <class Result = void *, class... Arguments> Result call(int place, Arguments... arguments) {
    return reinterpret_cast<Result (*)(Arguments...)>(const_cast<void *>(table[place]))(arguments...);
}

void check(void *status) {
    if (status == nullptr)
        return;
    std::fprintf(stderr, "%s\n", call<const char *>(2, status));
    std::exit(3);
}

std::vector<char> read(const char *path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

} // namespace

int main(int count, char **words) {
    if (count < 8)
        return 2;
    void *library = dlopen(words[1], RTLD_NOW);
    if (library == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    auto base = reinterpret_cast<const Base *(*)()>(dlsym(library, "OrtGetApiBase"))();
    table = base->api(23);
    void *env = nullptr, *options = nullptr, *session = nullptr, *memory = nullptr, *allocator = nullptr;
    check(call(3, 2, "host", &env));
    check(call(301, env, "npuc", static_cast<const char *>(words[2])));
    void *const *devices = nullptr;
    size_t device_count = 0;
    check(call(303, env, &devices, &device_count));
    const void *device = nullptr;
    for (size_t i = 0; i < device_count; i++)
        if (std::strcmp(call<const char *>(312, devices[i]), "NpucExecutionProvider") == 0)
            device = devices[i];
    if (device == nullptr)
        return 4;
    std::vector<std::string> texts;
    for (int i = 8; i < count; i++) {
        std::string pair = words[i];
        texts.push_back(pair.substr(0, pair.find('=')));
        texts.push_back(pair.substr(pair.find('=') + 1));
    }
    std::vector<const char *> keys, values;
    for (size_t i = 0; i < texts.size(); i += 2) {
        keys.push_back(texts[i].c_str());
        values.push_back(texts[i + 1].c_str());
    }
    check(call(10, &options));
    check(call(304, options, env, &device, size_t{1}, keys.data(), values.data(), keys.size()));
    check(call(7, env, static_cast<const char *>(words[3]), options, &session));

    void *type = nullptr, *info = nullptr;
    size_t rank = 0;
    char *input_name = nullptr, *output_name = nullptr;
    check(call(78, &allocator));                          // GetAllocatorWithDefaultOptions
    check(call(36, session, size_t{0}, allocator, &input_name));  // SessionGetInputName
    check(call(37, session, size_t{0}, allocator, &output_name)); // SessionGetOutputName
    check(call(33, session, size_t{0}, &type));           // SessionGetInputTypeInfo
    check(call(55, type, &info));
    check(call(61, info, &rank));
    std::vector<int64_t> shape(rank);
    check(call(62, info, shape.data(), rank));
    std::vector<char> input = read(words[4]);
    int64_t elements = 1;
    for (size_t i = 1; i < rank; i++)
        elements *= shape[i];
    if (shape[0] < 0)
        shape[0] = static_cast<int64_t>(input.size() / 4) / elements;
    check(call(69, 0, 0, &memory));

    std::atomic<int> wrong{0};
    auto run = [&](std::vector<char> *result) {
        void *in = nullptr, *out = nullptr;
        check(call(49, memory, static_cast<void *>(input.data()), input.size(), shape.data(), rank, 1, &in));
        const char *names[] = {input_name}, *outputs[] = {output_name};
        check(call(9, session, static_cast<void *>(nullptr), names, &in, size_t{1}, outputs, size_t{1}, &out));
        size_t size = 0;
        const char *data = nullptr;
        check(call(318, out, &size));
        check(call(378, out, &data));
        result->assign(data, data + size);
        call<void>(96, out);
        call<void>(96, in);
    };
    std::vector<char> first;
    run(&first);
    std::vector<std::thread> threads;
    for (int i = 0; i < std::atoi(words[6]); i++)
        threads.emplace_back([&] {
            std::vector<char> again;
            for (int j = 0; j < std::atoi(words[7]); j++) {
                run(&again);
                wrong += again != first;
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    std::ofstream(words[5], std::ios::binary).write(first.data(), static_cast<std::streamsize>(first.size()));
    call<void>(95, session);
    call<void>(100, options);
    check(call(302, env, "npuc"));
    call<void>(92, env);
    std::printf("%d wrong\n", wrong.load());
    return wrong == 0 ? 0 : 5;
}
