/*
 * npu.h for C++17: models and jobs that free themselves, errors that are thrown. Header only.
 */
#ifndef NPU_HPP
#define NPU_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "npu.h"

namespace npu {

/* What a call of npu.h returned, in words. */
class Error : public std::runtime_error {
public:
    explicit Error(npu_status status) : std::runtime_error(npu_error()), status_(status) {}
    npu_status status() const noexcept { return status_; }

private:
    npu_status status_;
};

inline void check(npu_status status)
{
    if (status != NPU_OK) throw Error(status);
}

/* A run in the background. Its destructor waits for it, since the tensors are in use until then. */
class Job {
public:
    explicit Job(npu_job *job) noexcept : job_(job) {}

    /* False if the job is not done after `seconds` (less than 0: wait for ever); throws what its run failed with. */
    bool wait(double seconds = -1.0)
    {
        const npu_status status = npu_wait(job_.get(), seconds);
        if (status == NPU_TIMEOUT) return false;
        check(status);
        return true;
    }

private:
    struct Free {
        void operator()(npu_job *job) const noexcept { npu_job_free(job); }
    };
    std::unique_ptr<npu_job, Free> job_;
};

/* A compiled model. A copy is the same model; it is freed with the last of them. */
class Model {
public:
    explicit Model(const std::string &path)
    {
        npu_model *model = nullptr;
        check(npu_load(path.c_str(), &model));
        model_.reset(model, npu_free);
    }

    /* The bytes stay the caller's; their address is a multiple of 8. */
    Model(const void *bytes, std::size_t size)
    {
        npu_model *model = nullptr;
        check(npu_load_memory(bytes, size, &model));
        model_.reset(model, npu_free);
    }

    /* Throw unless the owner of a public key (32 bytes) has signed the model; to be called before the first run. */
    void verify(const std::array<std::uint8_t, 32> &key) const { check(npu_verify(model_.get(), key.data())); }

    std::string name() const { return npu_name(model_.get()); }

    /* The names of the entries of a program; one that is empty for a program that was not combined. */
    std::vector<std::string> entries() const
    {
        std::vector<std::string> found;
        for (int32_t i = 0; i < npu_entry_count(model_.get()); i++) found.emplace_back(npu_entry_name(model_.get(), i));
        return found;
    }

    /* An entry by its name. It is a model of its own, and keeps the program that it belongs to alive. */
    Model entry(const std::string &name) const
    {
        npu_model *found = nullptr;
        check(npu_entry(model_.get(), name.c_str(), &found));
        return Model(std::shared_ptr<npu_model>(model_, found));
    }

    /* The first entry that takes inputs of these shapes, and of these names where they have any. */
    Model entry_for(const std::vector<npu_tensor> &inputs) const
    {
        npu_model *found = nullptr;
        check(npu_entry_for(model_.get(), inputs.data(), static_cast<std::int32_t>(inputs.size()), &found));
        return Model(std::shared_ptr<npu_model>(model_, found));
    }

    /* A subgraph as a model of its own, by its number in times(): it takes and gives the integers of the program. */
    Model part(int number) const
    {
        npu_model *found = nullptr;
        check(npu_part(model_.get(), number, &found));
        return Model(std::shared_ptr<npu_model>(model_, found));
    }

    std::vector<npu_tensor> inputs() const
    {
        std::vector<npu_tensor> found;
        for (int32_t i = 0; i < npu_input_count(model_.get()); i++) found.push_back(*npu_input(model_.get(), i));
        return found;
    }

    std::vector<npu_tensor> outputs() const
    {
        std::vector<npu_tensor> found;
        for (int32_t i = 0; i < npu_output_count(model_.get()); i++) found.push_back(*npu_output(model_.get(), i));
        return found;
    }

    void set_threads(int threads) { check(npu_set_threads(model_.get(), threads)); }

    void set_runs(int runs) { check(npu_set_runs(model_.get(), runs)); }

    /* How long runs took: the whole run, then each subgraph. */
    std::vector<npu_time> times() const
    {
        std::vector<npu_time> all(static_cast<std::size_t>(npu_time_count(model_.get())));
        for (std::size_t i = 0; i < all.size(); i++) check(npu_times(model_.get(), static_cast<std::int32_t>(i), &all[i]));
        return all;
    }

    /* The same as text. */
    std::string summary() const
    {
        std::string text(static_cast<std::size_t>(npu_summary(model_.get(), nullptr, 0)) + 1, '\0');
        npu_summary(model_.get(), text.data(), text.size());
        text.pop_back();
        return text;
    }

    /* Begin a new stream: the states of the model are zero again. */
    void reset() { check(npu_reset(model_.get())); }

    /* One pointer for each input and each output; NULL for what the model carries (npu_state_count). */
    void run(const std::vector<const void *> &inputs, const std::vector<void *> &outputs)
    {
        check_counts(inputs.size(), outputs.size());
        check(npu_run(model_.get(), inputs.data(), outputs.data()));
    }

    /* The tensors, not the lists of pointers, have to stay until the job is done. */
    Job submit(const std::vector<const void *> &inputs, const std::vector<void *> &outputs)
    {
        check_counts(inputs.size(), outputs.size());
        npu_job *job = nullptr;
        check(npu_submit(model_.get(), inputs.data(), outputs.data(), &job));
        return Job(job);
    }

    npu_model *get() const noexcept { return model_.get(); }

private:
    explicit Model(std::shared_ptr<npu_model> model) noexcept : model_(std::move(model)) {}

    void check_counts(std::size_t inputs, std::size_t outputs) const
    {
        if (inputs != static_cast<std::size_t>(npu_input_count(model_.get())) ||
            outputs != static_cast<std::size_t>(npu_output_count(model_.get())))
            throw std::invalid_argument("npu: there is not one pointer for each input and output");
    }

    std::shared_ptr<npu_model> model_;
};

} // namespace npu

#endif /* NPU_HPP */
