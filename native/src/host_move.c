/* Host operators that move elements: strided copies, gather and scatter, borders, tensors one behind the other. */
#include "host.h"

#include <string.h>

/* ---- copy ---- */

/* Whether all elements of a strided block are inside [0, whole). */
static int is_inside(int64_t first, const int64_t *size, const int64_t *stride, int64_t axes, int64_t whole)
{
    if (first < 0 || first >= whole) return 0;
    int64_t low = first, high = first;
    for (int64_t a = 0; a < axes; a++) {
        const int64_t steps = size[a] - 1, longest = steps ? whole / steps : (int64_t)NPUC_FILE_LARGEST;
        if (stride[a] > longest || stride[a] < -longest) return 0;
        *(stride[a] < 0 ? &low : &high) += stride[a] * steps;
    }
    return low >= 0 && high < whole;
}

static void copy_line(uint8_t *to, int64_t to_step, const uint8_t *from, int64_t from_step, int64_t n, int64_t bytes)
{
    if (to_step == 1 && from_step == 1) {
        memmove(to, from, (size_t)(n * bytes));
        return;
    }
    to_step *= bytes, from_step *= bytes;
    for (int64_t i = 0; i < n; i++, to += to_step, from += from_step)
        for (int64_t byte = 0; byte < bytes; byte++) to[byte] = from[byte];
}

const char *npuc_host_copy(const host_call *call)
{
    NEED(call->number_count >= 3 && call->numbers[0] >= 1 && call->numbers[0] <= NPUC_FILE_AXES);
    const int64_t axes = call->numbers[0];
    NEED(npuc_host_has(call, 1, 1, 3 + 3 * axes, 0));
    const host_value *x = &call->in[0], *y = &call->out[0];
    const int64_t *size = call->numbers + 3, *from = size + axes, *to = from + axes;
    int64_t count = 1;
    NEED(x->dtype == y->dtype);
    for (int64_t a = 0; a < axes; a++) {
        NEED(size[a] >= 1 && size[a] <= y->capacity / count);
        count *= size[a];
    }
    NEED(is_inside(call->numbers[1], size, from, axes, x->capacity) && is_inside(call->numbers[2], size, to, axes, y->capacity));
    CHECKED(call);
    const int64_t bytes = npuc_host_bytes(y->dtype), last = axes - 1;
    int64_t index[NPUC_FILE_AXES] = {0}, source = call->numbers[1], target = call->numbers[2];
    for (int64_t lines = count / size[last]; lines > 0; lines--) {
        copy_line(y->data + target * bytes, to[last], x->data + source * bytes, from[last], size[last], bytes);
        for (int64_t a = last - 1; a >= 0; a--) {
            source += from[a], target += to[a];
            if (++index[a] < size[a]) break;
            source -= from[a] * size[a], target -= to[a] * size[a];
            index[a] = 0;
        }
    }
    return NULL;
}

const char *npuc_host_fill(const host_call *call)
{
    NEED(npuc_host_has(call, 0, 1, 1, 0));
    CHECKED(call);
    const host_value *y = &call->out[0];
    const int64_t bytes = npuc_host_bytes(y->dtype);
    for (int64_t i = 0; i < y->count; i++) memcpy(y->data + i * bytes, call->numbers, (size_t)bytes); /* little-endian */
    return NULL;
}

/* ---- concat ---- */

const char *npuc_host_concat(const host_call *call)
{
    NEED(call->inputs >= 1 && npuc_host_has(call, call->inputs, 1, 1, 0));
    const host_value *y = &call->out[0];
    host_axis whole, part;
    int64_t length = 0;
    NEED(npuc_host_axis(y, call->numbers[0], &whole));
    for (int32_t k = 0; k < call->inputs; k++) {
        const host_value *x = &call->in[k];
        NEED(x->dtype == y->dtype && x->rank == y->rank && npuc_host_axis(x, call->numbers[0], &part));
        for (int32_t a = 0; a < y->rank; a++) NEED(a == call->numbers[0] || x->shape[a] == y->shape[a]);
        length += part.length;
    }
    NEED(length == whole.length);
    CHECKED(call);
    const int64_t bytes = npuc_host_bytes(y->dtype), line = whole.length * whole.inner * bytes;
    int64_t at = 0;
    for (int32_t k = 0; k < call->inputs; k++) {
        npuc_host_axis(&call->in[k], call->numbers[0], &part);
        const int64_t own = part.length * part.inner * bytes;
        for (int64_t o = 0; o < whole.outer; o++) memmove(y->data + o * line + at, call->in[k].data + o * own, (size_t)own);
        at += own;
    }
    return NULL;
}

/* ---- gather ---- */

static const char outside[] = "an index is outside its axis";

static int is_index(const host_value *x) { return x->dtype == NPUC_TENSOR_I64 || x->dtype == NPUC_TENSOR_I32; }

/* A place on an axis, which may be counted from the end; -1 if it is outside. */
static int64_t place(const host_value *places, int64_t at, int64_t length)
{
    const int64_t number = npuc_host_integer(places, at);
    if (number < -length || number >= length) return -1;
    return number < 0 ? number + length : number;
}

const char *npuc_host_gather(const host_call *call)
{
    NEED(npuc_host_has(call, 2, 1, 1, 0));
    const host_value *x = &call->in[0], *places = &call->in[1], *y = &call->out[0];
    host_axis about;
    NEED(x->dtype == y->dtype && is_index(places) && npuc_host_axis(x, call->numbers[0], &about));
    NEED(npuc_host_is_product(y->count, about.outer * about.inner, places->count));
    CHECKED(call);
    const int64_t line = about.inner * npuc_host_bytes(x->dtype);
    for (int64_t k = 0; k < places->count; k++) {
        const int64_t from = place(places, k, about.length);
        if (from < 0) return outside;
        for (int64_t o = 0; o < about.outer; o++)
            memmove(y->data + (o * places->count + k) * line, x->data + (o * about.length + from) * line, (size_t)line);
    }
    return NULL;
}

/* The elements of `by`, with the offset of each in a tensor of shape `of` whose place on the axis is another. */
typedef struct visit {
    int64_t index[NPUC_FILE_AXES], stride[NPUC_FILE_AXES], base;
} visit;

static void begin_visit(visit *v, const host_value *of)
{
    int64_t stride = 1;
    *v = (visit){0};
    for (int32_t a = of->rank - 1; a >= 0; a--) v->stride[a] = stride, stride *= of->shape[a];
}

/* On to the next element; the axis itself counts nothing. */
static void next_visit(visit *v, const host_value *by, int64_t axis)
{
    for (int32_t a = by->rank - 1; a >= 0; a--) {
        const int64_t stride = a == axis ? 0 : v->stride[a];
        v->base += stride;
        if (++v->index[a] < by->shape[a]) return;
        v->base -= stride * by->shape[a];
        v->index[a] = 0;
    }
}

/* Whether `by` is not longer than `of` on any axis but the one. */
static int fits_about(const host_value *by, const host_value *of, int64_t axis)
{
    if (by->rank != of->rank || axis < 0 || axis >= of->rank) return 0;
    for (int32_t a = 0; a < of->rank; a++)
        if (a != axis && by->shape[a] > of->shape[a]) return 0;
    return 1;
}

const char *npuc_host_gather_elements(const host_call *call)
{
    NEED(npuc_host_has(call, 2, 1, 1, 0));
    const host_value *x = &call->in[0], *places = &call->in[1], *y = &call->out[0];
    const int64_t axis = call->numbers[0];
    NEED(x->dtype == y->dtype && is_index(places) && npuc_host_same_shape(places, y) && fits_about(y, x, axis));
    CHECKED(call);
    const int64_t bytes = npuc_host_bytes(x->dtype);
    visit v;
    begin_visit(&v, x);
    for (int64_t i = 0; i < y->count; i++, next_visit(&v, y, axis)) {
        const int64_t from = place(places, i, x->shape[axis]);
        if (from < 0) return outside;
        memmove(y->data + i * bytes, x->data + (v.base + from * v.stride[axis]) * bytes, (size_t)bytes);
    }
    return NULL;
}

/* The slice of a tensor that a tuple names, from axis `first` on; -1 if it is outside. */
static int64_t slice_of(const host_value *x, const host_value *places, int64_t at, int64_t first, int64_t length)
{
    int64_t slice = 0;
    for (int64_t k = 0; k < length; k++) {
        const int64_t number = place(places, at + k, x->shape[first + k]);
        if (number < 0) return -1;
        slice = slice * x->shape[first + k] + number;
    }
    return slice;
}

const char *npuc_host_gather_nd(const host_call *call)
{
    NEED(npuc_host_has(call, 2, 1, 2, 0));
    const host_value *x = &call->in[0], *places = &call->in[1], *y = &call->out[0];
    const int64_t batch_axes = call->numbers[0], length = call->numbers[1];
    NEED(x->dtype == y->dtype && is_index(places) && places->rank >= 1 && batch_axes >= 0 && batch_axes < places->rank);
    NEED(length >= 1 && length == places->shape[places->rank - 1] && length <= x->rank - batch_axes);
    int64_t batches = 1, slices = 1, inner = 1;
    for (int64_t a = 0; a < batch_axes; a++) {
        NEED(x->shape[a] == places->shape[a]);
        batches *= x->shape[a];
    }
    for (int64_t a = batch_axes; a < batch_axes + length; a++) slices *= x->shape[a];
    for (int64_t a = batch_axes + length; a < x->rank; a++) inner *= x->shape[a];
    const int64_t tuples = places->count / length;
    NEED(npuc_host_is_product(y->count, tuples, inner));
    CHECKED(call);
    const int64_t line = inner * npuc_host_bytes(x->dtype), each = batches ? tuples / batches : 0;
    for (int64_t k = 0; k < tuples; k++) {
        const int64_t slice = slice_of(x, places, k * length, batch_axes, length);
        if (slice < 0) return outside;
        memmove(y->data + k * line, x->data + (k / each * slices + slice) * line, (size_t)line);
    }
    return NULL;
}

/* ---- scatter ---- */

/* One element joins another. */
static void join(int64_t kind, int32_t dtype, uint8_t *to, const uint8_t *from)
{
    switch (dtype) {
#define JOIN(T, ADD, MUL)                                                                   \
    {                                                                                       \
        T *y = (T *)(void *)to;                                                             \
        const T a = *y, b = *(const T *)(const void *)from;                                 \
        *y = kind == NPUC_HOST_SCATTER_ADD   ? (T)(ADD)                                     \
             : kind == NPUC_HOST_SCATTER_MUL ? (T)(MUL)                                     \
             : kind == NPUC_HOST_SCATTER_MIN ? (a < b ? a : b)                              \
             : kind == NPUC_HOST_SCATTER_MAX ? (a > b ? a : b)                              \
                                             : b;                                           \
        break;                                                                              \
    }
#define REAL(name, T) case NPUC_TENSOR_##name: JOIN(T, a + b, a * b)
#define WHOLE(name, T) case NPUC_TENSOR_##name: JOIN(T, (uint64_t)a + (uint64_t)b, (uint64_t)a * (uint64_t)b)
        HOST_FLOATS(REAL)
        HOST_INTEGERS(WHOLE)
        case NPUC_TENSOR_I1: *to = *from; break;
    default: break;
    }
}

static int can_scatter(const host_value *x, const host_value *places, const host_value *updates, const host_value *y, int64_t kind)
{
    return x->dtype == y->dtype && updates->dtype == y->dtype && is_index(places) && npuc_host_same_shape(x, y) && kind >= 0 &&
           kind < NPUC_HOST_SCATTERS &&
           (npuc_host_is_float(y->dtype) || npuc_host_is_integer(y->dtype) || (y->dtype == NPUC_TENSOR_I1 && kind == NPUC_HOST_SCATTER_NONE));
}

const char *npuc_host_scatter_elements(const host_call *call)
{
    NEED(npuc_host_has(call, 3, 1, 2, 0));
    const host_value *x = &call->in[0], *places = &call->in[1], *updates = &call->in[2], *y = &call->out[0];
    const int64_t axis = call->numbers[0], kind = call->numbers[1];
    NEED(can_scatter(x, places, updates, y, kind) && npuc_host_same_shape(places, updates) && fits_about(updates, y, axis));
    CHECKED(call);
    const int64_t bytes = npuc_host_bytes(x->dtype);
    memmove(y->data, x->data, (size_t)(x->count * bytes));
    visit v;
    begin_visit(&v, y);
    for (int64_t i = 0; i < updates->count; i++, next_visit(&v, updates, axis)) {
        const int64_t to = place(places, i, y->shape[axis]);
        if (to < 0) return outside;
        join(kind, y->dtype, y->data + (v.base + to * v.stride[axis]) * bytes, updates->data + i * bytes);
    }
    return NULL;
}

const char *npuc_host_scatter_nd(const host_call *call)
{
    NEED(npuc_host_has(call, 3, 1, 2, 0));
    const host_value *x = &call->in[0], *places = &call->in[1], *updates = &call->in[2], *y = &call->out[0];
    const int64_t length = call->numbers[0], kind = call->numbers[1];
    NEED(can_scatter(x, places, updates, y, kind) && places->rank >= 1 && length >= 1 && length <= y->rank);
    NEED(length == places->shape[places->rank - 1]);
    int64_t inner = 1;
    for (int64_t a = length; a < y->rank; a++) inner *= y->shape[a];
    const int64_t tuples = places->count / length, bytes = npuc_host_bytes(y->dtype);
    NEED(npuc_host_is_product(updates->count, tuples, inner));
    CHECKED(call);
    memmove(y->data, x->data, (size_t)(x->count * bytes));
    for (int64_t k = 0; k < tuples; k++) {
        const int64_t slice = slice_of(y, places, k * length, 0, length);
        if (slice < 0) return outside;
        for (int64_t i = 0; i < inner; i++) join(kind, y->dtype, y->data + (slice * inner + i) * bytes, updates->data + (k * inner + i) * bytes);
    }
    return NULL;
}

/* ---- borders ---- */

/* Where a place before or behind an axis has its value from. */
static int64_t reflected(int64_t at, int64_t length, int64_t kind)
{
    if (kind == NPUC_HOST_PAD_EDGE || length == 1) return at < 0 ? 0 : at >= length ? length - 1 : at;
    const int64_t period = kind == NPUC_HOST_PAD_WRAP ? length : 2 * (length - 1);
    at %= period;
    if (at < 0) at += period;
    return at < length ? at : period - at;
}

const char *npuc_host_pad(const host_call *call)
{
    NEED(call->number_count >= 1 && call->inputs == 1 && npuc_host_has(call, 1, 1, 1 + call->in[0].rank, 0));
    const host_value *x = &call->in[0], *y = &call->out[0];
    const int64_t kind = call->numbers[0], *pads = call->numbers + 1;
    NEED(x->dtype == y->dtype && x->rank == y->rank && kind >= 0 && kind < NPUC_HOST_PADS && x->count > 0);
    for (int32_t a = 0; a < x->rank; a++) NEED(pads[a] >= -x->shape[a] && pads[a] <= y->shape[a]);
    CHECKED(call);
    const int64_t bytes = npuc_host_bytes(x->dtype);
    int64_t index[NPUC_FILE_AXES] = {0};
    for (int64_t i = 0; i < y->count; i++) {
        int64_t from = 0;
        for (int32_t a = 0; a < x->rank; a++) from = from * x->shape[a] + reflected(index[a] - pads[a], x->shape[a], kind);
        memmove(y->data + i * bytes, x->data + from * bytes, (size_t)bytes);
        for (int32_t a = x->rank - 1; a >= 0 && ++index[a] == y->shape[a]; a--) index[a] = 0;
    }
    return NULL;
}
