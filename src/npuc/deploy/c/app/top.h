/* The largest entries of an output, and how far it is from another. */
#ifndef TOP_H
#define TOP_H

#include "npu.h"

typedef struct entry {
    int64_t index;
    double value;
} entry;

/* An element as a real number: integers by their scale and zero point, where they have a scale. */
double real_value(const npu_tensor *tensor, const void *data, int64_t index);

/* Up to `most` entries, the largest first, of equals the one with the smaller index; returns how many there are. */
int top_entries(const npu_tensor *tensor, const void *data, int most, entry *entries);

/* The largest difference between two tensors, as a part of the largest number of the second; 0 if they are equal. */
double largest_difference(const npu_tensor *tensor, const void *data, const void *expected);

#endif /* TOP_H */
