/* Whole models, the parts of the CPU included, from float inputs to float outputs. Header only; -lvitis_ai_library-graph_runner. */
#ifndef NPUC_VITIS_AI_GRAPH_RUNNER_HPP
#define NPUC_VITIS_AI_GRAPH_RUNNER_HPP

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <vart/runner.hpp>

namespace vitis {
namespace ai {

class GraphRunner : public vart::NpucRunner {
public:
    explicit GraphRunner(const xir::Subgraph *root) : vart::NpucRunner(root)
    {
        const char *told = std::getenv("DEEPhi_PROFILING");
        profiled_ = told && *told && std::strcmp(told, "0") != 0;
    }

    static std::unique_ptr<vart::RunnerExt> create_graph_runner(const xir::Graph *graph, xir::Attrs *)
    {
        return std::make_unique<GraphRunner>(graph->get_root_subgraph());
    }

protected:
    /* With DEEPhi_PROFILING=1, how long the CPU was busy with each of its parts. */
    void run(const std::vector<npu_view> &inputs, const std::vector<npu_view> &outputs) override
    {
        const std::unique_lock<std::mutex> guard = profiled_ ? std::unique_lock<std::mutex>(turn_) : std::unique_lock<std::mutex>();
        if (profiled_) npu::check(npu_reset_times(model().get()));
        vart::NpucRunner::run(inputs, outputs);
        if (!profiled_) return;
        bool began = false;
        for (const npu_time &part : model().times()) {
            const char *what = part.device == 1 ? "CPU_OP_EXEC" : part.device != 2 ? nullptr : began ? "CPU_UPDATE_OUTPUT" : "CPU_UPDATE_INPUT";
            if (part.device >= 0 && part.device != 2) began = true;
            if (what) std::fprintf(stderr, "%s : %.0fus\n", what, part.mean * 1e6);
        }
    }

private:
    bool profiled_;
    std::mutex turn_;
};

} // namespace ai
} // namespace vitis

#endif
