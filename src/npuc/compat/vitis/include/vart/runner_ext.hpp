#include <vart/runner.hpp>
