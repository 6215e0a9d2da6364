/*
 * JPEG and PNG files as images, by libjpeg and libpng where they are there when the application is built: HAVE_JPEG and HAVE_PNG,
 * which the Makefile and CMake find out. Without them such a file is refused with that reason.
 */
#include "image.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#if defined(HAVE_JPEG)
#include <jpeglib.h>

typedef struct jpeg_failure {
    struct jpeg_error_mgr manager;
    jmp_buf back;
} jpeg_failure;

static void jpeg_fails(j_common_ptr decoder) { longjmp(((jpeg_failure *)(void *)decoder->err)->back, 1); }

static void jpeg_is_silent(j_common_ptr decoder) { (void)decoder; }

const char *image_read_jpeg(FILE *file, image *into)
{
    struct jpeg_decompress_struct decoder;
    jpeg_failure failure;
    decoder.err = jpeg_std_error(&failure.manager);
    failure.manager.error_exit = jpeg_fails;
    failure.manager.output_message = jpeg_is_silent;
    if (setjmp(failure.back)) {
        jpeg_destroy_decompress(&decoder);
        return "the JPEG file is damaged";
    }
    jpeg_create_decompress(&decoder);
    jpeg_stdio_src(&decoder, file);
    jpeg_read_header(&decoder, TRUE);
    const char *why = NULL;
    if (decoder.num_components != 1 && decoder.num_components != 3) {
        why = "only grey and RGB images are read";
    } else {
        decoder.out_color_space = decoder.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
        jpeg_start_decompress(&decoder);
        why = image_allocate(into, decoder.output_width, decoder.output_height, decoder.output_components);
        while (!why && decoder.output_scanline < decoder.output_height) {
            JSAMPROW row = into->pixels + (size_t)decoder.output_scanline * (size_t)into->width * (size_t)into->channels;
            jpeg_read_scanlines(&decoder, &row, 1);
        }
        if (!why) jpeg_finish_decompress(&decoder);
    }
    jpeg_destroy_decompress(&decoder);
    return why;
}
#else
const char *image_read_jpeg(FILE *file, image *into)
{
    (void)file, (void)into;
    return "is a JPEG file, and this application was built without libjpeg: install it with its headers and build again";
}
#endif

#if defined(HAVE_PNG)
#include <png.h>

static void png_is_silent(png_structp decoder, png_const_charp words) { (void)decoder, (void)words; }

const char *image_read_png(FILE *file, image *into)
{
    static const char damaged[] = "the PNG file is damaged";
    png_structp decoder = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, png_is_silent);
    png_infop info = decoder ? png_create_info_struct(decoder) : NULL;
    const char *volatile why = info ? NULL : "there is not enough memory";
    if (info && setjmp(png_jmpbuf(decoder))) why = damaged;
    if (!why) {
        png_init_io(decoder, file);
        png_read_info(decoder, info);
        const int type = png_get_color_type(decoder, info);
        if (png_get_bit_depth(decoder, info) == 16) {
            why = "only samples of 8 bits are read";
        } else {
            if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(decoder);
            if (type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(decoder);
            png_set_strip_alpha(decoder);
            const int passes = png_set_interlace_handling(decoder);
            png_read_update_info(decoder, info);
            why = image_allocate(into, png_get_image_width(decoder, info), png_get_image_height(decoder, info), png_get_channels(decoder, info));
            const size_t line = (size_t)into->width * (size_t)into->channels;
            for (int pass = 0; !why && pass < passes; pass++)
                for (int y = 0; y < into->height; y++) png_read_row(decoder, into->pixels + (size_t)y * line, NULL);
            if (!why) png_read_end(decoder, NULL);
        }
    }
    png_destroy_read_struct(&decoder, &info, NULL);
    return why;
}
#else
const char *image_read_png(FILE *file, image *into)
{
    (void)file, (void)into;
    return "is a PNG file, and this application was built without libpng: install it with its headers and build again";
}
#endif
