/* An .xmodel file that vai_c_xir wrote: the whole graph, and its subgraphs for the DPU and the CPU. Header only, over npuc's C runtime. */
#ifndef NPUC_XIR_GRAPH_HPP
#define NPUC_XIR_GRAPH_HPP

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <npu.hpp>
#include <xir/attrs/attrs.hpp>
#include <xir/tensor/tensor.hpp>

namespace xir {

class Graph;

class Subgraph : public Attributed {
public:
    /* `model` has the ends of the subgraph: for the whole graph reals, for one of the DPU its integers. */
    Subgraph(std::string name, const Graph *graph, npu::Model model, bool root)
        : name_(std::move(name)), graph_(graph), model_(std::move(model)), root_(root)
    {
        for (const npu_tensor &each : model_.inputs()) inputs_.push_back(std::make_unique<Tensor>(each));
        for (const npu_tensor &each : model_.outputs()) outputs_.push_back(std::make_unique<Tensor>(each));
    }

    const std::string get_name() const { return name_; }
    const Graph *get_graph() const { return graph_; }
    bool is_root() const { return root_; }
    bool is_leaf() const { return children_.empty(); }
    std::int32_t get_children_num() const { return static_cast<std::int32_t>(children_.size()); }

    std::set<Subgraph *> get_children()
    {
        std::set<Subgraph *> found;
        for (const auto &each : children_) found.insert(each.get());
        return found;
    }

    std::vector<Subgraph *> children_topological_sort()
    {
        std::vector<Subgraph *> found;
        for (const auto &each : children_) found.push_back(each.get());
        return found;
    }
    std::vector<const Subgraph *> children_topological_sort() const
    {
        std::vector<const Subgraph *> found;
        for (const auto &each : children_) found.push_back(each.get());
        return found;
    }

    std::set<const Tensor *> get_input_tensors() const { return set_of(inputs_); }
    std::set<const Tensor *> get_output_tensors() const { return set_of(outputs_); }

    /* For runners: the model, and its tensors in the order of a run. */
    const npu::Model &model() const { return model_; }
    const std::vector<std::unique_ptr<Tensor>> &inputs() const { return inputs_; }
    const std::vector<std::unique_ptr<Tensor>> &outputs() const { return outputs_; }
    void add_child(std::unique_ptr<Subgraph> child) { children_.push_back(std::move(child)); }

private:
    static std::set<const Tensor *> set_of(const std::vector<std::unique_ptr<Tensor>> &tensors)
    {
        std::set<const Tensor *> found;
        for (const auto &each : tensors) found.insert(each.get());
        return found;
    }

    std::string name_;
    const Graph *graph_;
    npu::Model model_;
    bool root_;
    std::vector<std::unique_ptr<Tensor>> inputs_, outputs_;
    std::vector<std::unique_ptr<Subgraph>> children_;
};

class Graph : public Attributed {
public:
    static std::unique_ptr<Graph> deserialize(const std::string &path) { return std::unique_ptr<Graph>(new Graph(path)); }

    void serialize(const std::string &path) const
    {
        std::filesystem::copy_file(path_, path, std::filesystem::copy_options::overwrite_existing);
    }

    const std::string get_name() const { return root_->model().name(); }
    Subgraph *get_root_subgraph() { return root_.get(); }
    const Subgraph *get_root_subgraph() const { return root_.get(); }

private:
    explicit Graph(const std::string &path) : path_(path)
    {
        const npu::Model model(path);
        root_ = std::make_unique<Subgraph>("root", this, model, true);
        const std::vector<npu_time> parts = model.times(); /* the whole, then the subgraphs */
        for (std::size_t number = 1; number < parts.size(); number++) {
            if (parts[number].device != 0 && parts[number].device != 1) continue; /* a conversion at the ends */
            const bool is_dpu = parts[number].device == 0;
            auto part = std::make_unique<Subgraph>(std::string("subgraph_") + parts[number].name, this,
                                                   model.part(static_cast<int>(number)), false);
            part->set_attr<std::string>("device", is_dpu ? "DPU" : "CPU");
            root_->add_child(std::move(part));
        }
    }

    std::string path_;
    std::unique_ptr<Subgraph> root_;
};

} // namespace xir

#endif
