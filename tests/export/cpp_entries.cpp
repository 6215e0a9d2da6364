// Entries and signatures by npu.hpp: cpp_entries SIGNED KEY ENTRY ROWS.
#include <iostream>
#include <string>

#include "npu.hpp"

int main(int, char **words)
{
    std::array<std::uint8_t, 32> key{};
    const std::string digits = words[2], name = words[3];
    for (std::size_t i = 0; i < key.size(); i++) key[i] = static_cast<std::uint8_t>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
    const int rows = std::stoi(words[4]);
    auto program = std::make_unique<npu::Model>(words[1]);
    program->verify(key);
    key[0] ^= 1;
    try {
        program->verify(key);
        return 2;
    } catch (const npu::Error &error) {
        if (error.status() != NPU_BAD_SIGNATURE) return 3;
    }
    if (program->entries() != std::vector<std::string>{"single", name}) return 4;
    npu::Model batch = program->entry(name);
    if (batch.inputs().at(0).shape[0] != rows || program->entry_for(batch.inputs()).get() != batch.get()) return 5;
    if (program->entry_for(program->inputs()).get() != program->get()) return 6;
    program.reset(); // the entry keeps its program
    const std::vector<float> input(static_cast<std::size_t>(batch.inputs().at(0).elements));
    std::vector<char> output(batch.outputs().at(0).size);
    batch.run({input.data()}, {output.data()});
    try {
        batch.entry("none");
        return 7;
    } catch (const npu::Error &error) {
        std::cout << error.what() << "\n";
    }
    return 0;
}
