/* Images are prepared as settings.c says; .tensor and .npy files have the numbers that the network takes, raw files its bytes. */
#include "vnn_pre_process.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"

static int ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    if (length < tail) return 0;
    for (size_t i = 0; i < tail; i++)
        if (tolower((unsigned char)text[length - tail + i]) != end[i]) return 0;
    return 1;
}

static int is_image(const char *path)
{
    static const char *const endings[] = {".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm"};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (ends_with(path, endings[i])) return 1;
    return 0;
}

static double clamped(double value, double least, double most)
{
    return value < least ? least : value > most ? most : value;
}

/* A real number as an element of an input. */
static int store(const npu_tensor *tensor, void *data, int64_t index, double real)
{
    const double plain = tensor->scale > 0.0 ? nearbyint(real / tensor->scale) + tensor->zero_point : real;
    switch (tensor->dtype) {
    case NPU_F32: ((float *)data)[index] = (float)real; return 1;
    case NPU_U8: ((uint8_t *)data)[index] = (uint8_t)clamped(nearbyint(plain), 0, 255); return 1;
    case NPU_I8: ((int8_t *)data)[index] = (int8_t)clamped(nearbyint(plain), -128, 127); return 1;
    case NPU_U16: ((uint16_t *)data)[index] = (uint16_t)clamped(nearbyint(plain), 0, 65535); return 1;
    case NPU_I16: ((int16_t *)data)[index] = (int16_t)clamped(nearbyint(plain), -32768, 32767); return 1;
    default: return 0;
    }
}

static const char *read_text(FILE *file, const npu_tensor *tensor, void *data)
{
    double value;
    for (int64_t i = 0; i < tensor->elements; i++) {
        if (fscanf(file, "%lf", &value) != 1) return "the file has fewer numbers than the input";
        if (!store(tensor, data, i, value)) return "the input has a type that takes raw files only";
    }
    return fscanf(file, "%lf", &value) == 1 ? "the file has more numbers than the input" : NULL;
}

/* A version 1 file of float32 or uint8 numbers in C order. */
static const char *read_numpy(FILE *file, const npu_tensor *tensor, void *data)
{
    unsigned char head[10];
    char words[4096];
    if (fread(head, 1, sizeof head, file) != sizeof head || memcmp(head, "\x93NUMPY\x01", 7) != 0)
        return "not a NumPy file of version 1";
    const size_t length = (size_t)head[8] | (size_t)head[9] << 8;
    if (length >= sizeof words || fread(words, 1, length, file) != length) return "the header cannot be read";
    words[length] = 0;
    const int is_float = strstr(words, "'<f4'") != NULL, is_byte = strstr(words, "'|u1'") != NULL;
    if ((!is_float && !is_byte) || strstr(words, "'fortran_order': True")) return "only float32 and uint8 in C order are read";
    for (int64_t i = 0; i < tensor->elements; i++) {
        float real = 0;
        uint8_t byte = 0;
        if (fread(is_float ? (void *)&real : (void *)&byte, is_float ? 4 : 1, 1, file) != 1)
            return "the file has fewer numbers than the input";
        if (!store(tensor, data, i, is_float ? (double)real : byte)) return "the input has a type that takes raw files only";
    }
    return getc(file) != EOF ? "the file has more numbers than the input" : NULL;
}

static const char *read_raw(FILE *file, const npu_tensor *tensor, void *data)
{
    const size_t got = fread(data, 1, tensor->size, file);
    return got == tensor->size && getc(file) == EOF ? NULL : "the file does not have the size of the input";
}

static const char *read_image(const char *path, int index, const npu_tensor *tensor, void *data)
{
    image img;
    if (index >= settings_count || !settings[index]) return "the input takes no image; give a .tensor file";
    const char *why = image_read(path, &img);
    if (why) return why;
    why = image_to_tensor(&img, settings[index], tensor, data);
    image_free(&img);
    return why;
}

static const char *read_input(const char *path, int index, const npu_tensor *tensor, void *data)
{
    if (is_image(path)) return read_image(path, index, tensor, data);
    FILE *file = fopen(path, "rb");
    if (!file) return "the file cannot be opened";
    const char *why = ends_with(path, ".tensor") || ends_with(path, ".txt") ? read_text(file, tensor, data)
                      : ends_with(path, ".npy")                            ? read_numpy(file, tensor, data)
                                                                           : read_raw(file, tensor, data);
    fclose(file);
    return why;
}

int vnn_PreProcessNeuralNetwork(vnn_graph *graph, int count, char **files)
{
    if (count != npu_input_count(graph->model)) {
        fprintf(stderr, "the network takes %d files, and %d are given\n", (int)npu_input_count(graph->model), count);
        return VNN_FAILED;
    }
    for (int i = 0; i < count; i++) {
        const char *why = read_input(files[i], i, npu_input(graph->model, i), graph->inputs[i]);
        if (!why) continue;
        fprintf(stderr, "%s: %s\n", files[i], why);
        return VNN_FAILED;
    }
    return VNN_OK;
}
