// npu.hpp: cpp_api MODEL INPUT EXPECTED.
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>

#include "npu.hpp"

static std::vector<char> read_all(const char *path)
{
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

int main(int, char **words)
{
    try {
        npu::Model("/nowhere/model.npu");
        return 2;
    } catch (const npu::Error &error) {
        if (error.status() != NPU_NO_FILE) return 3;
    }
    npu::Model first(words[1]);
    npu::Model model = std::move(first);
    const auto input = read_all(words[2]), expected = read_all(words[3]);
    std::vector<char> got(model.outputs().at(0).size), again(got.size());
    if (model.inputs().at(0).size != input.size()) return 4;
    model.set_runs(2);
    model.run({input.data()}, {got.data()});
    npu::Job job = model.submit({input.data()}, {again.data()});
    if (!job.wait() || got != expected || again != expected) return 5;
    try {
        model.run({}, {got.data()});
        return 6;
    } catch (const std::invalid_argument &) {
    }
    std::cout << model.outputs().at(0).name << "\n";
    return 0;
}
