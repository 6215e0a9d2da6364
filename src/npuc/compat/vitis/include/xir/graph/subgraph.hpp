#include <xir/graph/graph.hpp>
