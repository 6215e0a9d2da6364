/* The signature of a .npu file; src/npuc/program/signature.py writes it. */
#include <stddef.h>
#include <string.h>

#include "npuc/signature.h"
#include "sha256.h"

enum { ED25519 = 1, SIGNATURE = offsetof(npuc_file_signature, signature) };

/* What is signed begins with this text and its zero; a digest follows. */
static const char PREFIX[] = "npuc signature of a .npu file";

static const npuc_elf_section *section_of(const npuc_file *f)
{
    const char *names = (const char *)f->bytes + f->sections[((const npuc_elf_header *)f->bytes)->names].offset;
    const npuc_elf_section *section = NULL;
    for (uint32_t k = 1; k < f->section_count; k++) {
        if (strcmp(names + f->sections[k].name, ".npu.signature") != 0) continue;
        if (section) return NULL;
        section = &f->sections[k];
    }
    return section;
}

/* The record of a section, which may lie at any address; 0 if it is none. */
static int read_record(const npuc_file *f, const npuc_elf_section *section, npuc_file_signature *record)
{
    if (section->size != sizeof *record || section->entry_size != sizeof *record) return 0;
    memcpy(record, f->bytes + section->offset, sizeof *record);
    return record->algorithm == ED25519 && !record->reserved;
}

/* The digest of a chunk that would have zeros in [first, end) of the file. */
static void digest_chunk(const npuc_file *f, uint64_t chunk, uint64_t first, uint64_t end, uint8_t digest[NPUC_FILE_DIGEST])
{
    static const uint8_t zeros[sizeof((npuc_file_signature){0}.signature)] = {0};
    const uint64_t start = chunk * NPUC_FILE_CHUNK, rest = f->body - start, stop = start + (rest < NPUC_FILE_CHUNK ? rest : NPUC_FILE_CHUNK);
    const uint64_t low = first > start ? first : start, high = end < stop ? end : stop;
    npuc_sha256_hash hash;
    npuc_sha256_begin(&hash);
    npuc_sha256_add(&hash, f->bytes + start, low - start);
    npuc_sha256_add(&hash, zeros, high - low);
    npuc_sha256_add(&hash, f->bytes + high, stop - high);
    npuc_sha256_end(&hash, digest);
}

/* The digest of all digests that the file would have with zeros for its signature. */
static void digest_unsigned(const npuc_file *f, const npuc_elf_section *section, uint8_t digest[NPUC_FILE_DIGEST])
{
    const uint64_t first = section->offset + SIGNATURE, end = section->offset + section->size;
    const uint64_t chunks = (f->size - f->body) / NPUC_FILE_DIGEST - 1;
    npuc_sha256_hash hash;
    npuc_sha256_begin(&hash);
    for (uint64_t chunk = 0; chunk < chunks; chunk++) {
        const uint64_t start = chunk * NPUC_FILE_CHUNK;
        uint8_t changed[NPUC_FILE_DIGEST];
        const int inside = first < start + NPUC_FILE_CHUNK && end > start;
        if (inside) digest_chunk(f, chunk, first, end, changed);
        npuc_sha256_add(&hash, inside ? changed : f->bytes + f->body + chunk * NPUC_FILE_DIGEST, NPUC_FILE_DIGEST);
    }
    npuc_sha256_end(&hash, digest);
}

const uint8_t *npuc_file_signer(const npuc_file *file)
{
    npuc_file_signature record;
    const npuc_elf_section *section = section_of(file);
    if (!section || !read_record(file, section, &record)) return NULL;
    return file->bytes + section->offset + offsetof(npuc_file_signature, key);
}

const char *npuc_file_check_signature(const npuc_file *file, const uint8_t key[NPUC_KEY_BYTES])
{
    npuc_file_signature record;
    if (!npuc_ed25519_key_is_sound(key)) return "the key is no public key of Ed25519, or one for which anyone can sign";
    const npuc_elf_section *section = section_of(file);
    if (!section) return "it is not signed";
    if (!read_record(file, section, &record)) return "it has a signature that this runtime does not know";
    if (memcmp(record.key, key, sizeof record.key) != 0) return "it is signed by another key";
    uint8_t message[sizeof PREFIX + NPUC_FILE_DIGEST];
    memcpy(message, PREFIX, sizeof PREFIX);
    digest_unsigned(file, section, message + sizeof PREFIX);
    return npuc_ed25519_verify(key, record.signature, message, sizeof message) ? NULL
                                                                              : "it was changed since it was signed: its signature is wrong";
}
