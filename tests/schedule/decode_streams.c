/* Decodes streams from stdin in memory of exactly their size: for each (stored, size, bytes), a line with the status. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "npuc/weights.h"

int main(void)
{
    int64_t head[2];
    while (fread(head, sizeof head, 1, stdin) == 1) {
        uint8_t *stream = malloc((size_t)head[0]), *data = malloc((size_t)head[1]);
        if (!stream || !data || fread(stream, 1, (size_t)head[0], stdin) != (size_t)head[0]) return 2;
        printf("%d\n", (int)npuc_weights_decode(stream, head[0], data, head[1]));
        free(stream);
        free(data);
    }
    return 0;
}
