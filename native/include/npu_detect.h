/*
 * npu: detections from the float outputs of detectors, in plain C: no heap, no files, libm alone.
 *
 * A decoder goes through the heads of one image and writes what is at least as sure as a threshold into an array of the caller;
 * npu_suppress then sorts it and drops boxes that overlap better ones. Boxes are x1, y1, x2, y2 in pixels of the network's input.
 * Every function returns how many detections there are, or -1 for an argument that makes no sense. Where the array is too
 * short, the surest are kept.
 */
#ifndef NPU_DETECT_H
#define NPU_DETECT_H

#include <stdint.h>

#include "npu.h"
#include "npu_networks.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct npu_detection {
    float box[4];
    float score;
    int32_t class_id;
    int32_t index; /* the place of its box among all, by head, anchor, row and column; of equal scores the lower is better */
} npu_detection;

/* The output of a head for one image: channels x rows x columns. */
typedef struct npu_head {
    const float *data;
    int32_t channels, rows, columns;
} npu_head;

/* What is known of a published network by its name, such as "yolov3_tiny"; NULL if there is none of that name. */
NPU_API const npu_network *npu_network_of(const char *name);

/*
 * The detections of a YOLO of any family; `activated` is not 0 if the network has the sigmoid (or softmax) of scores inside.
 * `heads` has as many as the network, the finest first. A box has its best class.
 */
NPU_API int32_t npu_decode_yolo(const npu_network *network, const npu_head *heads, int32_t activated, float threshold,
                                npu_detection *out, int32_t capacity);

/* The activation of scores. */
typedef enum npu_scores { NPU_SCORES_PLAIN = 0, NPU_SCORES_SOFTMAX = 1, NPU_SCORES_SIGMOID = 2 } npu_scores;

/*
 * An SSD: `offsets` is priors x 4, `scores` priors x classes, `priors` center x, center y, width, height as parts of the image.
 * `background` is the class that is none, -1 if there is no such class; classes behind it move up by one. `y_first` is not 0 for
 * offsets in TensorFlow's order y, x, h, w.
 */
typedef struct npu_ssd {
    int32_t count, classes, background, y_first;
    int32_t activation; /* npu_scores */
    float variance[2];
    float height, width; /* of the network's input */
} npu_ssd;
NPU_API int32_t npu_decode_ssd(const npu_ssd *ssd, const float *offsets, const float *scores, const float *priors, float threshold,
                               npu_detection *out, int32_t capacity);

/*
 * The second stage of a Faster R-CNN: `deltas` is count x classes x 4 (or count x 4 with `shared` not 0), `scores` count x
 * classes, `proposals` count x 4 as x1, y1, x2, y2 in pixels. Each class of a proposal but the background is a detection.
 */
typedef struct npu_rcnn {
    int32_t count, classes, background, shared;
    int32_t activation; /* npu_scores */
    float deviation[4]; /* deltas are multiplied by these: 0.1, 0.1, 0.2, 0.2 */
    float height, width; /* boxes are cut at the edges of the image */
} npu_rcnn;
NPU_API int32_t npu_decode_rcnn(const npu_rcnn *rcnn, const float *deltas, const float *scores, const float *proposals, float threshold,
                                npu_detection *out, int32_t capacity);

/*
 * Its first stage: `scores` (objectness, activated) and `deltas` (x 4) of `count` anchors (x1, y1, x2, y2 in pixels). Boxes are cut at
 * the edges of the image; those with a side below `least` are dropped. All are of class 0: npu_suppress makes proposals of them.
 */
NPU_API int32_t npu_decode_rpn(int32_t count, const float *scores, const float *deltas, const float *anchors, float height, float width,
                               float least, npu_detection *out, int32_t capacity);

/*
 * Sort detections, the surest first, and drop those that overlap a better one (of their class, if `per_class` is not 0) by more
 * than `threshold` of intersection over union; at most `limit` are kept.
 */
NPU_API int32_t npu_suppress(npu_detection *detections, int32_t count, float threshold, int32_t per_class, int32_t limit);

#ifdef __cplusplus
}
#endif

#endif /* NPU_DETECT_H */
