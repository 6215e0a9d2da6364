/*
 * The weight codec: docs/weight-compression.md.
 *
 * Weights of trained networks are spread around zero, so that a code by frequency takes a tenth to four fifths off them. What
 * follows one weight says little about the next; a machine whose decoder looks at neighbours has weight_contexts.c beside this. A table of code lengths in the order of values is smooth, and costs
 * about two bits a value. Where one value is most of all, runs of it have codes too, or each would take a bit at least. Codes are
 * at most 15 bits long and lie in the stream from the lowest bit of each byte up.
 */
#include "npuc/weights.h"

#include <string.h>

#include "weight_bits.h"
#include "weight_contexts.h"

enum { RAW = 0, CODED = 1, RUNS = 2, CONTEXTS = 3, HEAD_BYTES = 4, LONGEST = 15, FIRST_LENGTH = 6, LOOKUP_BITS = 11, LEAST_CONTEXTS = 64 };
/*
 * Symbols: the values of a byte, then runs of one of them. Run symbol k, counted from 1, has k bits behind its code, and stands
 * for 2^k values and as many more as those bits say.
 */
enum { VALUES = 256, RUN_SYMBOLS = 8, SYMBOLS = VALUES + RUN_SYMBOLS, SYMBOL_BITS = 9 };
#define LONGEST_RUN ((2 << RUN_SYMBOLS) - 1)

/* How the length of a code follows from the one before: as many ones as the number says, and a zero but for the last. */
enum { SAME, ONE_MORE, ONE_LESS, ABSENT, STATED };

/* ---- decoding ---- */

typedef struct codes {
    int32_t symbols;
    int32_t runs; /* of the value below; otherwise 0 */
    uint8_t value;
    uint16_t lookup[1 << LOOKUP_BITS]; /* length << SYMBOL_BITS | symbol; 0: the code is longer */
    uint16_t of_length[LONGEST + 1];
    uint16_t symbol[SYMBOLS]; /* by code */
} codes;

static int32_t read_step(npuc_bit_reader *r)
{
    for (int32_t step = SAME; step < STATED; step++) {
        const int32_t bit = npuc_take_bits(r, 1);
        if (bit <= 0) return bit < 0 ? -1 : step;
    }
    return STATED;
}

/* The lengths of all codes; 0: the symbol does not occur. Returns how many do, or -1. */
static int32_t read_lengths(npuc_bit_reader *r, codes *c, uint8_t *lengths)
{
    const int32_t first = npuc_take_bits(r, 8), count = npuc_take_bits(r, 8) + 1, value = c->runs ? npuc_take_bits(r, 8) : 0;
    int32_t length = FIRST_LENGTH, found = 0;
    if (first < 0 || count < 1 || value < 0) return -1;
    c->value = (uint8_t)value;
    memset(lengths, 0, SYMBOLS);
    for (int32_t i = 0; i < count + (c->runs ? RUN_SYMBOLS : 0); i++) {
        const int32_t step = read_step(r);
        if (step < 0) return -1;
        if (step == ABSENT) continue;
        if (step == ONE_MORE) length++;
        if (step == ONE_LESS) length--;
        if (step == STATED) length = npuc_take_bits(r, 4);
        if (length < 1 || length > LONGEST) return -1;
        lengths[i < count ? (first + i) & 255 : VALUES + i - count] = (uint8_t)length;
        found++;
    }
    return found;
}

static uint32_t reversed(uint32_t code, int32_t length)
{
    uint32_t made = 0;
    for (int32_t i = 0; i < length; i++) made |= (code >> i & 1) << (length - 1 - i);
    return made;
}

/* The first code of each length, and whether the lengths use up all codes. */
static int32_t first_codes(const uint8_t *lengths, uint16_t *of_length, uint32_t *first)
{
    uint32_t code = 0;
    memset(of_length, 0, (LONGEST + 1) * sizeof *of_length);
    for (int32_t s = 0; s < SYMBOLS; s++) of_length[lengths[s]]++;
    of_length[0] = 0;
    for (int32_t length = 1; length <= LONGEST; length++) {
        code = (code + of_length[length - 1]) << 1;
        first[length] = code;
    }
    return code + of_length[LONGEST] == 1u << LONGEST;
}

static int32_t read_codes(npuc_bit_reader *r, codes *c)
{
    uint8_t lengths[SYMBOLS];
    uint32_t first[LONGEST + 1], next = 0;
    c->symbols = read_lengths(r, c, lengths);
    if (c->symbols < 1) return 0;
    if (c->symbols == 1) { /* a value alone needs no code */
        while (!lengths[c->symbol[0] = (uint16_t)next]) next++;
        return next < VALUES;
    }
    if (!first_codes(lengths, c->of_length, first)) return 0;
    memset(c->lookup, 0, sizeof c->lookup);
    for (int32_t length = 1; length <= LONGEST; length++)
        for (int32_t s = 0; s < SYMBOLS; s++) {
            if (lengths[s] != length) continue;
            c->symbol[next++] = (uint16_t)s;
            if (length > LOOKUP_BITS) continue;
            for (uint32_t at = reversed(first[length]++, length); at < 1u << LOOKUP_BITS; at += 1u << length)
                c->lookup[at] = (uint16_t)(length << SYMBOL_BITS | s);
        }
    return 1;
}

/* The code at the front of the bits as length << SYMBOL_BITS | symbol. All codes are used, so that one always fits. */
static uint32_t find_code(const codes *c, uint64_t bits)
{
    const uint32_t known = c->lookup[bits & ((1 << LOOKUP_BITS) - 1)];
    if (known) return known;
    uint32_t code = 0, first = 0, index = 0, length = 1;
    for (;; length++, bits >>= 1) {
        const uint32_t here = c->of_length[length];
        code |= bits & 1;
        if (code - first < here || length == LONGEST) break;
        index += here;
        first = (first + here) << 1;
        code <<= 1;
    }
    index += code - first;
    return length << SYMBOL_BITS | c->symbol[index < SYMBOLS ? index : 0];
}

static void skip(npuc_bit_reader *r, uint32_t found)
{
    r->bits >>= found >> SYMBOL_BITS;
    r->count -= (int32_t)(found >> SYMBOL_BITS);
}

static uint64_t eight(const uint8_t *at)
{
    uint64_t value = 0;
    for (int32_t i = 0; i < 8; i++) value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static int32_t read_symbols(npuc_bit_reader *r, const codes *c, uint8_t *data, int64_t size)
{
    int64_t done = 0;
    /* Three codes of at most 15 bits at a time, while eight bytes can be read at once. */
    while (!c->runs && size - done >= 3 && r->end - r->at >= 8) {
        r->bits = (r->bits & (((uint64_t)1 << r->count) - 1)) | eight(r->at) << r->count;
        r->at += (63 - r->count) >> 3;
        r->count |= 56;
        for (int32_t i = 0; i < 3; i++) {
            const uint32_t found = find_code(c, r->bits);
            data[done++] = (uint8_t)found;
            skip(r, found);
        }
    }
    while (done < size) {
        npuc_fill_bits(r);
        const uint32_t found = find_code(c, r->bits), symbol = found & ((1 << SYMBOL_BITS) - 1);
        if ((int32_t)(found >> SYMBOL_BITS) > r->count) return 0;
        skip(r, found);
        if (symbol < VALUES) {
            data[done++] = (uint8_t)symbol;
            continue;
        }
        const int32_t order = (int32_t)symbol - VALUES + 1, more = npuc_take_bits(r, order);
        const int64_t run = ((int64_t)1 << order) + more;
        if (more < 0 || run > size - done) return 0;
        memset(data + done, c->value, (size_t)run);
        done += run;
    }
    return 1;
}

static const uint8_t *read_coded(const uint8_t *at, const uint8_t *end, int32_t runs, uint8_t *data, int64_t size)
{
    npuc_bit_reader r = {at, end, 0, 0};
    codes c;
    c.runs = runs;
    if (!read_codes(&r, &c)) return NULL;
    if (c.symbols == 1)
        memset(data, (uint8_t)c.symbol[0], (size_t)size);
    else if (!read_symbols(&r, &c, data, size))
        return NULL;
    return npuc_end_of_bits(&r);
}

npuc_status npuc_weights_decode(const uint8_t *stream, int64_t stored, uint8_t *data, int64_t size)
{
    if (stored < 0 || size < 0 || size > NPUC_WEIGHTS_LARGEST || (stored && !stream) || (size && !data)) return NPUC_BAD_ARGUMENT;
    const uint8_t *at = stream, *end = stored ? stream + stored : stream;
    int64_t done = 0;
    while (done < size) {
        if (end - at < HEAD_BYTES) return NPUC_BAD_ARGUMENT;
        const uint32_t head = (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        const int64_t length = head >> 2;
        at += HEAD_BYTES;
        if (length < 1 || length > size - done) return NPUC_BAD_ARGUMENT;
        if ((head & 3) == RAW) {
            if (end - at < length) return NPUC_BAD_ARGUMENT;
            memcpy(data + done, at, (size_t)length);
            at += length;
        } else {
            at = (head & 3) == CONTEXTS ? npuc_read_contexts(at, end, data + done, length)
                                        : read_coded(at, end, (head & 3) == RUNS, data + done, length);
            if (!at) return NPUC_BAD_ARGUMENT;
        }
        done += length;
    }
    return at == end ? NPUC_OK : NPUC_BAD_ARGUMENT;
}

/* ---- encoding; a runtime only decodes ---- */

#if !defined(NPUC_NO_HEAP)

/* The bits of a step, and how many. */
static const uint8_t STEP_BITS[] = {0, 1, 3, 7, 15}, STEP_LENGTH[] = {1, 2, 3, 4, 4};

/* Some neighbouring bytes, how often each value occurs, and what they come to. */
typedef struct part {
    int64_t begin, end;
    uint32_t count[VALUES];
    uint8_t lengths[SYMBOLS];
    uint8_t value; /* RUNS: of which */
    int64_t bytes; /* of its section */
    int32_t method;
} part;

static void tally(const uint8_t *data, int64_t size, uint32_t *count)
{
    uint32_t apart[4][256]; /* so that equal neighbours do not wait for each other */
    int64_t i = 0;
    memset(apart, 0, sizeof apart);
    for (; i + 4 <= size; i += 4)
        for (int32_t k = 0; k < 4; k++) apart[k][data[i + k]]++;
    for (; i < size; i++) apart[0][data[i]]++;
    for (int32_t s = 0; s < 256; s++) count[s] = apart[0][s] + apart[1][s] + apart[2][s] + apart[3][s];
}

/* Huffman's lengths: the two rarest become one, again and again. Values that occur come by frequency; ties by value. */
static int32_t huffman(const uint32_t *count, uint8_t *lengths)
{
    uint64_t leaf[SYMBOLS], weight[SYMBOLS];
    int32_t leaf_parent[SYMBOLS] = {0}, parent[SYMBOLS] = {0}, depth[SYMBOLS], leaves = 0, deepest = 0;
    for (int32_t s = 0; s < SYMBOLS; s++) {
        lengths[s] = 0;
        if (!count[s]) continue;
        const uint64_t key = (uint64_t)count[s] << SYMBOL_BITS | (uint64_t)s;
        int32_t at = leaves++;
        for (; at > 0 && leaf[at - 1] > key; at--) leaf[at] = leaf[at - 1];
        leaf[at] = key;
    }
    for (int32_t made = 0, l = 0, n = 0; made < leaves - 1; made++) { /* nodes are made by rising weight */
        weight[made] = 0;
        for (int32_t half = 0; half < 2; half++) {
            if (l < leaves && (n >= made || leaf[l] >> SYMBOL_BITS <= weight[n])) {
                weight[made] += leaf[l] >> SYMBOL_BITS;
                leaf_parent[l++] = made;
            } else {
                weight[made] += weight[n];
                parent[n++] = made;
            }
        }
    }
    for (int32_t n = leaves - 2; n >= 0; n--) depth[n] = n == leaves - 2 ? 0 : depth[parent[n]] + 1;
    for (int32_t l = 0; l < leaves; l++) {
        const int32_t length = leaves > 1 ? depth[leaf_parent[l]] + 1 : 1;
        lengths[leaf[l] & ((1 << SYMBOL_BITS) - 1)] = (uint8_t)length;
        if (length > deepest) deepest = length;
    }
    return deepest;
}

static int32_t step_of(int32_t length, int32_t before)
{
    if (!length) return ABSENT;
    if (length == before) return SAME;
    return length == before + 1 ? ONE_MORE : length == before - 1 ? ONE_LESS : STATED;
}

/* The length of entry i of a table. */
static int32_t entry(const uint8_t *lengths, npuc_span s, int32_t i)
{
    return lengths[i < s.count ? (s.first + i) & 255 : VALUES + i - s.count];
}

/* Bytes of a section without its head: the lengths of its codes, its table and its codes. */
static int64_t coded_bytes(const uint32_t *count, int32_t runs, uint8_t *lengths)
{
    uint32_t scaled[SYMBOLS];
    int64_t codes_bits = 0, bits = runs ? 24 : 16;
    int32_t symbols = 0, before = FIRST_LENGTH;
    memcpy(scaled, count, sizeof scaled);
    while (huffman(scaled, lengths) > LONGEST) /* flatter, until no code is too long */
        for (int32_t s = 0; s < SYMBOLS; s++) scaled[s] = (scaled[s] + 1) / 2;
    for (int32_t s = 0; s < SYMBOLS; s++) {
        symbols += count[s] > 0;
        codes_bits += (int64_t)count[s] * (lengths[s] + (s < VALUES ? 0 : s - VALUES + 1));
    }
    const npuc_span s = npuc_span_of(lengths, VALUES);
    for (int32_t i = 0; i < s.count + (runs ? RUN_SYMBOLS : 0); i++) {
        const int32_t length = entry(lengths, s, i), step = step_of(length, before);
        bits += STEP_LENGTH[step] + (step == STATED ? 4 : 0);
        if (length) before = length;
    }
    return (bits + (symbols > 1 ? codes_bits : 0) + 7) / 8;
}

/* Equal values from `at` on, as many as a symbol can stand for; *order is that of the symbol. */
static int64_t run_of(const uint8_t *data, int64_t at, int64_t end, int32_t *order)
{
    int64_t run = 1;
    while (run < LONGEST_RUN && at + run < end && data[at + run] == data[at]) run++;
    for (*order = 0; run >> (*order + 1);) ++*order;
    return run;
}

/* What the encoder of a block needs for sections with contexts: how many tables the decoder holds, and logarithms. */
typedef struct modelling {
    int32_t tables; /* 0: it knows none */
    npuc_logarithms logs;
} modelling;

/* The section with contexts, if it is the shortest. */
static void settle_contexts(part *p, const uint8_t *data, const modelling *m)
{
    npuc_context_plan plan;
    const int64_t size = p->end - p->begin;
    if (!m->tables || size < LEAST_CONTEXTS) return;
    const int64_t about = npuc_plan_contexts(&m->logs, data + p->begin, size, m->tables, &plan);
    if (!about || about - about / 256 >= p->bytes) return; /* the estimate is that close */
    const int64_t bytes = npuc_context_bytes(&plan, data + p->begin, size);
    if (bytes < p->bytes) p->method = CONTEXTS, p->bytes = bytes;
}

static void settle(part *p, const uint8_t *data, const modelling *m)
{
    const int64_t size = p->end - p->begin;
    uint32_t count[SYMBOLS] = {0}, most = 0;
    memcpy(count, p->count, sizeof p->count);
    p->method = RAW;
    p->bytes = size;
    const int64_t coded = coded_bytes(count, 0, p->lengths);
    if (coded < p->bytes) p->method = CODED, p->bytes = coded;
    for (int32_t s = 0; s < VALUES; s++)
        if (count[s] > most) most = count[s], p->value = (uint8_t)s;
    if ((int64_t)most > size / 2 && most < size) {
        uint8_t lengths[SYMBOLS];
        for (int64_t i = p->begin; i < p->end;) {
            if (data[i] != p->value) {
                i++;
                continue;
            }
            int32_t order;
            const int64_t run = run_of(data, i, p->end, &order);
            i += run;
            count[p->value] -= (uint32_t)run;
            count[order ? VALUES + order - 1 : p->value]++;
        }
        const int64_t with_runs = coded_bytes(count, 1, lengths);
        if (with_runs < p->bytes) {
            p->method = RUNS, p->bytes = with_runs;
            memcpy(p->lengths, lengths, sizeof lengths);
        }
    }
    settle_contexts(p, data, m);
    p->bytes += HEAD_BYTES;
}

static void write_table(npuc_bit_writer *w, const part *p)
{
    const npuc_span s = npuc_span_of(p->lengths, VALUES);
    const int32_t runs = p->method == RUNS;
    int32_t before = FIRST_LENGTH;
    npuc_put_bits(w, (uint32_t)s.first, 8);
    npuc_put_bits(w, (uint32_t)s.count - 1, 8);
    if (runs) npuc_put_bits(w, p->value, 8);
    for (int32_t i = 0; i < s.count + (runs ? RUN_SYMBOLS : 0); i++) {
        const int32_t length = entry(p->lengths, s, i), step = step_of(length, before);
        npuc_put_bits(w, STEP_BITS[step], STEP_LENGTH[step]);
        if (step == STATED) npuc_put_bits(w, (uint32_t)length, 4);
        if (length) before = length;
    }
}

static uint8_t *write_section(uint8_t *at, const part *p, const uint8_t *data, const modelling *m)
{
    const uint32_t head = (uint32_t)(p->end - p->begin) << 2 | (uint32_t)p->method;
    for (int32_t i = 0; i < HEAD_BYTES; i++) *at++ = (uint8_t)(head >> 8 * i);
    if (p->method == RAW) {
        memcpy(at, data + p->begin, (size_t)(p->end - p->begin));
        return at + (p->end - p->begin);
    }
    if (p->method == CONTEXTS) {
        npuc_context_plan plan; /* found again: plans are large */
        npuc_plan_contexts(&m->logs, data + p->begin, p->end - p->begin, m->tables, &plan);
        return npuc_write_contexts(&plan, data + p->begin, p->end - p->begin, p->bytes - HEAD_BYTES, at);
    }
    npuc_bit_writer w = {at, 0, 0};
    uint32_t first[LONGEST + 1], code[SYMBOLS] = {0};
    uint16_t of_length[LONGEST + 1];
    write_table(&w, p);
    if (first_codes(p->lengths, of_length, first)) { /* not so if there is but one value */
        for (int32_t s = 0; s < SYMBOLS; s++)
            if (p->lengths[s]) code[s] = reversed(first[p->lengths[s]]++, p->lengths[s]);
        for (int64_t i = p->begin, run = 1; i < p->end; i += run) {
            int32_t symbol = data[i], order = 0;
            if (p->method == RUNS && symbol == p->value) run = run_of(data, i, p->end, &order);
            if (order) symbol = VALUES + order - 1;
            npuc_put_bits(&w, code[symbol], p->lengths[symbol]);
            if (order) npuc_put_bits(&w, (uint32_t)(run - ((int64_t)1 << order)), order);
            if (!order) run = 1;
        }
    }
    return npuc_flush_bits(&w);
}

int64_t npuc_weights_encode(const uint8_t *data, int64_t size, const int64_t *ends, int32_t parts, uint8_t *stream, int64_t room)
{
    return npuc_weights_encode_contexts(data, size, ends, parts, 0, stream, room);
}

int64_t npuc_weights_encode_contexts(const uint8_t *data, int64_t size, const int64_t *ends, int32_t parts, int32_t tables,
                                     uint8_t *stream, int64_t room)
{
    part list[NPUC_WEIGHTS_PARTS], both;
    modelling m, without;
    int32_t count = 0;
    int64_t begin = 0, total = 0;
    if (!data || size < 1 || size > NPUC_WEIGHTS_LARGEST || !ends || parts < 1 || parts > NPUC_WEIGHTS_PARTS || ends[parts - 1] != size)
        return 0;
    if (tables < 0 || tables > NPUC_WEIGHT_TABLES) return 0;
    m.tables = tables;
    without.tables = 0;
    if (tables) npuc_make_logarithms(&m.logs);
    for (int32_t i = 0; i < parts; begin = ends[i++]) {
        if (ends[i] < begin || ends[i] > size) return 0;
        if (ends[i] == begin) continue;
        part *p = &list[count++];
        p->begin = begin;
        p->end = ends[i];
        tally(data + begin, ends[i] - begin, p->count);
        settle(p, data, &m);
        if (count == 1) continue;
        both = p[-1]; /* a table for two, or one each */
        both.end = p->end;
        for (int32_t s = 0; s < VALUES; s++) both.count[s] += p->count[s];
        settle(&both, data, p[-1].method == CONTEXTS && p->method == CONTEXTS ? &m : &without);
        if (both.bytes <= p[-1].bytes + p->bytes) list[--count - 1] = both;
    }
    for (int32_t i = 0; i < count; i++) total += list[i].bytes;
    if (total >= room) return 0;
    for (int32_t i = 0; i < count && stream; i++) stream = write_section(stream, &list[i], data, &m);
    return total;
}

#endif
