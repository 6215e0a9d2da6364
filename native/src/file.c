/*
 * The reader of .npu files. Sizes and offsets are compared by subtraction from what is known to be inside, never added up
 * first, so that none of them can wrap. src/npuc/program/file.py and checks.py check the same.
 */
#include "npuc/reader.h"

#include <string.h>

#include "file_digest.h"
#include "file_rules.h"
#include "npuc/isa.h"
#include "sparse_weights.h"

#define MOST_DIGITS 10 /* of a number in the name of a section */

static const char *refuse(npuc_file *file, uint64_t at, const char *why)
{
    file->failed_at = at;
    return why;
}

/* Strings */

static int is_utf8(const uint8_t *text, uint64_t size)
{
    for (uint64_t i = 0; i < size;) {
        uint8_t lead = text[i];
        if (lead < 0x80) {
            i++;
            continue;
        }
        int more = lead >= 0xC2 && lead <= 0xDF ? 1 : lead >= 0xE0 && lead <= 0xEF ? 2 : lead >= 0xF0 && lead <= 0xF4 ? 3 : 0;
        if (!more || size - i <= (uint64_t)more) return 0;
        /* The second byte excludes longer spellings than needed, surrogates, and what is beyond U+10FFFF. */
        uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        if (text[i + 1] < low || text[i + 1] > high) return 0;
        for (int k = 2; k <= more; k++)
            if (text[i + (uint64_t)k] < 0x80 || text[i + (uint64_t)k] > 0xBF) return 0;
        i += (uint64_t)more + 1;
    }
    return 1;
}

static int is_string_table(const uint8_t *text, uint64_t size)
{
    return size > 0 && text[0] == 0 && text[size - 1] == 0 && is_utf8(text, size);
}

/* A string begins at 0 or after the end of another. */
static int begins(const uint8_t *text, uint64_t size, uint32_t at) { return at < size && (at == 0 || text[at - 1] == 0); }

static int string_exists(const npuc_file *f, uint32_t at) { return begins((const uint8_t *)f->strings, f->string_bytes, at); }

/* ELF */

typedef struct elf {
    const npuc_elf_header *header;
    const npuc_elf_program *programs;
    const uint8_t *names;
    uint64_t name_bytes;
    const npuc_file_header *machine; /* the header of the first entry; NULL while that is read */
} elf;

static const uint8_t IDENT[16] = {0x7F, 'E', 'L', 'F', 2, 1, 1};

static const char *section_name(const npuc_file *f, const elf *e, uint32_t number)
{
    return (const char *)e->names + f->sections[number].name;
}

static const char *check_header(npuc_file *f, elf *e)
{
    if (f->size < sizeof(npuc_elf_header)) return "it is too short";
    const npuc_elf_header *h = e->header = (const npuc_elf_header *)f->bytes;
    if (memcmp(h->ident, IDENT, 16) != 0 || h->type != NPUC_ELF_TYPE || h->machine != NPUC_ELF_MACHINE || h->version != 1 ||
        h->entry != 0 || h->flags != 0 || h->header_size != sizeof(npuc_elf_header) || h->program_header_size != sizeof(npuc_elf_program) ||
        h->section_header_size != sizeof(npuc_elf_section))
        return "it is not an ELF file for npuc";
    uint64_t programs = h->program_header_count * sizeof(npuc_elf_program);
    uint64_t headers = h->section_count * sizeof(npuc_elf_section);
    uint64_t table = h->section_headers;
    if (h->program_headers != (programs ? sizeof(npuc_elf_header) : 0) || programs > f->size - sizeof(npuc_elf_header))
        return "its program headers are not where they belong";
    if (h->section_count < 3 || h->section_count >= NPUC_ELF_SECTIONS || table % 8 || table > f->size || headers > f->size - table)
        return "its section headers are not inside the file";
    f->body = table + headers;
    if (f->size - f->body != npuc_digests_size(f->body)) return "the checksum is not at its end";
    e->programs = (const npuc_elf_program *)(f->bytes + sizeof(npuc_elf_header));
    f->sections = (const npuc_elf_section *)(f->bytes + table);
    f->section_count = h->section_count;
    if (h->names < 1 || h->names >= h->section_count || f->sections[h->names].type != 3) return "the names of its sections are missing";
    return NULL;
}

static const char *check_sections(npuc_file *f, elf *e)
{
    static const npuc_elf_section empty;
    uint32_t last = f->section_count - 1;
    uint64_t table = e->header->section_headers;
    uint64_t end = sizeof(npuc_elf_header) + e->header->program_header_count * sizeof(npuc_elf_program);
    if (memcmp(&f->sections[0], &empty, sizeof empty) != 0) return "section 0 is not empty";
    for (uint32_t k = 1; k < f->section_count; k++) {
        const npuc_elf_section *s = &f->sections[k];
        uint64_t limit = k == last ? f->size : table;
        if (k == last) end = f->body;
        if (s->type == 8 || s->offset < end || s->size > limit || s->offset > limit - s->size)
            return refuse(f, k, "a section is not inside the file, or overlaps another");
        end = s->offset + s->size;
    }
    e->names = f->bytes + f->sections[e->header->names].offset;
    e->name_bytes = f->sections[e->header->names].size;
    if (!is_string_table(e->names, e->name_bytes)) return "the names of its sections are damaged";
    for (uint32_t k = 0; k < f->section_count; k++)
        if (!begins(e->names, e->name_bytes, f->sections[k].name)) return refuse(f, k, "a section has no name");
    const npuc_elf_section *sums = &f->sections[last];
    if (sums->offset != f->body || sums->size != f->size - f->body || strcmp(section_name(f, e, last), ".npu.sha256") != 0)
        return "the last section is not the checksum";
    uint64_t first = 0, weights_end = 0;
    for (uint32_t k = 1; k < last && !weights_end; k++)
        if (strcmp(section_name(f, e, k), ".npu.weights") == 0) {
            first = f->sections[k].offset;
            weights_end = first + f->sections[k].size;
        }
    return npuc_digests_match(f, first, weights_end) ? NULL : "its checksum is wrong";
}

/* Tables */

/* Writes a number in decimal digits behind `to`, which has room for them; returns its end. */
static char *write_number(char *to, uint32_t value)
{
    char digits[MOST_DIGITS];
    int count = 0;
    do digits[count++] = (char)('0' + value % 10);
    while (value /= 10);
    while (count) *to++ = digits[--count];
    return to;
}

/* What is behind ".npu." in the name of a section of an entry, behind ".npu.e1." in one of entry 1; NULL for any other section. */
static const char *within_entry(const char *name, uint32_t entry)
{
    char prefix[8 + MOST_DIGITS] = ".npu.";
    char *end = prefix + 5;
    if (entry) {
        *end++ = 'e';
        end = write_number(end, entry);
        *end++ = '.';
    }
    const size_t length = (size_t)(end - prefix);
    return strncmp(name, prefix, length) == 0 ? name + length : NULL;
}

enum { HEADER, SEGMENTS, TENSORS, SUBGRAPHS, CONVERSIONS, LAYERS, ALLOCATIONS, LISTS, STRINGS, WEIGHTS, TARGET, META, NEEDED };

static const struct {
    const char *name; /* behind ".npu." and the number of the entry */
    uint64_t record;  /* bytes of a record; 0: not a table */
} WANTED[NEEDED] = {
    {"header", sizeof(npuc_file_header)},
    {"segments", sizeof(npuc_file_segment)},
    {"tensors", sizeof(npuc_file_tensor)},
    {"subgraphs", sizeof(npuc_file_subgraph)},
    {"conversions", sizeof(npuc_file_conversion)},
    {"layers", sizeof(npuc_file_layer)},
    {"allocations", sizeof(npuc_file_allocation)},
    {"lists", sizeof(uint32_t)},
    {"strings", 0},
    {"weights", 0},
    {"target", 0},
    {"meta", 0},
};

/* The table of states, which a file may do without. */
static const char *find_states(npuc_file *f, const elf *e)
{
    f->states = NULL;
    f->state_count = 0;
    for (uint32_t k = 1; k < f->section_count; k++) {
        const npuc_elf_section *s = &f->sections[k];
        const char *name = within_entry(section_name(f, e, k), f->entry);
        if (!name || strcmp(name, "states") != 0) continue;
        if (f->states) return refuse(f, k, "a section is there twice");
        if (s->entry_size != sizeof(npuc_file_state) || s->size % sizeof(npuc_file_state) || s->offset % 8 ||
            s->size / sizeof(npuc_file_state) > UINT32_MAX)
            return refuse(f, k, "a table is not made of whole records");
        f->states = (const npuc_file_state *)(const void *)(f->bytes + s->offset);
        f->state_count = (uint32_t)(s->size / sizeof(npuc_file_state));
    }
    return NULL;
}

/* The number behind "host." in the name of a section of the entry; -1 for any other section. */
static int64_t host_number(const npuc_file *f, const elf *e, uint32_t section)
{
    const char *name = within_entry(section_name(f, e, section), f->entry);
    if (!name || strncmp(name, "host.", 5) != 0) return -1;
    const char *digits = name + 5, *end = digits;
    int64_t number = 0;
    for (; *end >= '0' && *end <= '9' && number <= UINT32_MAX; end++) number = 10 * number + (*end - '0');
    const int is_plain = end > digits && !*end && (*digits != '0' || end == digits + 1);
    return is_plain && number <= UINT32_MAX ? number : -1;
}

/*
 * The sections of host operators: one behind the other, in the order of their subgraphs, so that each is found by halving. A file
 * may have tens of thousands of them.
 */
static const char *find_hosts(npuc_file *f, const elf *e)
{
    int64_t before = -1;
    f->first_host = f->host_count = 0;
    for (uint32_t k = 1; k < f->section_count; k++) {
        const int64_t number = host_number(f, e, k);
        if (number < 0) continue;
        if (!f->host_count) f->first_host = k;
        if (number <= before || k != f->first_host + f->host_count) return refuse(f, k, "the host operators of its subgraphs are not in order");
        f->host_count++;
        before = number;
    }
    return NULL;
}

static const char *find_tables(npuc_file *f, const elf *e, const npuc_elf_section **found)
{
    for (int t = 0; t < NEEDED; t++) found[t] = NULL;
    for (uint32_t k = 1; k < f->section_count; k++) {
        const char *own = within_entry(section_name(f, e, k), f->entry), *common = within_entry(section_name(f, e, k), 0);
        for (int t = 0; t < NEEDED; t++) {
            const char *name = t == WEIGHTS || t == TARGET ? common : own;
            if (!name || strcmp(name, WANTED[t].name) != 0) continue;
            if (found[t]) return refuse(f, k, "a section is there twice");
            found[t] = &f->sections[k];
        }
    }
    uint32_t counts[NEEDED] = {0};
    const void *starts[NEEDED];
    for (int t = 0; t < NEEDED; t++) {
        const npuc_elf_section *s = found[t];
        if (!s) return refuse(f, (uint64_t)t, "a section is missing");
        starts[t] = f->bytes + s->offset;
        uint64_t record = WANTED[t].record;
        if (!record) continue;
        if (s->entry_size != record || s->size % record || s->offset % 8 || s->size / record > UINT32_MAX)
            return refuse(f, (uint64_t)t, "a table is not made of whole records");
        counts[t] = (uint32_t)(s->size / record);
    }
    if (counts[HEADER] != 1) return "there is not one header";
    f->header = starts[HEADER];
    f->segments = starts[SEGMENTS];
    f->segment_count = counts[SEGMENTS];
    f->tensors = starts[TENSORS];
    f->tensor_count = counts[TENSORS];
    f->subgraphs = starts[SUBGRAPHS];
    f->subgraph_count = counts[SUBGRAPHS];
    f->conversions = starts[CONVERSIONS];
    f->conversion_count = counts[CONVERSIONS];
    f->layers = starts[LAYERS];
    f->layer_count = counts[LAYERS];
    f->allocations = starts[ALLOCATIONS];
    f->allocation_count = counts[ALLOCATIONS];
    f->lists = starts[LISTS];
    f->list_count = counts[LISTS];
    f->strings = starts[STRINGS];
    f->string_bytes = found[STRINGS]->size;
    f->weights = starts[WEIGHTS];
    if (!is_string_table((const uint8_t *)f->strings, f->string_bytes)) return "its strings are damaged";
    return NULL;
}

static const char *check_file_header(npuc_file *f, const npuc_file_header *first)
{
    const npuc_file_header *h = f->header;
    if (h->version < NPUC_FILE_OLDEST || h->version > NPUC_FILE_VERSION) return "it is of another version of the format";
    if (h->isa != NPUC_ISA_VERSION || h->record != NPUC_RECORD) return "it is of another version of the instruction set";
    if (!h->cores || !h->local_bytes || h->local_bytes >= NPUC_NONE || h->shared_bytes > NPUC_FILE_LARGEST)
        return "the machine in its header is not possible";
    if (first && (h->cores != first->cores || h->fingerprint != first->fingerprint || h->local_bytes != first->local_bytes ||
                  h->shared_bytes != first->shared_bytes))
        return "its entries are for different machines";
    if (!string_exists(f, h->name) || !string_exists(f, h->target)) return "its header names a string that does not exist";
    return NULL;
}

static const char *check_segments(npuc_file *f, const elf *e, const npuc_elf_section *weights)
{
    /* Program headers are for the segments of the first entry, and for the weights of all. */
    const uint32_t headed = f->entry ? 1 : f->segment_count;
    if (f->segment_count < 2 || f->segment_count >= 255 || (!f->entry && f->segment_count != e->header->program_header_count))
        return "it has too few or too many segments";
    for (uint32_t k = 0; k < f->segment_count; k++) {
        const npuc_file_segment *s = &f->segments[k];
        const npuc_elf_program *p = &e->programs[k < headed ? k : 0];
        if (s->kind != (k < 2 ? k : 2)) return refuse(f, k, "a segment is not of the kind that belongs there");
        if (s->size > NPUC_FILE_LARGEST || s->alignment != NPUC_FILE_ALIGNMENT)
            return refuse(f, k, "a segment has an impossible size or alignment");
        /* It may end where addresses end. */
        if (s->address % s->alignment || (s->size && s->size - 1 > UINT64_MAX - s->address))
            return refuse(f, k, "a segment has an impossible address");
        if (k < headed && (p->type != 1 || p->flags != (k ? 6u : 4u) || p->offset != (k ? 0 : weights->offset) || p->address != s->address ||
            p->physical_address != s->address || p->file_size != (k ? 0 : weights->size) || p->memory_size != s->size ||
            p->alignment != s->alignment))
            return refuse(f, k, "a program header contradicts the table of segments");
        if (!string_exists(f, s->name)) return refuse(f, k, "a segment names a string that does not exist");
        for (uint32_t j = 0; j < k; j++) {
            const npuc_file_segment *o = &f->segments[j];
            if (!s->address || !o->address || !s->size || !o->size) continue;
            if (s->address >= o->address ? s->address - o->address < o->size : o->address - s->address < s->size)
                return refuse(f, k, "a segment overlaps another");
        }
    }
    if (weights->size != f->segments[0].size || weights->offset % NPUC_FILE_PAGE)
        return "the weights are not where the table of segments has them";
    return NULL;
}

static int axes_are_sound(const npuc_file_tensor *t)
{
    uint32_t seen = 0;
    for (uint32_t a = 0; a < NPUC_FILE_AXES; a++) {
        if (a >= t->rank) {
            if (t->order[a] || t->shape[a]) return 0;
            continue;
        }
        if (t->order[a] >= t->rank || (seen >> t->order[a] & 1)) return 0;
        seen |= 1u << t->order[a];
    }
    return 1;
}

static int shape_fits(const npuc_file_tensor *t)
{
    static const uint8_t bits_of[] = NPUC_TENSOR_BITS;
    uint64_t bits = bits_of[t->dtype];
    for (uint32_t a = 0; a < t->rank; a++) {
        /* size is below 2^48, and a length below 2^32, so that eight times the one and the other stay apart from 2^64. */
        if (!t->shape[a] || bits > 8 * t->size / t->shape[a]) return 0;
        bits *= t->shape[a];
    }
    return bits <= 8 * t->size;
}

static const char *check_tensors(npuc_file *f)
{
    for (uint32_t k = 0; k < f->tensor_count; k++) {
        const npuc_file_tensor *t = &f->tensors[k];
        if (t->segment >= f->segment_count) return refuse(f, k, "a tensor is in a segment that does not exist");
        uint64_t whole = f->segments[t->segment].size;
        if (t->offset % NPUC_FILE_ALIGNMENT || t->offset > whole || t->size > whole - t->offset)
            return refuse(f, k, "a tensor is not inside its segment");
        if (t->dtype >= NPUC_TENSOR_DTYPES || t->rank > NPUC_FILE_AXES)
            return refuse(f, k, "a tensor has an unknown type or too many axes");
        if (!axes_are_sound(t)) return refuse(f, k, "a tensor has an impossible order of axes");
        if (!shape_fits(t)) return refuse(f, k, "a tensor has a shape that does not fit its size");
        if (!(t->scale >= 0.0 && t->scale <= 1.7976931348623157e308)) return refuse(f, k, "a tensor has an impossible scale");
        if (!string_exists(f, t->name)) return refuse(f, k, "a tensor names a string that does not exist");
    }
    for (uint32_t k = 0; k < f->list_count; k++)
        if (f->lists[k] >= f->tensor_count) return refuse(f, k, "a list names a tensor that does not exist");
    for (uint32_t k = 0; k < f->layer_count; k++)
        if (f->layers[k].reserved || !string_exists(f, f->layers[k].name))
            return refuse(f, k, "a layer names a string that does not exist");
    return NULL;
}

static int in_lists(const npuc_file *f, uint32_t first, uint32_t count) { return first <= f->list_count && count <= f->list_count - first; }

/* Instructions */

static uint32_t word(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* Whether a block of bytes is inside [0, whole): whole and the start are at most NPUC_FILE_LARGEST, strides are anything. */
static int block_is_inside(uint64_t start, const uint32_t size[4], const int64_t stride[3], uint64_t whole)
{
    if (start > whole) return 0;
    int64_t low = (int64_t)start, high = (int64_t)start + size[3];
    for (int a = 0; a < 3; a++) {
        int64_t steps = (int64_t)size[a] - 1;
        if (steps == 0) continue;
        int64_t longest = (int64_t)whole / steps;
        if (stride[a] > longest || stride[a] < -longest) return 0;
        *(stride[a] < 0 ? &low : &high) += stride[a] * steps;
    }
    return low >= 0 && high <= (int64_t)whole;
}

/* Bytes of a segment that instructions name; 0 if there is none. */
static int segment_size(const npuc_file *f, uint8_t segment, uint64_t *whole)
{
    *whole = segment < f->segment_count ? f->segments[segment].size : f->header->shared_bytes;
    return segment < f->segment_count || (segment == NPUC_SHARED_SEGMENT && f->header->shared_bytes);
}

static const char *check_transfer(const npuc_file *f, const uint8_t *record)
{
    npuc_i_load t; /* a store has the same fields */
    memcpy(&t, record, sizeof t);
    uint64_t whole;
    if (!segment_size(f, t.segment, &whole)) return "an instruction names a segment that does not exist";
    if (record[0] == NPUC_OP_STORE && t.segment == 0) return "an instruction stores among the weights";
    for (int a = 0; a < 4; a++)
        if (!t.size[a]) return "an instruction moves nothing";
    uint32_t far_size[4] = {t.size[0], t.size[1], t.size[2], t.size[3]};
    if (record[0] == NPUC_OP_LOAD) {
        const int compressed = (t.head.flags & NPUC_COMPRESSED) != 0;
        if (compressed != (t.stored != 0)) return "an instruction has a bad field";
        if (compressed && (t.size[0] != 1 || t.size[1] != 1 || t.size[2] != 1 || t.segment != 0 || t.stored >= t.size[3]))
            return "an instruction decodes what is no compressed constant";
        if (compressed) far_size[3] = t.stored;
    }
    if (!block_is_inside(t.offset, far_size, t.far_stride, whole)) return "an instruction leaves its segment";
    const int64_t near_stride[3] = {t.near_stride[0], t.near_stride[1], t.near_stride[2]};
    if (!block_is_inside(t.local, t.size, near_stride, f->header->local_bytes)) return "an instruction leaves local memory";
    return NULL;
}

static const char *check_sparse(const uint8_t *record)
{
    npuc_i_conv conv;
    memcpy(&conv, record, sizeof conv);
    return npuc_sparse_fault(&conv);
}

/* A custom instruction whose operands are in segments; a size of 0 means that one is not there, which x and y always are. */
static const char *check_far_operands(const npuc_file *f, const uint8_t *record)
{
    npuc_i_custom_global r;
    memcpy(&r, record, sizeof r);
    const struct {
        uint64_t at, bytes;
        uint8_t segment, write;
    } operands[] = {{r.x, r.x_bytes, r.x_segment, 0},
                    {r.b, r.b_bytes, r.b_segment, 0},
                    {r.y, r.y_bytes, r.y_segment, 1},
                    {r.workspace, r.workspace_bytes, r.workspace_segment, 1}};
    if (!r.x_bytes || !r.y_bytes) return "an instruction has an operand without bytes";
    for (size_t i = 0; i < sizeof operands / sizeof operands[0]; i++) {
        uint64_t whole;
        if (!operands[i].bytes) continue;
        if (!segment_size(f, operands[i].segment, &whole)) return "an instruction names a segment that does not exist";
        if (operands[i].write && operands[i].segment == 0) return "an instruction stores among the weights";
        if (operands[i].at > whole || operands[i].bytes > whole - operands[i].at) return "an instruction leaves its segment";
    }
    return NULL;
}

/* The queue of each opcode plus 1, and where its rules begin; 0: there is no such opcode. */
typedef struct opcodes {
    uint8_t queue[256];
    uint16_t first_rule[256];
} opcodes;

static void prepare(opcodes *known)
{
    memset(known, 0, sizeof *known);
#define KNOWN(name, opcode, home) known->queue[opcode] = (home) == NPUC_ANY_QUEUE ? NPUC_QUEUES + 1 : (home) + 1;
    NPUC_INSTRUCTIONS(KNOWN)
#undef KNOWN
    uint16_t count = sizeof RULES / sizeof RULES[0];
    for (int opcode = 0; opcode < 256; opcode++) known->first_rule[opcode] = count;
    for (uint16_t r = count; r-- > 0;) known->first_rule[RULES[r].opcode] = r;
}

static int fields_are_sound(const npuc_file *f, const opcodes *known, const uint8_t *record)
{
    for (size_t r = known->first_rule[record[0]]; r < sizeof RULES / sizeof RULES[0] && RULES[r].opcode == record[0]; r++) {
        const uint8_t *field = record + RULES[r].offset;
        if (RULES[r].what == RULE_ADDRESS) {
            if (word(field) != NPUC_NONE && word(field) >= f->header->local_bytes) return 0;
        } else if (RULES[r].what == RULE_CHOICE) {
            if (*field >= RULES[r].limit) return 0;
        } else if (*field != 1 && *field != 2 && *field != 4 && *field != 8) {
            return 0;
        }
    }
    return 1;
}

static const char *check_stream(npuc_file *f, const opcodes *known, const uint8_t *stream, uint64_t count, uint64_t barriers[NPUC_QUEUES])
{
    uint64_t done[NPUC_QUEUES] = {0};
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *record = stream + i * NPUC_RECORD;
        npuc_head head;
        memcpy(&head, record, sizeof head);
        uint8_t home = known->queue[head.opcode];
        if (!home) return refuse(f, i, "an instruction has an opcode that does not exist");
        if (head.queue >= NPUC_QUEUES || (home <= NPUC_QUEUES && head.queue != home - 1))
            return refuse(f, i, "an instruction is in the wrong queue");
        const int flags = head.opcode == NPUC_OP_LOAD ? NPUC_MULTICAST | NPUC_COMPRESSED : head.opcode == NPUC_OP_CONV ? NPUC_SPARSE : 0;
        if (head.flags & ~flags)
            return refuse(f, i, "an instruction has flags that do not exist");
        if (head.layer >= f->layer_count) return refuse(f, i, "an instruction names a layer that does not exist");
        for (int q = 0; q < NPUC_QUEUES; q++)
            if (head.wait[q] > done[q]) return refuse(f, i, "an instruction waits for a later one");
        if (!fields_are_sound(f, known, record)) return refuse(f, i, "an instruction has a bad field");
        if (head.opcode == NPUC_OP_LOAD || head.opcode == NPUC_OP_STORE) {
            const char *why = check_transfer(f, record);
            if (why) return refuse(f, i, why);
        }
        if (head.opcode == NPUC_OP_CONV) {
            const char *why = check_sparse(record);
            if (why) return refuse(f, i, why);
        }
        if (head.opcode == NPUC_OP_CUSTOM_GLOBAL) {
            const char *why = check_far_operands(f, record);
            if (why) return refuse(f, i, why);
        }
        if (head.opcode == NPUC_OP_BARRIER) {
            npuc_i_barrier barrier;
            memcpy(&barrier, record, sizeof barrier);
            if (barrier.number != ++barriers[head.queue]) return refuse(f, i, "an instruction is a barrier out of turn");
        }
        done[head.queue]++;
    }
    return NULL;
}

/* Subgraphs */

/* Whether a name is prefix, number, and, unless it is negative, a dot and a second number. */
static int is_numbered(const char *name, const char *prefix, uint32_t number, int64_t second)
{
    char numbers[2 * MOST_DIGITS + 2];
    char *end = write_number(numbers, number);
    if (second >= 0) {
        *end++ = '.';
        end = write_number(end, (uint32_t)second);
    }
    *end = 0;
    const size_t length = strlen(prefix);
    return name && strncmp(name, prefix, length) == 0 && strcmp(name + length, numbers) == 0;
}

static const npuc_elf_section *code_section(const npuc_file *f, const elf *e, uint64_t number, const char *prefix, uint32_t subgraph,
                                            int64_t core, uint64_t record)
{
    if (number < 1 || number >= f->section_count) return NULL;
    const npuc_elf_section *s = &f->sections[number];
    if (s->type != 1 || s->entry_size != record || s->offset % 8 || (record ? s->size % record : !s->size)) return NULL;
    return is_numbered(within_entry(section_name(f, e, (uint32_t)number), f->entry), prefix, subgraph, core) ? s : NULL;
}

/* The host operators of a CPU subgraph, which a file may do without: their section, or NULL. */
static const npuc_elf_section *find_host(const npuc_file *f, const elf *e, uint32_t subgraph)
{
    uint32_t low = f->first_host, high = f->first_host + f->host_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (host_number(f, e, middle) < subgraph) low = middle + 1;
        else high = middle;
    }
    return low < f->first_host + f->host_count && host_number(f, e, low) == subgraph ? &f->sections[low] : NULL;
}

static const char *check_conversions(const npuc_file *f, const npuc_file_subgraph *g)
{
    if (g->first > f->conversion_count || g->count > f->conversion_count - g->first) return "the conversions of a subgraph are not there";
    if (g->inputs != g->count || g->outputs != g->count) return "the inputs or outputs of a subgraph are not those of its conversions";
    for (uint32_t i = 0; i < g->count; i++) {
        const npuc_file_conversion *c = &f->conversions[g->first + i];
        if (c->source >= f->tensor_count || c->result >= f->tensor_count || c->rounding >= NPUC_FILE_ROUNDINGS || c->reserved)
            return "a subgraph has an impossible conversion";
        const npuc_file_tensor *one = &f->tensors[c->source], *other = &f->tensors[c->result];
        if (one->rank != other->rank || memcmp(one->shape, other->shape, sizeof one->shape) != 0)
            return "a subgraph converts between tensors of different shapes";
        if (f->lists[g->first_input + i] != c->source || f->lists[g->first_output + i] != c->result)
            return "the inputs or outputs of a subgraph are not those of its conversions";
    }
    return NULL;
}

static const char *check_subgraphs(npuc_file *f, const elf *e)
{
    opcodes known;
    prepare(&known);
    const npuc_file_header *h = f->header;
    if (!in_lists(f, h->first_input, h->inputs) || !in_lists(f, h->first_output, h->outputs))
        return "the inputs or outputs of the model are not in the lists";
    for (uint32_t k = 0; k < f->subgraph_count; k++) {
        const npuc_file_subgraph *g = &f->subgraphs[k];
        if (!string_exists(f, g->name)) return refuse(f, k, "a subgraph names a string that does not exist");
        if (!in_lists(f, g->first_input, g->inputs) || !in_lists(f, g->first_output, g->outputs))
            return refuse(f, k, "the inputs or outputs of a subgraph are not in the lists");
        if (g->kind == NPUC_SUBGRAPH_CPU && g->count == 1) {
            if (!code_section(f, e, g->first, "onnx.", k, -1, 0)) return refuse(f, k, "the model of a subgraph is not there");
            const npuc_elf_section *host = find_host(f, e, k);
            if (host && !code_section(f, e, (uint64_t)(host - f->sections), "host.", k, -1, 0))
                return refuse(f, k, "the host operators of a subgraph are damaged");
            continue;
        }
        if (g->kind == NPUC_SUBGRAPH_HOST) {
            const char *why = check_conversions(f, g);
            if (why) return refuse(f, k, why);
            continue;
        }
        if (g->kind == NPUC_SUBGRAPH_CHIP) return refuse(f, k, "a subgraph is the program of a chip, which its own runtime executes");
        if (g->kind != NPUC_SUBGRAPH_NPU || g->count < 1 || g->count > h->cores)
            return refuse(f, k, "a subgraph has an impossible kind or number of cores");
        uint64_t barriers[2][NPUC_QUEUES] = {{0}};
        for (uint32_t core = 0; core < g->count; core++) {
            const npuc_elf_section *s = code_section(f, e, (uint64_t)g->first + core, "text.", k, core, NPUC_RECORD);
            if (!s) return refuse(f, k, "the instructions of a subgraph are not there");
            uint64_t *met = barriers[core ? 1 : 0];
            memset(met, 0, sizeof barriers[0]);
            const char *why = check_stream(f, &known, f->bytes + s->offset, s->size / NPUC_RECORD, met);
            if (why) return why;
            if (memcmp(met, barriers[0], sizeof barriers[0]) != 0)
                return refuse(f, k, "the cores of a subgraph do not meet at the same barriers");
        }
    }
    return NULL;
}

static int is_listed(const npuc_file *f, uint32_t first, uint32_t count, uint32_t tensor)
{
    for (uint32_t i = 0; i < count; i++)
        if (f->lists[first + i] == tensor) return 1;
    return 0;
}

static const char *check_states(npuc_file *f)
{
    const npuc_file_header *h = f->header;
    /* Every state is compared with all of these, and there is no memory to sort them in. */
    if (f->state_count > NPUC_FILE_STATES) return "there are more states than a model may have";
    if (f->state_count && (uint64_t)h->inputs + h->outputs > NPUC_FILE_STREAM_TENSORS)
        return "a model with states has more inputs and outputs than it may have";
    for (uint32_t k = 0; k < f->state_count; k++) {
        const npuc_file_state *s = &f->states[k];
        if (s->input >= f->tensor_count || s->output >= f->tensor_count) return refuse(f, k, "a state names a tensor that does not exist");
        if (!is_listed(f, h->first_input, h->inputs, s->input) || !is_listed(f, h->first_output, h->outputs, s->output))
            return refuse(f, k, "a state is not an input and an output of the model");
        const npuc_file_tensor *x = &f->tensors[s->input], *y = &f->tensors[s->output];
        if (x->dtype != y->dtype || x->rank != y->rank || memcmp(x->shape, y->shape, sizeof x->shape) != 0 || x->scale != y->scale ||
            x->zero_point != y->zero_point)
            return refuse(f, k, "a state has different types as an input and as an output");
        for (uint32_t j = 0; j < k; j++)
            if (f->states[j].input == s->input) return refuse(f, k, "an input is two states");
    }
    return NULL;
}

static const char *check_allocations(npuc_file *f)
{
    for (uint32_t k = 0; k < f->allocation_count; k++) {
        const npuc_file_allocation *a = &f->allocations[k];
        uint64_t count;
        if (a->reserved || !npuc_file_stream(f, a->subgraph, a->core, &count))
            return refuse(f, k, "an allocation is of a core that has no instructions");
        if (a->size > f->header->local_bytes || a->address > f->header->local_bytes - a->size || a->first > a->last || a->last >= count)
            return refuse(f, k, "an allocation is outside local memory or outside its stream");
        if (!string_exists(f, a->name)) return refuse(f, k, "an allocation names a string that does not exist");
    }
    return NULL;
}

/* Entries */

static const char *find_entries(npuc_file *f, const elf *e)
{
    const npuc_elf_section *table = NULL;
    f->entry_names = f->strings;
    for (uint32_t k = 1; k < f->section_count; k++) {
        if (strcmp(section_name(f, e, k), ".npu.entries") != 0) continue;
        if (table) return refuse(f, k, "a section is there twice");
        table = &f->sections[k];
    }
    f->entry_count = 1;
    if (!table) return NULL;
    const uint64_t record = sizeof(npuc_file_entry);
    if (table->entry_size != record || table->size % record || table->offset % 8 || table->size < record ||
        table->size / record > NPUC_FILE_ENTRIES)
        return "the table of entries is damaged";
    f->entries = (const npuc_file_entry *)(f->bytes + table->offset);
    f->entry_count = (uint32_t)(table->size / record);
    for (uint32_t k = 0; k < f->entry_count; k++) {
        if (f->entries[k].reserved || !string_exists(f, f->entries[k].name) || !f->strings[f->entries[k].name])
            return refuse(f, k, "the table of entries is damaged");
        for (uint32_t j = 0; j < k; j++)
            if (strcmp(f->strings + f->entries[k].name, f->strings + f->entries[j].name) == 0)
                return refuse(f, k, "two entries have one name");
    }
    return NULL;
}

static const char *check_entry(npuc_file *file, const elf *e)
{
    const npuc_elf_section *found[NEEDED];
    const char *why = find_tables(file, e, found);
    if (!why) why = find_states(file, e);
    if (!why) why = find_hosts(file, e);
    if (!why) why = check_file_header(file, e->machine);
    if (!why) why = check_segments(file, e, found[WEIGHTS]);
    if (!why) why = check_tensors(file);
    if (!why) why = check_subgraphs(file, e);
    if (!why) why = check_states(file);
    if (!why) why = check_allocations(file);
    return why;
}

const char *npuc_file_open(const void *bytes, uint64_t size, npuc_file *file)
{
    const uint32_t one = 1;
    if (!file) return "there is no place for the result";
    memset(file, 0, sizeof *file);
    if (!bytes || (uintptr_t)bytes % 8 || *(const uint8_t *)&one != 1 || size > SIZE_MAX)
        return "its bytes are not at an address that is a multiple of 8, or this machine is not little-endian";
    file->bytes = bytes;
    file->size = size;
    elf e = {0};
    const char *why = check_header(file, &e);
    if (!why) why = check_sections(file, &e);
    if (!why) why = check_entry(file, &e);
    if (!why) why = find_entries(file, &e);
    if (why) return why;
    e.machine = file->header;
    for (uint32_t k = 1; k < file->entry_count; k++) {
        npuc_file entry = *file;
        entry.entry = k;
        why = check_entry(&entry, &e);
        if (why) return refuse(file, entry.failed_at, why);
    }
    return NULL;
}

const char *npuc_file_entry_name(const npuc_file *file, uint32_t entry)
{
    return entry < file->entry_count && file->entries ? file->entry_names + file->entries[entry].name : "";
}

const char *npuc_file_select(const npuc_file *file, uint32_t entry, npuc_file *selected)
{
    if (entry >= file->entry_count) return "there is no such entry";
    npuc_file chosen = *file;
    chosen.entry = entry;
    elf e = {.header = (const npuc_elf_header *)file->bytes};
    e.names = file->bytes + file->sections[e.header->names].offset;
    const npuc_elf_section *found[NEEDED];
    const char *why = find_tables(&chosen, &e, found);
    if (!why) why = find_states(&chosen, &e);
    if (!why) why = find_hosts(&chosen, &e);
    if (!why) *selected = chosen;
    return why;
}

const char *npuc_file_string(const npuc_file *file, uint32_t name) { return string_exists(file, name) ? file->strings + name : ""; }

const uint8_t *npuc_file_stream(const npuc_file *file, uint32_t subgraph, uint32_t core, uint64_t *count)
{
    *count = 0;
    if (subgraph >= file->subgraph_count || file->subgraphs[subgraph].kind != NPUC_SUBGRAPH_NPU || core >= file->subgraphs[subgraph].count)
        return NULL;
    const npuc_elf_section *section = &file->sections[file->subgraphs[subgraph].first + core];
    *count = section->size / NPUC_RECORD;
    return file->bytes + section->offset;
}

const uint8_t *npuc_file_model(const npuc_file *file, uint32_t subgraph, uint64_t *size)
{
    *size = 0;
    if (subgraph >= file->subgraph_count || file->subgraphs[subgraph].kind != NPUC_SUBGRAPH_CPU) return NULL;
    const npuc_elf_section *section = &file->sections[file->subgraphs[subgraph].first];
    *size = section->size;
    return file->bytes + section->offset;
}

const uint8_t *npuc_file_host(const npuc_file *file, uint32_t subgraph, uint64_t *size)
{
    *size = 0;
    if (subgraph >= file->subgraph_count || file->subgraphs[subgraph].kind != NPUC_SUBGRAPH_CPU) return NULL;
    elf e = {.header = (const npuc_elf_header *)file->bytes};
    e.names = file->bytes + file->sections[e.header->names].offset;
    const npuc_elf_section *section = find_host(file, &e, subgraph);
    if (!section) return NULL;
    *size = section->size;
    return file->bytes + section->offset;
}
