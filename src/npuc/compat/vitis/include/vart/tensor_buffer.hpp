/* Memory of a tensor. A program derives classes of its own from TensorBuffer; CpuFlatTensorBuffer holds a dense array. */
#ifndef NPUC_VART_TENSOR_BUFFER_HPP
#define NPUC_VART_TENSOR_BUFFER_HPP

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <xir/tensor/tensor.hpp>

namespace vart {

class TensorBuffer {
public:
    enum class location_t { HOST_VIRT = 0, HOST_PHY = 1 };

    explicit TensorBuffer(const xir::Tensor *tensor) : tensor_(tensor) {}
    virtual ~TensorBuffer() = default;
    TensorBuffer(const TensorBuffer &) = delete;
    TensorBuffer &operator=(const TensorBuffer &) = delete;

    /* The address of an element, and the bytes from it to the end; of the whole without an index. */
    virtual std::pair<std::uint64_t, std::size_t> data(const std::vector<std::int32_t> idx = {}) = 0;
    virtual location_t get_location() const { return location_t::HOST_VIRT; }
    /* The simulator shares its memory with the program: there is nothing to do. */
    virtual void sync_for_read(std::uint64_t, std::size_t) {}
    virtual void sync_for_write(std::uint64_t, std::size_t) {}

    void copy_from_host(std::size_t batch, const void *from, std::size_t size, std::size_t offset)
    {
        std::memcpy(place(batch, size, offset), from, size);
    }
    void copy_to_host(std::size_t batch, void *to, std::size_t size, std::size_t offset)
    {
        std::memcpy(to, place(batch, size, offset), size);
    }

    const xir::Tensor *get_tensor() const { return tensor_; }

private:
    unsigned char *place(std::size_t batch, std::size_t size, std::size_t offset)
    {
        std::vector<std::int32_t> index(tensor_->get_shape().size(), 0);
        if (!index.empty()) index[0] = static_cast<std::int32_t>(batch);
        const auto found = data(index);
        if (offset > found.second || size > found.second - offset) throw std::out_of_range("VART_TENSOR_BUFFER_CHECK_ERROR: beyond the tensor");
        return reinterpret_cast<unsigned char *>(found.first) + offset;
    }

    const xir::Tensor *tensor_;
};

/* A dense array of the caller, or of its own. */
class CpuFlatTensorBuffer : public TensorBuffer {
public:
    CpuFlatTensorBuffer(void *data, const xir::Tensor *tensor) : TensorBuffer(tensor), data_(data) {}
    explicit CpuFlatTensorBuffer(const xir::Tensor *tensor) : TensorBuffer(tensor), own_(tensor->get_data_size()), data_(own_.data()) {}

    std::pair<std::uint64_t, std::size_t> data(const std::vector<std::int32_t> idx = {}) override
    {
        const auto shape = get_tensor()->get_shape();
        const std::size_t whole = get_tensor()->get_data_size();
        const auto count = static_cast<std::size_t>(get_tensor()->get_element_num());
        std::size_t at = 0;
        for (std::size_t axis = 0; axis < idx.size() && axis < shape.size(); axis++) at = at * static_cast<std::size_t>(shape[axis]) + static_cast<std::size_t>(idx[axis]);
        const std::size_t begin = count ? at * (whole / count) : 0;
        if (begin > whole) throw std::out_of_range("VART_TENSOR_BUFFER_CHECK_ERROR: beyond the tensor");
        return {reinterpret_cast<std::uint64_t>(data_) + begin, whole - begin};
    }

private:
    std::vector<unsigned char> own_;
    void *data_;
};

inline std::unique_ptr<TensorBuffer> alloc_cpu_flat_tensor_buffer(const xir::Tensor *tensor)
{
    return std::make_unique<CpuFlatTensorBuffer>(tensor);
}

} // namespace vart

#endif
