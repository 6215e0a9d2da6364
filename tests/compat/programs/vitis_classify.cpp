// Classifies one image with a DPU subgraph, and with the whole graph, as programs around VART do.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <numeric>
#include <vector>

#include <vart/runner.hpp>
#include <vitis/ai/graph_runner.hpp>
#include <xir/graph/graph.hpp>

static std::vector<const xir::Subgraph *> dpu_subgraphs(const xir::Graph *graph)
{
    std::vector<const xir::Subgraph *> found;
    for (auto child : graph->get_root_subgraph()->children_topological_sort())
        if (child->has_attr("device") && child->get_attr<std::string>("device") == "DPU") found.push_back(child);
    return found;
}

int main(int count, char **words)
{
    if (count != 3) return 2;
    auto graph = xir::Graph::deserialize(words[1]);
    auto dpus = dpu_subgraphs(graph.get());
    std::cout << graph->get_name() << ": " << dpus.size() << " DPU subgraph, " << graph->get_root_subgraph()->get_children_num() << " in all\n";
    auto runner = vart::Runner::create_runner(dpus.at(0), "run");
    auto in = runner->get_input_tensors(), out = runner->get_output_tensors();
    for (auto n : in[0]->get_shape()) std::cout << n << ' ';
    std::cout << "fix_point " << in[0]->get_attr<int>("fix_point") << '\n';

    std::vector<std::int8_t> image(in[0]->get_element_num()), scores(out[0]->get_element_num());
    std::ifstream(words[2], std::ios::binary).read(reinterpret_cast<char *>(image.data()), static_cast<std::streamsize>(image.size()));
    vart::CpuFlatTensorBuffer input(image.data(), in[0]), output(scores.data(), out[0]);
    std::vector<vart::TensorBuffer *> inputs{&input}, outputs{&output};
    std::vector<std::pair<std::uint32_t, int>> jobs;
    for (int i = 0; i < 3; i++) jobs.push_back(runner->execute_async(inputs, outputs));
    for (auto &job : jobs)
        if (runner->wait(static_cast<int>(job.first), -1) != 0) return 1;
    std::ofstream("cpp_scores.bin", std::ios::binary).write(reinterpret_cast<char *>(scores.data()), static_cast<std::streamsize>(scores.size()));

    auto attrs = xir::Attrs::create();
    auto whole = vitis::ai::GraphRunner::create_graph_runner(graph.get(), attrs.get());
    auto given = whole->get_inputs(), made = whole->get_outputs();
    const float step = std::exp2f(-static_cast<float>(in[0]->get_attr<int>("fix_point")));
    auto *pixels = reinterpret_cast<float *>(given[0]->data({0, 0, 0, 0}).first);
    for (std::size_t i = 0; i < image.size(); i++) pixels[i] = static_cast<float>(image[i]) * step;
    for (auto &buffer : given) buffer->sync_for_write(0, buffer->get_tensor()->get_data_size());
    auto job = whole->execute_async(given, made);
    if (whole->wait(static_cast<int>(job.first), -1) != 0) return 1;
    for (auto buffer : made) buffer->sync_for_read(0, buffer->get_tensor()->get_data_size());
    auto *results = reinterpret_cast<float *>(made[0]->data({0, 0}).first);
    std::vector<float> classes(results, results + made[0]->get_tensor()->get_element_num());
    std::cout << "class " << std::max_element(classes.begin(), classes.end()) - classes.begin() << " of " << classes.size() << '\n';
    try {
        vart::Runner::create_runner(graph->get_root_subgraph(), "run");
    } catch (const std::exception &error) {
        std::cout << error.what() << '\n';
    }
    return 0;
}
