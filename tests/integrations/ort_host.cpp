// A program without Python that runs any model with npuc's execution provider: ONNX Runtime is opened by its path, and the few
// functions that are needed are taken from its table by their places.
//
//   ort_host LIBONNXRUNTIME LIBNPUC_ORT MODEL FOLDER THREADS RUNS [KEY=VALUE ...] [dimension:NAME=SIZE ...]
//
// FOLDER has the elements of every input (input_0.bin) and its shape (input_0.shape, sizes with blanks between). Every thread
// runs the model RUNS times and compares each result with the first one. The outputs of the first run are written likewise:
// output_0.bin, output_0.shape. A KEY is an option of the provider; `dimension:NAME` fixes an axis that the model only names.
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
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

std::string read(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        std::fprintf(stderr, "there is no %s\n", path.c_str());
        std::exit(2);
    }
    return {std::istreambuf_iterator<char>(file), {}};
}

struct Tensor {
    std::vector<int64_t> shape;
    std::string bytes;

    bool operator!=(const Tensor &other) const { return shape != other.shape || bytes != other.bytes; }
};

std::string path_of(const char *folder, const char *what, size_t index, const char *suffix) {
    return std::string(folder) + "/" + what + "_" + std::to_string(index) + suffix;
}

Tensor read_tensor(const char *folder, size_t index) {
    Tensor tensor{{}, read(path_of(folder, "input", index, ".bin"))};
    std::istringstream sizes(read(path_of(folder, "input", index, ".shape")));
    for (int64_t size; sizes >> size;)
        tensor.shape.push_back(size);
    return tensor;
}

void write_tensor(const char *folder, size_t index, const Tensor &tensor) {
    std::ofstream(path_of(folder, "output", index, ".bin"), std::ios::binary) << tensor.bytes;
    std::ofstream sizes(path_of(folder, "output", index, ".shape"));
    for (int64_t size : tensor.shape)
        sizes << size << ' ';
}

// The element type of an input of a session.
int element_type(void *session, size_t index) {
    void *type = nullptr, *info = nullptr;
    int element = 0;
    check(call(33, session, index, &type)); // SessionGetInputTypeInfo
    check(call(55, type, &info));           // CastTypeInfoToTensorInfo: belongs to type
    check(call(60, info, &element));        // GetTensorElementType
    call<void>(98, type);                   // ReleaseTypeInfo
    return element;
}

// A result, copied.
Tensor copied(void *value) {
    Tensor tensor;
    void *info = nullptr;
    size_t rank = 0, size = 0;
    const char *data = nullptr;
    check(call(65, value, &info)); // GetTensorTypeAndShape
    check(call(61, info, &rank));
    tensor.shape.resize(rank);
    check(call(62, info, tensor.shape.data(), rank));
    call<void>(99, info);
    check(call(318, value, &size));
    check(call(378, value, &data));
    tensor.bytes.assign(data, size);
    return tensor;
}

} // namespace

int main(int count, char **words) {
    if (count < 7) {
        std::fprintf(stderr, "ort_host LIBONNXRUNTIME LIBNPUC_ORT MODEL FOLDER THREADS RUNS [KEY=VALUE ...]\n");
        return 2;
    }
    const char *folder = words[4];
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
    check(call(10, &options));
    std::vector<std::string> texts;
    for (int i = 7; i < count; i++) {
        const std::string pair = words[i], key = pair.substr(0, pair.find('=')), value = pair.substr(pair.find('=') + 1);
        if (key.rfind("dimension:", 0) == 0) // AddFreeDimensionOverrideByName
            check(call(124, options, key.c_str() + 10, static_cast<int64_t>(std::atoll(value.c_str()))));
        else
            texts.insert(texts.end(), {key, value});
    }
    std::vector<const char *> keys, values;
    for (size_t i = 0; i < texts.size(); i += 2) {
        keys.push_back(texts[i].c_str());
        values.push_back(texts[i + 1].c_str());
    }
    check(call(130, options, "session.x64quantprecision", "1")); // AddSessionConfigEntry
    check(call(304, options, env, &device, size_t{1}, keys.data(), values.data(), keys.size()));
    check(call(7, env, static_cast<const char *>(words[3]), options, &session));

    size_t input_count = 0, output_count = 0;
    check(call(78, &allocator));               // GetAllocatorWithDefaultOptions
    check(call(30, session, &input_count));    // SessionGetInputCount
    check(call(31, session, &output_count));   // SessionGetOutputCount
    check(call(69, 0, 0, &memory));            // CreateCpuMemoryInfo
    std::vector<char *> input_names(input_count), output_names(output_count);
    std::vector<Tensor> inputs;
    std::vector<int> types;
    for (size_t i = 0; i < input_count; i++) {
        check(call(36, session, i, allocator, &input_names[i])); // SessionGetInputName
        inputs.push_back(read_tensor(folder, i));
        types.push_back(element_type(session, i));
    }
    for (size_t i = 0; i < output_count; i++)
        check(call(37, session, i, allocator, &output_names[i])); // SessionGetOutputName

    auto run = [&] {
        std::vector<void *> in(input_count), out(output_count);
        for (size_t i = 0; i < input_count; i++) // CreateTensorWithDataAsOrtValue
            check(call(49, memory, static_cast<void *>(inputs[i].bytes.data()), inputs[i].bytes.size(),
                       inputs[i].shape.data(), inputs[i].shape.size(), types[i], &in[i]));
        check(call(9, session, static_cast<void *>(nullptr), input_names.data(), in.data(), input_count, output_names.data(),
                   output_count, out.data()));
        std::vector<Tensor> results;
        for (void *value : out) {
            results.push_back(copied(value));
            call<void>(96, value);
        }
        for (void *value : in)
            call<void>(96, value);
        return results;
    };
    const std::vector<Tensor> first = run();
    std::atomic<int> wrong{0}, done{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < std::atoi(words[5]); i++)
        threads.emplace_back([&] {
            for (int j = 0; j < std::atoi(words[6]); j++, done++) {
                const std::vector<Tensor> again = run();
                for (size_t k = 0; k < output_count; k++)
                    wrong += again[k] != first[k];
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    for (size_t i = 0; i < output_count; i++)
        write_tensor(folder, i, first[i]);
    call<void>(95, session);
    call<void>(100, options);
    check(call(302, env, "npuc"));
    call<void>(92, env);
    std::printf("%d runs, %d wrong\n", done.load(), wrong.load());
    return wrong == 0 ? 0 : 5;
}
