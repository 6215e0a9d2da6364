#include <vart/tensor_buffer.hpp>
