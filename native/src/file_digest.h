/* The checksums at the end of a .npu file: a SHA-256 of every chunk of it, then one of these digests. */
#ifndef NPUC_FILE_DIGEST_H
#define NPUC_FILE_DIGEST_H

#include "npuc/reader.h"

/* Bytes of all digests of a file with `body` bytes before them. */
uint64_t npuc_digests_size(uint64_t body);

/* Whether the last digest is that of the others, and every chunk is as it was written that is not wholly inside [first, end).
   Those inside are noted as unproven. */
int npuc_digests_match(npuc_file *file, uint64_t first, uint64_t end);

#endif /* NPUC_FILE_DIGEST_H */
