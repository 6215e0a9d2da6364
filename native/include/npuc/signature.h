/* npuc: signatures of Ed25519 (RFC 8032), and those of .npu files. */
#ifndef NPUC_SIGNATURE_H
#define NPUC_SIGNATURE_H

#include <stdint.h>

#include "npuc/npuc.h"
#include "npuc/reader.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NPUC_KEY_BYTES 32

/*
 * Whether a signature is that of a message by the owner of a public key. Numbers in another form than the one form that RFC 8032
 * gives them are refused, and so are keys of small order, for which anyone can sign.
 */
NPUC_API int npuc_ed25519_verify(const uint8_t key[NPUC_KEY_BYTES], const uint8_t signature[64], const uint8_t *message, uint64_t size);

/* Whether these bytes are a public key at all: a point of the curve, and none of small order. */
NPUC_API int npuc_ed25519_key_is_sound(const uint8_t key[NPUC_KEY_BYTES]);

/* The public key that an open file says it is signed with; NULL if it has no signature that this runtime knows. Nothing is verified. */
NPUC_API const uint8_t *npuc_file_signer(const npuc_file *file);

/* NULL if an open file is signed by the owner of a key, or else, in a few words, why not. */
NPUC_API const char *npuc_file_check_signature(const npuc_file *file, const uint8_t key[NPUC_KEY_BYTES]);

#ifdef __cplusplus
}
#endif

#endif /* NPUC_SIGNATURE_H */
