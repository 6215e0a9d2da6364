/*
 * A runner of a DPU subgraph, with the integers of the DPU in the caller's memory: N x H x W x C, dense. npuc's runtime executes the
 * instructions of the program to the bit. Header only; link with -lvart-runner (or -lnpuc).
 */
#ifndef NPUC_VART_RUNNER_HPP
#define NPUC_VART_RUNNER_HPP

#include <chrono>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <vart/tensor_buffer.hpp>
#include <xir/graph/graph.hpp>

namespace vart {

class Runner {
public:
    enum class TensorFormat { NHWC = 0, NCHW };

    virtual ~Runner() = default;

    static std::unique_ptr<Runner> create_runner(const xir::Subgraph *subgraph, const std::string &mode = "");
    static std::unique_ptr<Runner> create_runner_with_attrs(const xir::Subgraph *subgraph, xir::Attrs *)
    {
        return create_runner(subgraph, "run");
    }

    /* Begin a run; the number of the job, and 0. */
    virtual std::pair<std::uint32_t, int> execute_async(const std::vector<TensorBuffer *> &input,
                                                        const std::vector<TensorBuffer *> &output) = 0;
    /* Wait, `timeout` milliseconds at most (less than 0: for ever). 0: done; throws what the run failed with. */
    virtual int wait(int jobid, int timeout) = 0;
    virtual TensorFormat get_tensor_format() { return TensorFormat::NHWC; }
    virtual std::vector<const xir::Tensor *> get_input_tensors() = 0;
    virtual std::vector<const xir::Tensor *> get_output_tensors() = 0;
};

/* A runner with buffers of its own. */
class RunnerExt : public Runner {
public:
    static std::unique_ptr<RunnerExt> create_runner(const xir::Subgraph *subgraph, xir::Attrs *attrs = nullptr);

    virtual std::vector<TensorBuffer *> get_inputs() = 0;
    virtual std::vector<TensorBuffer *> get_outputs() = 0;
};

/* Runs the model of a subgraph: one of the DPU on integers, the root from reals to reals. */
class NpucRunner : public RunnerExt {
public:
    explicit NpucRunner(const xir::Subgraph *subgraph) : subgraph_(subgraph), model_(subgraph->model())
    {
        model_.set_runs(4);
        for (const auto &each : subgraph->inputs()) inputs_.push_back(alloc_cpu_flat_tensor_buffer(each.get()));
        for (const auto &each : subgraph->outputs()) outputs_.push_back(alloc_cpu_flat_tensor_buffer(each.get()));
    }

    std::pair<std::uint32_t, int> execute_async(const std::vector<TensorBuffer *> &input,
                                                const std::vector<TensorBuffer *> &output) override
    {
        auto inputs = views(input, subgraph_->inputs(), "input"), outputs = views(output, subgraph_->outputs(), "output");
        auto job = std::async(std::launch::async, [this, inputs = std::move(inputs), outputs = std::move(outputs)] { run(inputs, outputs); });
        const std::lock_guard<std::mutex> guard(lock_);
        jobs_[number_] = std::move(job);
        return {number_++, 0};
    }

    int wait(int jobid, int timeout) override
    {
        std::future<void> job;
        {
            const std::lock_guard<std::mutex> guard(lock_);
            const auto found = jobs_.find(static_cast<std::uint32_t>(jobid));
            if (found == jobs_.end()) throw std::invalid_argument("there is no job " + std::to_string(jobid));
            job = std::move(found->second);
            jobs_.erase(found);
        }
        if (timeout >= 0 && job.wait_for(std::chrono::milliseconds(timeout)) != std::future_status::ready) {
            const std::lock_guard<std::mutex> guard(lock_);
            jobs_[static_cast<std::uint32_t>(jobid)] = std::move(job);
            return -1;
        }
        job.get();
        return 0;
    }

    std::vector<const xir::Tensor *> get_input_tensors() override { return tensors(subgraph_->inputs()); }
    std::vector<const xir::Tensor *> get_output_tensors() override { return tensors(subgraph_->outputs()); }
    std::vector<TensorBuffer *> get_inputs() override { return buffers(inputs_); }
    std::vector<TensorBuffer *> get_outputs() override { return buffers(outputs_); }

protected:
    virtual void run(const std::vector<npu_view> &inputs, const std::vector<npu_view> &outputs)
    {
        npu::check(npu_run_views(model_.get(), inputs.data(), outputs.data()));
    }

    npu::Model &model() { return model_; }

private:
    using Tensors = std::vector<std::unique_ptr<xir::Tensor>>;

    static std::vector<const xir::Tensor *> tensors(const Tensors &own)
    {
        std::vector<const xir::Tensor *> found;
        for (const auto &each : own) found.push_back(each.get());
        return found;
    }

    static std::vector<TensorBuffer *> buffers(const std::vector<std::unique_ptr<TensorBuffer>> &own)
    {
        std::vector<TensorBuffer *> found;
        for (const auto &each : own) found.push_back(each.get());
        return found;
    }

    /* The caller's buffers in the order of the tensors: by name, or as they come. */
    static std::vector<npu_view> views(const std::vector<TensorBuffer *> &given, const Tensors &own, const char *word)
    {
        if (given.size() != own.size())
            throw std::invalid_argument(std::to_string(own.size()) + " " + word + "s are needed, and " + std::to_string(given.size()) + " were given");
        std::vector<npu_view> found;
        for (std::size_t at = 0; at < own.size(); at++) {
            TensorBuffer *buffer = given[at];
            for (TensorBuffer *each : given)
                if (each->get_tensor() && each->get_tensor()->get_name() == own[at]->get_name()) buffer = each;
            const auto memory = buffer->data(std::vector<std::int32_t>(own[at]->get_shape().size(), 0));
            if (memory.second < own[at]->get_data_size())
                throw std::invalid_argument(std::string("VART_TENSOR_BUFFER_CHECK_ERROR: ") + word + " '" + own[at]->get_name() + "' has " +
                                            std::to_string(own[at]->get_data_size()) + " bytes, and its buffer " + std::to_string(memory.second));
            found.push_back(own[at]->view(reinterpret_cast<void *>(memory.first)));
        }
        return found;
    }

    const xir::Subgraph *subgraph_;
    npu::Model model_;
    std::vector<std::unique_ptr<TensorBuffer>> inputs_, outputs_;
    std::mutex lock_;
    std::uint32_t number_ = 0;
    std::map<std::uint32_t, std::future<void>> jobs_;
};

inline std::unique_ptr<RunnerExt> RunnerExt::create_runner(const xir::Subgraph *subgraph, xir::Attrs *)
{
    if (!subgraph) throw std::invalid_argument("a runner is made of a subgraph");
    if (!subgraph->has_attr("device") || subgraph->get_attr<std::string>("device") != "DPU")
        throw std::invalid_argument("'" + subgraph->get_name() + "' is not a subgraph of the DPU; vitis::ai::GraphRunner runs whole models");
    return std::make_unique<NpucRunner>(subgraph);
}

inline std::unique_ptr<Runner> Runner::create_runner(const xir::Subgraph *subgraph, const std::string &mode)
{
    if (!mode.empty() && mode != "run" && mode != "sim") throw std::invalid_argument("there is no mode '" + mode + "'");
    return RunnerExt::create_runner(subgraph, nullptr);
}

} // namespace vart

#endif
