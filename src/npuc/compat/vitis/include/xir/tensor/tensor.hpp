/* The name, type and shape of a tensor; images are N x H x W x C. Header only, over npuc's C runtime. */
#ifndef NPUC_XIR_TENSOR_HPP
#define NPUC_XIR_TENSOR_HPP

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <npu.hpp>
#include <xir/attrs/attrs.hpp>

namespace xir {

struct DataType {
    enum Type { INT, UINT, XINT, XUINT, FLOAT, UNKNOWN };
    Type type;
    std::int32_t bit_width;
};

class Tensor : public Attributed {
public:
    explicit Tensor(const npu_tensor &made) : name_(made.name), made_(made)
    {
        for (std::int32_t axis = 0; axis < made.rank; axis++) shape_.push_back(static_cast<std::int32_t>(made.shape[axis]));
        if (made.rank == 4) shape_ = {shape_[0], shape_[2], shape_[3], shape_[1]};
        if (made.scale > 0) {
            const double position = -std::log2(made.scale);
            set_attr<std::int32_t>("bit_width", get_data_type().bit_width);
            set_attr<bool>("if_signed", get_data_type().type == DataType::XINT);
            set_attr<std::string>("round_mode", "DPU_ROUND");
            if (position == std::floor(position)) set_attr<std::int32_t>("fix_point", static_cast<std::int32_t>(position));
            else set_attr<float>("scale", static_cast<float>(made.scale));
        }
    }

    const std::string &get_name() const { return name_; }
    const std::vector<std::int32_t> get_shape() const { return shape_; }
    std::int32_t get_dim_num() const { return made_.rank; }
    std::int64_t get_element_num() const { return made_.elements; }
    std::uint64_t get_data_size() const { return made_.size; }

    DataType get_data_type() const
    {
        const auto bits = static_cast<std::int32_t>(made_.elements ? made_.size * 8 / static_cast<std::size_t>(made_.elements) : 0);
        switch (made_.dtype) {
        case NPU_F32: case NPU_F64: case NPU_F16: case NPU_BF16: return {DataType::FLOAT, bits};
        case NPU_U8: case NPU_U16: case NPU_U32: case NPU_U64: return {made_.scale > 0 ? DataType::XUINT : DataType::UINT, bits};
        default: return {made_.scale > 0 ? DataType::XINT : DataType::INT, bits};
        }
    }

    /* For runners: the tensor as npuc's runtime has it, and the bytes between elements of a dense array in the order of get_shape. */
    const npu_tensor &made() const { return made_; }
    npu_view view(void *data) const
    {
        npu_view found = {data, {0}};
        const std::int64_t size = made_.elements ? static_cast<std::int64_t>(made_.size) / made_.elements : 1;
        std::int64_t step = size;
        if (made_.rank == 4) {
            const std::int64_t c = made_.shape[1], h = made_.shape[2], w = made_.shape[3];
            const std::int64_t strides[] = {h * w * c * size, size, w * c * size, c * size};
            for (int axis = 0; axis < 4; axis++) found.stride[axis] = strides[axis];
            return found;
        }
        for (std::int32_t axis = made_.rank - 1; axis >= 0; axis--) found.stride[axis] = step, step *= made_.shape[axis];
        return found;
    }

private:
    std::string name_;
    npu_tensor made_;
    std::vector<std::int32_t> shape_;
};

} // namespace xir

#endif
