/* Host operators that select: the first elements in order, and non-maximum suppression. */
#include "host.h"

#include <string.h>

/* Scratch memory for so many numbers. */
static int is_scratch(const host_value *scratch, int64_t count)
{
    return scratch->writable && scratch->dtype == NPUC_TENSOR_I64 && scratch->capacity >= count;
}

const char *npuc_host_top_k(const host_call *call)
{
    NEED(npuc_host_has(call, 2, 2, 2, 4));
    const host_value *x = &call->in[0], *values = &call->out[0], *places = &call->out[1];
    int64_t *order = (int64_t *)(void *)call->in[1].data;
    host_axis about, chosen;
    NEED(npuc_host_axis(x, call->numbers[0], &about) && npuc_host_axis(places, call->numbers[0], &chosen) && places->rank == x->rank);
    NEED(chosen.outer == about.outer && chosen.inner == about.inner && chosen.length <= about.length && places->dtype == NPUC_TENSOR_I64);
    NEED(npuc_host_is_float(x->dtype) || npuc_host_is_integer(x->dtype));
    NEED(!values->present || (values->dtype == x->dtype && npuc_host_same_shape(values, places)));
    NEED(is_scratch(&call->in[1], about.length));
    CHECKED(call);
    const int64_t bytes = npuc_host_bytes(x->dtype);
    for (int64_t o = 0; o < about.outer; o++)
        for (int64_t i = 0; i < about.inner; i++) {
            const int64_t first = o * about.length * about.inner + i;
            for (int64_t k = 0; k < about.length; k++) order[k] = k;
            npuc_host_sort(x, first, about.inner, order, about.length, call->numbers[1] != 0);
            for (int64_t k = 0; k < chosen.length; k++) {
                const int64_t to = (o * chosen.length + k) * about.inner + i;
                NEED(order[k] >= 0 && order[k] < about.length); /* unless a file lets a result lie over the scratch memory */
                ((int64_t *)(void *)places->data)[to] = order[k];
                if (values->present) memmove(values->data + to * bytes, x->data + (first + order[k] * about.inner) * bytes, (size_t)bytes);
            }
        }
    return NULL;
}

/* ---- non-maximum suppression ---- */

typedef struct box {
    float low[2], high[2];
} box;

static float smaller(float a, float b) { return a < b ? a : b; }

static float larger(float a, float b) { return a > b ? a : b; }

static box box_at(const float *corner, int middle)
{
    if (!middle)
        return (box){{smaller(corner[0], corner[2]), smaller(corner[1], corner[3])}, {larger(corner[0], corner[2]), larger(corner[1], corner[3])}};
    const float width = corner[2] / 2, height = corner[3] / 2;
    return (box){{corner[0] - width, corner[1] - height}, {corner[0] + width, corner[1] + height}};
}

/* Whether two boxes share more than a part of the area that they cover. */
static int overlap(const float *one, const float *other, int middle, float limit)
{
    const box a = box_at(one, middle), b = box_at(other, middle);
    const float low[2] = {larger(a.low[0], b.low[0]), larger(a.low[1], b.low[1])};
    const float high[2] = {smaller(a.high[0], b.high[0]), smaller(a.high[1], b.high[1])};
    if (high[0] <= low[0] || high[1] <= low[1]) return 0;
    const float shared = (high[0] - low[0]) * (high[1] - low[1]);
    const float first = (a.high[0] - a.low[0]) * (a.high[1] - a.low[1]), second = (b.high[0] - b.low[0]) * (b.high[1] - b.low[1]);
    if (shared <= 0 || first <= 0 || second <= 0) return 0;
    return shared / (first + second - shared) > limit;
}

static float first_real(const host_value *x, float otherwise) { return x->present ? *(const float *)(const void *)x->data : otherwise; }

const char *npuc_host_nms(const host_call *call)
{
    NEED(npuc_host_has(call, 6, 2, 1, 4 | 8 | 16));
    const host_value *boxes = &call->in[0], *scores = &call->in[1], *most = &call->in[2], *limit = &call->in[3], *least = &call->in[4];
    const host_value *y = &call->out[0], *count = &call->out[1];
    int64_t *order = (int64_t *)(void *)call->in[5].data;
    NEED(boxes->dtype == NPUC_TENSOR_F32 && scores->dtype == NPUC_TENSOR_F32 && boxes->rank == 3 && scores->rank == 3 && boxes->shape[2] == 4);
    NEED(boxes->shape[0] == scores->shape[0] && boxes->shape[1] == scores->shape[2] && is_scratch(&call->in[5], boxes->shape[1]));
    NEED((!most->present || most->dtype == NPUC_TENSOR_I64) && (!limit->present || limit->dtype == NPUC_TENSOR_F32));
    NEED((!least->present || least->dtype == NPUC_TENSOR_F32) && y->dtype == NPUC_TENSOR_I64 && y->rank == 2 && y->shape[1] == 3);
    NEED(count->dtype == NPUC_TENSOR_I64 && count->count >= 1);
    CHECKED(call);
    const int64_t n = boxes->shape[1], classes = scores->shape[1], room = y->capacity / 3;
    const int64_t allowed = most->present ? *(const int64_t *)(const void *)most->data : 0;
    const float overlapping = first_real(limit, 0);
    const int middle = call->numbers[0] != 0;
    int64_t *rows = (int64_t *)(void *)y->data, selected = 0;
    for (int64_t c = 0; c < boxes->shape[0] * classes; c++) {
        const float *at = (const float *)(const void *)boxes->data + c / classes * n * 4;
        const float *score = (const float *)(const void *)scores->data + c * n;
        const int64_t begin = selected;
        int64_t candidates = 0;
        for (int64_t k = 0; k < n; k++)
            if (!least->present || score[k] > first_real(least, 0)) order[candidates++] = k;
        npuc_host_sort(scores, c * n, 1, order, candidates, 1);
        for (int64_t k = 0; k < candidates && selected - begin < allowed; k++) {
            int free_standing = 1;
            const int64_t candidate = order[k];
            NEED(candidate >= 0 && candidate < n); /* unless a file lets the result lie over the scratch memory */
            for (int64_t j = begin; free_standing && j < selected; j++) {
                const int64_t other = rows[3 * j + 2];
                NEED(other >= 0 && other < n);
                free_standing = !overlap(at + 4 * candidate, at + 4 * other, middle, overlapping);
            }
            if (!free_standing) continue;
            if (selected == room) return "there is no room for all selected boxes";
            rows[3 * selected] = c / classes, rows[3 * selected + 1] = c % classes, rows[3 * selected + 2] = candidate;
            selected++;
        }
    }
    *(int64_t *)(void *)count->data = selected;
    return NULL;
}
