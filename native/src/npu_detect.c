/* Detections from the outputs of detectors; docs/postprocess.md has the formulas, npuc.runtime.postprocess the same in NumPy. */
#include "npu_detect.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const npu_network networks[] = {NPU_NETWORKS};

const npu_network *npu_network_of(const char *name)
{
    for (size_t i = 0; name && i < sizeof networks / sizeof *networks; i++)
        if (!strcmp(networks[i].name, name)) return &networks[i];
    return NULL;
}

/* ---- a bounded set of detections: a heap whose root is the worst ---- */

typedef struct collected {
    npu_detection *at;
    int32_t count, capacity;
} collected;

static int is_better(const npu_detection *a, const npu_detection *b)
{
    if (a->score != b->score) return a->score > b->score;
    return a->index != b->index ? a->index < b->index : a->class_id < b->class_id;
}

static void swap(npu_detection *a, npu_detection *b)
{
    const npu_detection spare = *a;
    *a = *b, *b = spare;
}

static void sink(npu_detection *heap, int32_t count, int32_t at)
{
    for (;;) {
        int32_t worst = at;
        for (int32_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++)
            if (is_better(&heap[worst], &heap[child])) worst = child;
        if (worst == at) return;
        swap(&heap[at], &heap[worst]);
        at = worst;
    }
}

static void collect(collected *set, const npu_detection *detection)
{
    if (set->count == set->capacity) {
        if (!set->count || !is_better(detection, &set->at[0])) return;
        set->at[0] = *detection;
        sink(set->at, set->count, 0);
        return;
    }
    int32_t at = set->count++;
    set->at[at] = *detection;
    for (; at && is_better(&set->at[(at - 1) / 2], &set->at[at]); at = (at - 1) / 2) swap(&set->at[at], &set->at[(at - 1) / 2]);
}

/* ---- numbers ---- */

static float sigmoid(float x)
{
    return x >= 0.0f ? 1.0f / (1.0f + expf(-x)) : expf(x) / (1.0f + expf(x));
}

/* `count` values, `step` apart: which is the largest, and how much of the softmax it has. */
static int32_t largest(const float *x, ptrdiff_t step, int32_t count)
{
    int32_t best = 0;
    for (int32_t i = 1; i < count; i++)
        if (x[i * step] > x[best * step]) best = i;
    return best;
}

static float softmax_of(const float *x, ptrdiff_t step, int32_t count, int32_t index)
{
    const float most = x[largest(x, step, count) * step];
    float sum = 0.0f;
    for (int32_t i = 0; i < count; i++) sum += expf(x[i * step] - most);
    return expf(x[index * step] - most) / sum;
}

static float activated(int32_t how, const float *x, int32_t count, int32_t index)
{
    if (how == NPU_SCORES_SIGMOID) return sigmoid(x[index]);
    return how == NPU_SCORES_SOFTMAX ? softmax_of(x, 1, count, index) : x[index];
}

static void corners(float *box, float x, float y, float width, float height)
{
    box[0] = x - width / 2, box[1] = y - height / 2;
    box[2] = x + width / 2, box[3] = y + height / 2;
}

static float clamped(float x, float low, float high)
{
    return x < low ? low : x > high ? high : x;
}

/* ---- YOLO ---- */

typedef struct yolo {
    const npu_network *network;
    const npu_head *head;
    int32_t number; /* of the head */
    int activated;
    float threshold;
    collected *set;
} yolo;

/* The sides of a box as distances from the middle of a cell. */
static void box_of_sides(const yolo *d, const float *t, ptrdiff_t step, int32_t column, int32_t row, float *box)
{
    const int32_t bins = d->network->bins;
    const float stride = d->network->stride[d->number], x = (float)column + 0.5f, y = (float)row + 0.5f;
    float side[4];
    for (int32_t k = 0; k < 4; k++) {
        const float *bin = t + k * bins * step;
        const float most = bin[largest(bin, step, bins) * step];
        float sum = 0.0f, mean = 0.0f;
        for (int32_t i = 0; i < bins; i++) {
            const float weight = expf(bin[i * step] - most);
            sum += weight, mean += weight * (float)i;
        }
        side[k] = bins > 1 ? mean / sum : bin[0];
    }
    box[0] = (x - side[0]) * stride, box[1] = (y - side[1]) * stride;
    box[2] = (x + side[2]) * stride, box[3] = (y + side[3]) * stride;
}

static void box_of_anchor(const yolo *d, const float *t, ptrdiff_t step, int32_t column, int32_t row, int32_t anchor, float *box)
{
    const npu_network *n = d->network;
    const float stride = n->stride[d->number], scale = n->scale_xy[d->number];
    const float w = t[2 * step], h = t[3 * step];
    const float *own = n->anchor[d->number][anchor];
    if (n->family == NPU_YOLOX) {
        corners(box, (t[0] + (float)column) * stride, (t[step] + (float)row) * stride, expf(w) * stride, expf(h) * stride);
    } else if (n->family == NPU_YOLOV5) {
        const float wide = sigmoid(w) * 2.0f, tall = sigmoid(h) * 2.0f;
        corners(box, (sigmoid(t[0]) * 2.0f - 0.5f + (float)column) * stride, (sigmoid(t[step]) * 2.0f - 0.5f + (float)row) * stride,
                wide * wide * own[0], tall * tall * own[1]);
    } else {
        const float cell = n->family == NPU_YOLOV2 ? stride : 1.0f, shift = (scale - 1.0f) / 2.0f;
        corners(box, (sigmoid(t[0]) * scale - shift + (float)column) * stride, (sigmoid(t[step]) * scale - shift + (float)row) * stride,
                expf(w) * own[0] * cell, expf(h) * own[1] * cell);
    }
}

/* One cell of one anchor; `t` is its first channel, channels are `step` apart. */
static void decode_cell(const yolo *d, const float *t, ptrdiff_t step, int32_t channels, int32_t column, int32_t row, int32_t anchor,
                        int32_t index)
{
    const npu_network *n = d->network;
    const int has_sides = n->family == NPU_YOLOV8;
    const int32_t first = has_sides ? 4 * n->bins : 5, classes = channels - first;
    const float *score = t + first * step;
    npu_detection found = {.class_id = largest(score, step, classes), .index = index};
    const float raw = score[found.class_id * step];
    if (d->activated)
        found.score = raw;
    else
        found.score = n->family == NPU_YOLOV2 ? softmax_of(score, step, classes, found.class_id) : sigmoid(raw);
    if (!has_sides) found.score *= d->activated ? t[4 * step] : sigmoid(t[4 * step]);
    if (!(found.score >= d->threshold)) return;
    if (has_sides)
        box_of_sides(d, t, step, column, row, found.box);
    else
        box_of_anchor(d, t, step, column, row, anchor, found.box);
    collect(d->set, &found);
}

int32_t npu_decode_yolo(const npu_network *network, const npu_head *heads, int32_t is_activated, float threshold, npu_detection *out,
                        int32_t capacity)
{
    if (!network || !heads || !out || capacity < 1 || network->heads < 1 || network->heads > NPU_MOST_HEADS || network->bins < 1) return -1;
    const int32_t anchors = network->anchors ? network->anchors : 1;
    const int32_t least = network->family == NPU_YOLOV8 ? 4 * network->bins : 5;
    for (int32_t k = 0; k < network->heads; k++) {
        const npu_head *h = &heads[k];
        if (!h->data || h->rows < 1 || h->columns < 1 || h->channels % anchors || h->channels / anchors <= least) return -1;
    }
    collected set = {out, 0, capacity};
    int32_t index = 0;
    for (int32_t k = 0; k < network->heads; k++) {
        const npu_head *h = &heads[k];
        const yolo d = {network, h, k, is_activated != 0, threshold, &set};
        const ptrdiff_t step = (ptrdiff_t)h->rows * h->columns;
        const int32_t channels = h->channels / anchors;
        for (int32_t a = 0; a < anchors; a++)
            for (int32_t row = 0; row < h->rows; row++)
                for (int32_t column = 0; column < h->columns; column++, index++)
                    decode_cell(&d, h->data + a * channels * step + (ptrdiff_t)row * h->columns + column, step, channels, column, row, a, index);
    }
    return set.count;
}

/* ---- SSD ---- */

/* The best class but one; -1 if there is no other. */
static int32_t best_class(const float *score, int32_t classes, int32_t background)
{
    int32_t best = -1;
    for (int32_t i = 0; i < classes; i++)
        if (i != background && (best < 0 || score[i] > score[best])) best = i;
    return best;
}

static int32_t without(int32_t class_id, int32_t background)
{
    return background >= 0 && class_id > background ? class_id - 1 : class_id;
}

int32_t npu_decode_ssd(const npu_ssd *ssd, const float *offsets, const float *scores, const float *priors, float threshold,
                       npu_detection *out, int32_t capacity)
{
    if (!ssd || !offsets || !scores || !priors || !out || capacity < 1 || ssd->count < 0 || ssd->classes < 1) return -1;
    collected set = {out, 0, capacity};
    const int first = ssd->y_first != 0;
    for (int32_t i = 0; i < ssd->count; i++, offsets += 4, scores += ssd->classes, priors += 4) {
        const int32_t best = best_class(scores, ssd->classes, ssd->background);
        if (best < 0) return -1;
        npu_detection found = {.score = activated(ssd->activation, scores, ssd->classes, best), .index = i};
        found.class_id = without(best, ssd->background);
        if (!(found.score >= threshold)) continue;
        const float x = priors[0] + offsets[first] * ssd->variance[0] * priors[2];
        const float y = priors[1] + offsets[1 - first] * ssd->variance[0] * priors[3];
        corners(found.box, x * ssd->width, y * ssd->height, priors[2] * expf(offsets[2 + first] * ssd->variance[1]) * ssd->width,
                priors[3] * expf(offsets[3 - first] * ssd->variance[1]) * ssd->height);
        collect(&set, &found);
    }
    return set.count;
}

/* ---- Faster R-CNN ---- */

/* A box moved and scaled by deltas, and cut at the edges of the image; exp is bounded as in the reference implementations. */
static void moved(const float *from, const float *delta, const float *deviation, float height, float width, float *box)
{
    const float most = 4.135166556742356f; /* log(1000 / 16) */
    const float w = from[2] - from[0], h = from[3] - from[1];
    const float x = from[0] + w / 2 + delta[0] * deviation[0] * w, y = from[1] + h / 2 + delta[1] * deviation[1] * h;
    const float wide = delta[2] * deviation[2], tall = delta[3] * deviation[3];
    corners(box, x, y, w * expf(wide > most ? most : wide), h * expf(tall > most ? most : tall));
    box[0] = clamped(box[0], 0.0f, width), box[1] = clamped(box[1], 0.0f, height);
    box[2] = clamped(box[2], 0.0f, width), box[3] = clamped(box[3], 0.0f, height);
}

int32_t npu_decode_rcnn(const npu_rcnn *rcnn, const float *deltas, const float *scores, const float *proposals, float threshold,
                        npu_detection *out, int32_t capacity)
{
    if (!rcnn || !deltas || !scores || !proposals || !out || capacity < 1 || rcnn->count < 0 || rcnn->classes < 1) return -1;
    collected set = {out, 0, capacity};
    for (int32_t i = 0; i < rcnn->count; i++)
        for (int32_t k = 0; k < rcnn->classes; k++) {
            if (k == rcnn->background) continue;
            const ptrdiff_t at = (ptrdiff_t)i * rcnn->classes;
            npu_detection found = {.score = activated(rcnn->activation, scores + at, rcnn->classes, k), .index = i};
            found.class_id = without(k, rcnn->background);
            if (!(found.score >= threshold)) continue;
            const float *delta = deltas + (rcnn->shared ? (ptrdiff_t)i : at + k) * 4;
            moved(proposals + (ptrdiff_t)i * 4, delta, rcnn->deviation, rcnn->height, rcnn->width, found.box);
            collect(&set, &found);
        }
    return set.count;
}

int32_t npu_decode_rpn(int32_t count, const float *scores, const float *deltas, const float *anchors, float height, float width, float least,
                       npu_detection *out, int32_t capacity)
{
    static const float plain[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    if (count < 0 || !scores || !deltas || !anchors || !out || capacity < 1) return -1;
    collected set = {out, 0, capacity};
    for (int32_t i = 0; i < count; i++) {
        npu_detection found = {.score = scores[i], .index = i};
        if (found.score != found.score) continue;
        moved(anchors + (ptrdiff_t)i * 4, deltas + (ptrdiff_t)i * 4, plain, height, width, found.box);
        if (found.box[2] - found.box[0] >= least && found.box[3] - found.box[1] >= least) collect(&set, &found);
    }
    return set.count;
}

/* ---- suppression ---- */

static float area(const float *box)
{
    const float width = box[2] - box[0], height = box[3] - box[1];
    return width > 0.0f && height > 0.0f ? width * height : 0.0f;
}

static float overlap(const float *a, const float *b)
{
    const float shared[4] = {a[0] > b[0] ? a[0] : b[0], a[1] > b[1] ? a[1] : b[1], a[2] < b[2] ? a[2] : b[2], a[3] < b[3] ? a[3] : b[3]};
    const float inside = area(shared), all = area(a) + area(b) - inside;
    return all > 0.0f ? inside / all : 0.0f;
}

int32_t npu_suppress(npu_detection *detections, int32_t count, float threshold, int32_t per_class, int32_t limit)
{
    if (count < 0 || limit < 0 || (count && !detections)) return -1;
    /* A heap sort: the worst goes to the end of what is left. */
    for (int32_t i = count / 2 - 1; i >= 0; i--) sink(detections, count, i);
    for (int32_t left = count - 1; left > 0; left--) {
        swap(&detections[0], &detections[left]);
        sink(detections, left, 0);
    }
    int32_t kept = 0;
    for (int32_t i = 0; i < count && kept < limit; i++) {
        int goes = 0;
        for (int32_t k = 0; k < kept && !goes; k++)
            goes = (!per_class || detections[k].class_id == detections[i].class_id) && overlap(detections[k].box, detections[i].box) > threshold;
        if (!goes) detections[kept++] = detections[i];
    }
    return kept;
}
