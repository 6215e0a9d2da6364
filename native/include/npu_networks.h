/*
 * npu: published detectors by name, made by `make docs` from src/npuc/detectors.py. Do not edit.
 */
#ifndef NPU_NETWORKS_H
#define NPU_NETWORKS_H

#include <stdint.h>

/* How the heads of a YOLO are decoded. */
typedef enum npu_yolo_family {
    NPU_YOLOV2 = 0, /* cells with anchors in cells, softmax over the classes */
    NPU_YOLOV3 = 1, /* anchors in pixels, exp of the size; with scale_xy as in v4 */
    NPU_YOLOV5 = 2, /* anchors in pixels, twice the sigmoid, squared for the size */
    NPU_YOLOX = 3, /* no anchors, exp of the size in strides */
    NPU_YOLOV8 = 4 /* no anchors, distances to the four sides, as distributions over bins or as such */
} npu_yolo_family;

#define NPU_MOST_HEADS 4
#define NPU_MOST_ANCHORS 5

/* What belongs to a network: heads are in the order of strides, the finest first. */
typedef struct npu_network {
    const char *name;
    int32_t family; /* npu_yolo_family */
    int32_t heads, anchors; /* anchors of a head; 0: none */
    int32_t bins; /* of a side of a box */
    int32_t suppress; /* 0: each object has one box */
    float stride[NPU_MOST_HEADS], scale_xy[NPU_MOST_HEADS];
    float anchor[NPU_MOST_HEADS][NPU_MOST_ANCHORS][2]; /* widths and heights in pixels; of v2 in cells */
} npu_network;

/* The rows of a table of them. */
#define NPU_NETWORKS \
    {"yolov2", NPU_YOLOV2, 1, 5, 16, 1, {32.0f}, {1.0f}, {{{0.57273f, 0.677385f}, {1.87446f, 2.06253f}, {3.33843f, 5.47434f}, {7.88282f, 3.52778f}, {9.77052f, 9.16828f}}}}, \
    {"yolov2_voc", NPU_YOLOV2, 1, 5, 16, 1, {32.0f}, {1.0f}, {{{1.3221f, 1.73145f}, {3.19275f, 4.00944f}, {5.05587f, 8.09892f}, {9.47112f, 4.84053f}, {11.2364f, 10.0071f}}}}, \
    {"yolov2_tiny", NPU_YOLOV2, 1, 5, 16, 1, {32.0f}, {1.0f}, {{{0.57273f, 0.677385f}, {1.87446f, 2.06253f}, {3.33843f, 5.47434f}, {7.88282f, 3.52778f}, {9.77052f, 9.16828f}}}}, \
    {"yolov2_tiny_voc", NPU_YOLOV2, 1, 5, 16, 1, {32.0f}, {1.0f}, {{{1.08f, 1.19f}, {3.42f, 4.41f}, {6.63f, 11.38f}, {9.42f, 5.11f}, {16.62f, 10.52f}}}}, \
    {"yolov3", NPU_YOLOV3, 3, 3, 16, 1, {8.0f, 16.0f, 32.0f}, {1.0f, 1.0f, 1.0f}, {{{10.0f, 13.0f}, {16.0f, 30.0f}, {33.0f, 23.0f}}, {{30.0f, 61.0f}, {62.0f, 45.0f}, {59.0f, 119.0f}}, {{116.0f, 90.0f}, {156.0f, 198.0f}, {373.0f, 326.0f}}}}, \
    {"yolov3_spp", NPU_YOLOV3, 3, 3, 16, 1, {8.0f, 16.0f, 32.0f}, {1.0f, 1.0f, 1.0f}, {{{10.0f, 13.0f}, {16.0f, 30.0f}, {33.0f, 23.0f}}, {{30.0f, 61.0f}, {62.0f, 45.0f}, {59.0f, 119.0f}}, {{116.0f, 90.0f}, {156.0f, 198.0f}, {373.0f, 326.0f}}}}, \
    {"yolov3_tiny", NPU_YOLOV3, 2, 3, 16, 1, {16.0f, 32.0f}, {1.0f, 1.0f}, {{{10.0f, 14.0f}, {23.0f, 27.0f}, {37.0f, 58.0f}}, {{81.0f, 82.0f}, {135.0f, 169.0f}, {344.0f, 319.0f}}}}, \
    {"yolov4", NPU_YOLOV3, 3, 3, 16, 1, {8.0f, 16.0f, 32.0f}, {1.2f, 1.1f, 1.05f}, {{{12.0f, 16.0f}, {19.0f, 36.0f}, {40.0f, 28.0f}}, {{36.0f, 75.0f}, {76.0f, 55.0f}, {72.0f, 146.0f}}, {{142.0f, 110.0f}, {192.0f, 243.0f}, {459.0f, 401.0f}}}}, \
    {"yolov4_tiny", NPU_YOLOV3, 2, 3, 16, 1, {16.0f, 32.0f}, {1.05f, 1.05f}, {{{23.0f, 27.0f}, {37.0f, 58.0f}, {81.0f, 82.0f}}, {{81.0f, 82.0f}, {135.0f, 169.0f}, {344.0f, 319.0f}}}}, \
    {"yolov4_csp", NPU_YOLOV5, 3, 3, 16, 1, {8.0f, 16.0f, 32.0f}, {1.0f, 1.0f, 1.0f}, {{{12.0f, 16.0f}, {19.0f, 36.0f}, {40.0f, 28.0f}}, {{36.0f, 75.0f}, {76.0f, 55.0f}, {72.0f, 146.0f}}, {{142.0f, 110.0f}, {192.0f, 243.0f}, {459.0f, 401.0f}}}}, \
    {"yolov5", NPU_YOLOV5, 3, 3, 16, 1, {8.0f, 16.0f, 32.0f}, {1.0f, 1.0f, 1.0f}, {{{10.0f, 13.0f}, {16.0f, 30.0f}, {33.0f, 23.0f}}, {{30.0f, 61.0f}, {62.0f, 45.0f}, {59.0f, 119.0f}}, {{116.0f, 90.0f}, {156.0f, 198.0f}, {373.0f, 326.0f}}}}, \
    {"yolov5_p6", NPU_YOLOV5, 4, 3, 16, 1, {8.0f, 16.0f, 32.0f, 64.0f}, {1.0f, 1.0f, 1.0f, 1.0f}, {{{19.0f, 27.0f}, {44.0f, 40.0f}, {38.0f, 94.0f}}, {{96.0f, 68.0f}, {86.0f, 152.0f}, {180.0f, 137.0f}}, {{140.0f, 301.0f}, {303.0f, 264.0f}, {238.0f, 542.0f}}, {{436.0f, 615.0f}, {739.0f, 380.0f}, {925.0f, 792.0f}}}}, \
    {"yolov6", NPU_YOLOV8, 3, 0, 1, 1, {8.0f, 16.0f, 32.0f}, {1.0f, 1.0f, 1.0f}, {{{0.0f}}}}, \
    {"yolov6_large", NPU_YOLOV8, 3, 0, 17, 1, {8.0f, 16.0f, 32.0f}, {1.0f, 1.0f, 1.0f}, {{{0.0f}}}}, \
    {"yolov7", NPU_YOLOV5, 3, 3, 16, 1, {8.0f, 16.0f, 32.0f}, {1.0f, 1.0f, 1.0f}, {{{12.0f, 16.0f}, {19.0f, 36.0f}, {40.0f, 28.0f}}, {{36.0f, 75.0f}, {76.0f, 55.0f}, {72.0f, 146.0f}}, {{142.0f, 110.0f}, {192.0f, 243.0f}, {459.0f, 401.0f}}}}, \
    {"yolov7_tiny", NPU_YOLOV5, 3, 3, 16, 1, {8.0f, 16.0f, 32.0f}, {1.0f, 1.0f, 1.0f}, {{{10.0f, 13.0f}, {16.0f, 30.0f}, {33.0f, 23.0f}}, {{30.0f, 61.0f}, {62.0f, 45.0f}, {59.0f, 119.0f}}, {{116.0f, 90.0f}, {156.0f, 198.0f}, {373.0f, 326.0f}}}}, \
    {"yolov7_w6", NPU_YOLOV5, 4, 3, 16, 1, {8.0f, 16.0f, 32.0f, 64.0f}, {1.0f, 1.0f, 1.0f, 1.0f}, {{{19.0f, 27.0f}, {44.0f, 40.0f}, {38.0f, 94.0f}}, {{96.0f, 68.0f}, {86.0f, 152.0f}, {180.0f, 137.0f}}, {{140.0f, 301.0f}, {303.0f, 264.0f}, {238.0f, 542.0f}}, {{436.0f, 615.0f}, {739.0f, 380.0f}, {925.0f, 792.0f}}}}, \
    {"yolov8", NPU_YOLOV8, 3, 0, 16, 1, {8.0f, 16.0f, 32.0f}, {1.0f, 1.0f, 1.0f}, {{{0.0f}}}}, \
    {"yolov9", NPU_YOLOV8, 3, 0, 16, 1, {8.0f, 16.0f, 32.0f}, {1.0f, 1.0f, 1.0f}, {{{0.0f}}}}, \
    {"yolov10", NPU_YOLOV8, 3, 0, 16, 0, {8.0f, 16.0f, 32.0f}, {1.0f, 1.0f, 1.0f}, {{{0.0f}}}}, \
    {"yolov11", NPU_YOLOV8, 3, 0, 16, 1, {8.0f, 16.0f, 32.0f}, {1.0f, 1.0f, 1.0f}, {{{0.0f}}}}, \
    {"yolox", NPU_YOLOX, 3, 0, 16, 1, {8.0f, 16.0f, 32.0f}, {1.0f, 1.0f, 1.0f}, {{{0.0f}}}},

#endif /* NPU_NETWORKS_H */
