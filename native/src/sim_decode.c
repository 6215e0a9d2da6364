/*
 * From a record to the bytes that it touches.
 *
 * Sizes are 32 bits wide, so that their products can be anything: all arithmetic here saturates at NPUC_HUGE, which is
 * outside of every memory, and is refused when the accesses are held against the memories.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "custom.h"
#include "sim.h"
#include "sim_floats.h"
#include "sparse_weights.h"

static int64_t times(int64_t a, int64_t b)
{
    if (a <= 0 || b <= 0) return 0;
    return a > NPUC_HUGE / b ? NPUC_HUGE : a * b;
}

static int64_t product(int count, const int64_t *sizes)
{
    int64_t n = 1;
    for (int i = 0; i < count; i++) n = times(n, sizes[i]);
    return n;
}

const char *npuc_opcode_name(int32_t opcode)
{
    switch (opcode) {
#define NAME(name, opcode, queue)                                                                                                          \
    case opcode: return #name;
        NPUC_INSTRUCTIONS(NAME)
#undef NAME
    default: return "?";
    }
}

npuc_status npuc_sim_fail(npuc_sim_error *error, const char *format, ...)
{
    if (error) {
        va_list arguments;
        va_start(arguments, format);
        error->core = -1;
        error->instruction = -1;
        error->opcode = 0;
        vsnprintf(error->message, sizeof error->message, format, arguments);
        va_end(arguments);
    }
    return NPUC_BAD_ARGUMENT;
}

npuc_status npuc_sim_at(npuc_sim_error *error, npuc_status status, int32_t core, int64_t instruction, int32_t opcode)
{
    if (status && error && error->instruction < 0) {
        error->core = core;
        error->instruction = instruction;
        error->opcode = opcode;
    }
    return status;
}

int64_t npuc_sim_size(int32_t dtype)
{
    static const int8_t sizes[NPUC_SIM_TYPES] = {1, 1, 2, 4, 0, 4, 2, 2, 8, 0, 0};
    return dtype >= 0 && dtype < NPUC_SIM_TYPES ? sizes[dtype] : 0;
}

/* ---- accesses ---- */

/* Takes the last access of the list, as stated, into its shortest form. */
static npuc_status finish(npuc_decoded *d)
{
    npuc_access *a = &d->access[d->count - 1];
    int32_t kept = 0;
    if (a->run < 1) return npuc_sim_fail(d->error, "%s has no elements", a->what);
    for (int32_t i = 0; i < a->axes; i++) {
        const int64_t size = a->size[i], stride = a->stride[i];
        if (size < 1) return npuc_sim_fail(d->error, "%s has no elements", a->what);
        if (stride > NPUC_HUGE || stride < -NPUC_HUGE) return npuc_sim_fail(d->error, "a stride of %s is too large", a->what);
        if (size == 1) continue;
        if (stride == 0) {
            if (a->write) return npuc_sim_fail(d->error, "%s is written twice: a stride is 0", a->what);
            continue;
        }
        if (kept && a->stride[kept - 1] == times(size, stride)) {
            a->size[kept - 1] = times(a->size[kept - 1], size);
            a->stride[kept - 1] = stride;
        } else {
            a->size[kept] = size;
            a->stride[kept++] = stride;
        }
    }
    if (kept && a->stride[kept - 1] == a->run) a->run = times(a->run, a->size[--kept]);
    a->axes = kept;
    a->low = a->at;
    a->high = a->at + a->run;
    for (int32_t i = 0; i < kept; i++) {
        if (a->stride[i] > 0)
            a->high += times(a->size[i] - 1, a->stride[i]);
        else
            a->low -= times(a->size[i] - 1, -a->stride[i]);
    }
    a->bytes = times(a->run, product(kept, a->size));
    return NPUC_OK;
}

static npuc_access *next(npuc_decoded *d, const char *what, int write)
{
    npuc_access *a = &d->access[d->count++];
    *a = (npuc_access){.what = what, .space = NPUC_LOCAL, .write = write};
    return a;
}

/* The address of an operand that must be there, in units that its elements are aligned to. */
static npuc_status place(npuc_decoded *d, const char *what, uint32_t address, int64_t element)
{
    if (address == NPUC_NONE) return npuc_sim_fail(d->error, "%s is not there", what);
    if (element < 1) return npuc_sim_fail(d->error, "%s has a type that it cannot have", what);
    if (address % element) return npuc_sim_fail(d->error, "%s, at %u, is not aligned to its %d bytes", what, address, (int)element);
    return NPUC_OK;
}

static npuc_status dense(npuc_decoded *d, const char *what, uint32_t address, int64_t elements, int64_t element, int write)
{
    npuc_status status = place(d, what, address, element);
    if (status) return status;
    npuc_access *a = next(d, what, write);
    a->at = address;
    a->run = times(elements, element);
    a->in_place = 1;
    return finish(d);
}

/* Strides are in elements. */
static npuc_status strided(npuc_decoded *d, const char *what, uint32_t address, int axes, const uint32_t *size, const int32_t *stride,
                           int64_t element, int write)
{
    npuc_status status = place(d, what, address, element);
    if (status) return status;
    npuc_access *a = next(d, what, write);
    int64_t step = 1;
    a->at = address;
    a->run = element;
    a->axes = axes;
    a->in_place = 1;
    for (int i = axes - 1; i >= 0; i--) {
        a->size[i] = size[i];
        a->stride[i] = (int64_t)stride[i] * element;
        if (size[i] != 1 && stride[i] != step) a->in_place = 0;
        step = times(step, size[i]);
    }
    return finish(d);
}

/* Integer activations: i8, ui8 or i16. */
static int64_t integer(int32_t dtype) { return dtype >= NPUC_I8 && dtype <= NPUC_I16 ? npuc_sim_size(dtype) : 0; }

/* Activations: integers, bf16, f16 or f32. */
static int64_t activation(int32_t dtype) { return npuc_is_float(dtype) ? npuc_sim_size(dtype) : integer(dtype); }

/* Operands and result are integers, or all of one float type, whose output range is a relu or none. */
static npuc_status one_arithmetic(npuc_decoded *d, int32_t a, int32_t b, int32_t y, int32_t lo, int32_t hi)
{
    int32_t relu;
    float limit;
    if (!npuc_is_float(a) && !npuc_is_float(b) && !npuc_is_float(y)) return NPUC_OK;
    if (a != b || a != y) return npuc_sim_fail(d->error, "floats of one type and integers do not mix: types %d, %d and %d", a, b, y);
    if (!npuc_float_limits(lo, hi, &relu, &limit)) return npuc_sim_fail(d->error, "an output range of floats that is no relu");
    return NPUC_OK;
}

/* The same for an instruction without an output range. */
static npuc_status same_floats(npuc_decoded *d, int32_t x, int32_t y)
{
    if ((npuc_is_float(x) || npuc_is_float(y)) && x != y) return npuc_sim_fail(d->error, "x and y must have one type");
    return NPUC_OK;
}

/* The parameters of an output stage for `channels` channels (or any count, where it is 0). */
static npuc_status stage(npuc_decoded *d, int32_t kind, uint32_t count, uint32_t multiplier, uint32_t shift, uint32_t channels)
{
    npuc_status status = NPUC_OK;
    if (kind >= NPUC_REQUANT_KINDS) return npuc_sim_fail(d->error, "%d is no requantization kind", kind);
    if (count < 1 || count > INT32_MAX || (channels && count != 1 && count != channels))
        return npuc_sim_fail(d->error, "%u sets of requantization parameters for %u channels", count, channels);
    if (NPUC_HAS_MULTIPLIER(kind) || NPUC_HAS_SCALE(kind)) status = dense(d, "multiplier", multiplier, count, 4, 0);
    if (!status && NPUC_HAS_SHIFT(kind)) status = dense(d, "shift", shift, count, 4, 0);
    return status;
}

#define TRY(call)                                                                                                                          \
    do {                                                                                                                                   \
        npuc_status status_ = (call);                                                                                                      \
        if (status_) return status_;                                                                                                       \
    } while (0)

/* ---- instructions ---- */

static npuc_status transfer(npuc_decoded *d, const npuc_i_load *r, int store)
{
    if (r->local == NPUC_NONE) return npuc_sim_fail(d->error, "local is not there");
    if (r->offset > (uint64_t)NPUC_HUGE) return npuc_sim_fail(d->error, "offset is outside of the segment");
    npuc_access *far = next(d, "offset", store);
    far->space = r->segment;
    far->at = (int64_t)r->offset;
    far->run = r->size[3];
    far->axes = 3;
    for (int i = 0; i < 3; i++) far->size[i] = r->size[i], far->stride[i] = r->far_stride[i];
    if (!store && (r->head.flags & NPUC_COMPRESSED)) {
        if (r->segment || r->size[0] != 1 || r->size[1] != 1 || r->size[2] != 1 || r->stored >= r->size[3])
            return npuc_sim_fail(d->error, "decodes what is no compressed constant");
        far->run = r->stored;
    } else if (!store && r->stored) {
        return npuc_sim_fail(d->error, "stored is %u, and nothing is compressed", r->stored);
    }
    TRY(finish(d));
    npuc_access *near = next(d, "local", !store);
    near->at = r->local;
    near->run = r->size[3];
    near->axes = 3;
    for (int i = 0; i < 3; i++) near->size[i] = r->size[i], near->stride[i] = r->near_stride[i];
    return finish(d);
}

/* Packed images and weights: bytes, of which rows of channels are whole blocks. */
static npuc_status packed_operands(npuc_decoded *d, const npuc_i_conv *r)
{
    int32_t relu;
    float limit;
    const int64_t pixels[] = {r->n, r->h, r->w, npuc_block_bytes(r->x_dtype, r->c)};
    const int64_t weights[] = {r->out_c, r->kernel[0], r->kernel[1], npuc_block_bytes(r->x_dtype, r->c)};
    if (r->w_dtype != r->x_dtype || !npuc_is_float(r->y_dtype) || r->groups != 1 || r->transposed)
        return npuc_sim_fail(d->error, "blocks of one type make floats, in convolutions of one group");
    if (!npuc_float_limits(r->lo, r->hi, &relu, &limit)) return npuc_sim_fail(d->error, "an output range of floats that is no relu");
    TRY(dense(d, "x", r->x, product(4, pixels), 1, 0));
    return dense(d, "weight", r->weight, product(4, weights), 1, 0);
}

/* The values of sparse weights, and their positions behind them. */
static npuc_status sparse(npuc_decoded *d, const npuc_i_conv *r, int64_t weights)
{
    const int64_t stored = npuc_sparse_stored(r, weights), bits = NPUC_PACKED_BITS(r->w_dtype), element = bits ? 1 : activation(r->w_dtype);
    if (stored >= NPUC_HUGE / 32) return npuc_sim_fail(d->error, "weight has too many elements");
    const int64_t values = bits ? (stored * bits + 7) / 8 : stored * element;
    TRY(place(d, "weight", r->weight, element));
    return dense(d, "weight", r->weight, values + npuc_sparse_position_bytes(r, stored), 1, 0);
}

static npuc_status conv(npuc_decoded *d)
{
    const npuc_i_conv *r = &d->record.conv;
    const int64_t pixels[] = {r->n, r->h, r->w, r->c}, made[] = {r->n, r->out_h, r->out_w};
    const int32_t sums = r->table == NPUC_NONE ? r->y_dtype : r->s_dtype;
    const int64_t y_size = npuc_sim_size(r->y_dtype);
    if (r->groups < 1 || r->c % r->groups || r->out_c % r->groups)
        return npuc_sim_fail(d->error, "%u and %u channels do not divide into %u groups", r->c, r->out_c, r->groups);
    if (r->wide > 1 || r->transposed > 1) return npuc_sim_fail(d->error, "wide and transposed are 0 or 1");
    if (r->y_stride < r->out_c) return npuc_sim_fail(d->error, "y_stride %u is less than out_c %u", r->y_stride, r->out_c);
    const int block = npuc_is_block(r->x_dtype);
    if (!block) TRY(one_arithmetic(d, r->x_dtype, r->w_dtype, r->y_dtype, r->lo, r->hi));
    if (!npuc_is_float(r->y_dtype) && (r->y_dtype > NPUC_I32 || sums > NPUC_I32))
        return npuc_sim_fail(d->error, "a type of y that it cannot have");
    const int real = block || npuc_is_float(r->x_dtype);
    if (real && (r->wide || r->table != NPUC_NONE || r->x_zero_point || r->w_zero_point))
        return npuc_sim_fail(d->error, "floats have no zero points, no wide sums and no table behind them");
    if (block)
        TRY(packed_operands(d, r));
    else
        TRY(dense(d, "x", r->x, product(4, pixels), activation(r->x_dtype), 0));
    const int64_t counts[] = {r->out_c, r->c / r->groups, r->kernel[0], r->kernel[1]};
    const int64_t weights = product(4, counts);
    const int64_t bits = NPUC_PACKED_BITS(r->w_dtype);
    const char *fault = npuc_sparse_fault(r);
    if (fault) return npuc_sim_fail(d->error, "%s", fault);
    if (r->sparse_m)
        TRY(sparse(d, r, weights));
    else if (bits)
        TRY(dense(d, "weight", r->weight, weights < NPUC_HUGE / 16 ? (weights * bits + 7) / 8 : NPUC_HUGE, 1, 0));
    else if (!block)
        TRY(dense(d, "weight", r->weight, weights, activation(r->w_dtype), 0));
    if (r->bias != NPUC_NONE) TRY(dense(d, "bias", r->bias, r->out_c, r->wide ? 8 : 4, 0));
    if (!real) TRY(stage(d, r->kind, r->count, r->multiplier, r->shift, r->out_c));
    if (r->table != NPUC_NONE) {
        const int words = sums == NPUC_I16;
        if (sums == NPUC_I32 || !integer(r->y_dtype) || (words && r->y_dtype != NPUC_I16))
            return npuc_sim_fail(d->error, "no table goes from type %d to type %d", sums, r->y_dtype);
        TRY(dense(d, "table", r->table, words ? 513 : 256, y_size, 0));
    }
    TRY(place(d, "y", r->y, y_size));
    npuc_access *y = next(d, "y", 1);
    y->at = r->y;
    y->run = times(r->out_c, y_size);
    y->axes = 1;
    y->size[0] = product(3, made);
    y->stride[0] = r->y_stride * y_size;
    return finish(d);
}

static npuc_status matmul(npuc_decoded *d)
{
    const npuc_i_matmul *r = &d->record.matmul;
    const int64_t a_size = activation(r->x_dtype), b_size = activation(r->b_dtype), y_size = npuc_sim_size(r->y_dtype);
    const int64_t made[] = {r->batch, r->m, r->cols};
    if (r->wide > 1 || r->transposed_b > 1) return npuc_sim_fail(d->error, "wide and transposed_b are 0 or 1");
    TRY(one_arithmetic(d, r->x_dtype, r->b_dtype, r->y_dtype, r->lo, r->hi));
    if (!npuc_is_float(r->y_dtype) && r->y_dtype > NPUC_I32) return npuc_sim_fail(d->error, "a type of y that it cannot have");
    TRY(place(d, "x", r->x, a_size));
    npuc_access *a = next(d, "x", 0);
    *a = (npuc_access){.what = "x",
                       .space = NPUC_LOCAL,
                       .at = r->x,
                       .run = times(times(r->m, r->k), a_size),
                       .axes = 1,
                       .size = {r->batch},
                       .stride = {r->a_step * a_size}};
    TRY(finish(d));
    TRY(place(d, "b", r->b, b_size));
    npuc_access *b = next(d, "b", 0);
    *b = (npuc_access){.what = "b",
                       .space = NPUC_LOCAL,
                       .at = r->b,
                       .run = times(times(r->k, r->cols), b_size),
                       .axes = 1,
                       .size = {r->batch},
                       .stride = {r->b_step * b_size}};
    TRY(finish(d));
    if (!npuc_is_float(r->x_dtype)) TRY(stage(d, r->kind, r->count, r->multiplier, r->shift, r->cols));
    return dense(d, "y", r->y, product(3, made), y_size, 1);
}

/* Bytes of the constants of a recurrent layer, in the order of docs/arithmetic-recurrent.md. */
int64_t npuc_recurrent_constants(const npuc_i_recurrent *r)
{
    const int64_t rows = times(r->gates, r->hidden), tables = r->gates == 4 ? 3 : r->gates == 3 ? 2 : 1;
    const int64_t width = r->projected ? r->projected : r->hidden;
    int64_t weights = times(rows, (int64_t)r->inputs + width) + times(r->projected, r->hidden);
    if (weights > NPUC_HUGE) weights = NPUC_HUGE;
    int64_t bytes = times(rows, 8 + 3 * 4) + times(tables, 513 * 2);
    if (r->linear_before_reset) bytes += times(r->hidden, 8);
    if (r->peephole) bytes += times(r->hidden, 3 * (4 + 2));
    bytes += times(r->projected, 2 * 4);
    const int64_t bits = NPUC_PACKED_BITS(r->w_dtype);
    bytes += bits ? (times(weights, bits) + 7) / 8 : times(weights, npuc_sim_size(r->w_dtype));
    return bytes < NPUC_HUGE ? bytes : NPUC_HUGE;
}

static npuc_status recurrent(npuc_decoded *d)
{
    const npuc_i_recurrent *r = &d->record.recurrent;
    const int64_t given[] = {r->steps, r->batch, r->inputs}, units = times(r->batch, r->hidden), h_size = integer(r->y_dtype);
    const int64_t outputs = times(r->batch, r->projected ? r->projected : r->hidden);
    const int lstm = r->gates == 4, gru = r->gates == 3;
    if (!lstm && !gru && r->gates != 1) return npuc_sim_fail(d->error, "a recurrent layer of %d gates", r->gates);
    if (r->reverse > 1 || r->linear_before_reset > gru || r->coupled > lstm || r->peephole > lstm || (r->projected && !lstm))
        return npuc_sim_fail(d->error, "a flag that its kind of layer does not have");
    if (!NPUC_PACKED_BITS(r->w_dtype) && r->w_dtype != NPUC_I8 && r->w_dtype != NPUC_I16)
        return npuc_sim_fail(d->error, "weights are signed integers of 2 to 16 bits");
    if (r->y_stride < outputs) return npuc_sim_fail(d->error, "y_stride %u is less than a step", r->y_stride);
    if ((gru && r->first_h != NPUC_NONE) || (r->gates == 1 && (r->first_state != NPUC_NONE || r->last_state != NPUC_NONE)))
        return npuc_sim_fail(d->error, "a state that its kind of layer does not have");
    TRY(dense(d, "x", r->x, product(3, given), integer(r->x_dtype), 0));
    TRY(place(d, "constants", r->constants, 8));
    TRY(dense(d, "constants", r->constants, npuc_recurrent_constants(r), 1, 0));
    if (r->first_h != NPUC_NONE) TRY(dense(d, "first_h", r->first_h, outputs, h_size, 0));
    if (r->first_state != NPUC_NONE) TRY(dense(d, "first_state", r->first_state, units, 2, 0));
    if (r->last_h != NPUC_NONE) TRY(dense(d, "last_h", r->last_h, outputs, h_size, 1));
    if (r->last_state != NPUC_NONE) TRY(dense(d, "last_state", r->last_state, units, 2, 1));
    TRY(place(d, "y", r->y, h_size));
    npuc_access *y = next(d, "y", 1);
    y->at = r->y;
    y->run = times(outputs, h_size);
    y->axes = 1;
    y->size[0] = r->steps;
    y->stride[0] = r->y_stride * h_size;
    return finish(d);
}

/* Bytes of the constants of a quantized LSTM, in the order of docs/arithmetic-recurrent.md. */
int64_t npuc_quantized_lstm_constants(const npuc_i_quantized_lstm *r)
{
    const int64_t gates = r->coupled ? 3 : 4, rows = times(gates, r->cells), outputs = r->projected ? r->outputs : 0;
    int64_t bytes = 4 * (4 * gates + 3) + times(rows, 2 * 4);
    if (r->peephole_rows) bytes += 4 * 2 * (gates - 1);
    if (r->norm) bytes += 4 * 3 * gates + times(rows, 4 + 2);
    if (r->projected) bytes += 4 * 4 + times(outputs, 4);
    bytes += times(times(times(gates - 1, r->peephole_rows), r->cells), 2);
    bytes += times(rows, (int64_t)r->inputs + r->outputs) + times(outputs, r->cells);
    return bytes < NPUC_HUGE ? bytes : NPUC_HUGE;
}

static npuc_status quantized_lstm(npuc_decoded *d)
{
    const npuc_i_quantized_lstm *r = &d->record.quantized_lstm;
    if (r->coupled > 1 || r->norm > 1 || r->projected > 1) return npuc_sim_fail(d->error, "a flag that is neither 0 nor 1");
    if (!r->projected && r->outputs != r->cells)
        return npuc_sim_fail(d->error, "%u outputs of %u cells, without a projection", r->outputs, r->cells);
    if (r->peephole_rows > 1 && r->peephole_rows != r->batch)
        return npuc_sim_fail(d->error, "peepholes of %u samples in a batch of %u", r->peephole_rows, r->batch);
    TRY(place(d, "constants", r->constants, 4));
    TRY(dense(d, "constants", r->constants, npuc_quantized_lstm_constants(r), 1, 0));
    TRY(place(d, "x", r->x, 1));
    npuc_access *x = next(d, "x", 0);
    x->at = r->x, x->run = r->inputs, x->axes = 2;
    x->size[0] = r->steps, x->stride[0] = r->x_step, x->size[1] = r->batch, x->stride[1] = r->x_sample;
    TRY(finish(d));
    TRY(place(d, "y", r->y, 1));
    npuc_access *y = next(d, "y", 1);
    y->at = r->y, y->run = r->outputs, y->axes = 2;
    y->size[0] = r->steps, y->stride[0] = r->y_step, y->size[1] = r->batch, y->stride[1] = r->y_sample;
    return finish(d);
}

static int64_t element(npuc_decoded *d, int32_t bytes)
{
    if (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8) return bytes;
    npuc_sim_fail(d->error, "an element of %d bytes", bytes);
    return 0;
}

static npuc_status copy(npuc_decoded *d)
{
    const npuc_i_copy *r = &d->record.copy;
    const int64_t size = element(d, r->bytes);
    if (!size) return NPUC_BAD_ARGUMENT;
    TRY(strided(d, "x", r->x, 6, r->size, r->x_stride, size, 0));
    return strided(d, "y", r->y, 6, r->size, r->y_stride, size, 1);
}

static npuc_status fill(npuc_decoded *d)
{
    const npuc_i_fill *r = &d->record.fill;
    const int64_t size = element(d, r->bytes);
    return size ? dense(d, "y", r->y, r->count, size, 1) : NPUC_BAD_ARGUMENT;
}

static npuc_status gather(npuc_decoded *d)
{
    const npuc_i_gather *r = &d->record.gather;
    const int64_t size = element(d, r->bytes);
    const int64_t from[] = {r->outer, r->x_size, r->inner}, to[] = {r->outer, r->y_size, r->inner};
    if (!size) return NPUC_BAD_ARGUMENT;
    TRY(dense(d, "x", r->x, product(3, from), size, 0));
    TRY(dense(d, "index", r->index, r->y_size, 4, 0));
    return dense(d, "y", r->y, product(3, to), size, 1);
}

/* The three operands of add, mul and minmax. */
static npuc_status two(npuc_decoded *d, uint32_t a, int32_t a_dtype, uint32_t b, int32_t b_dtype, const uint32_t *size,
                       const int32_t *a_stride, const int32_t *b_stride, uint32_t y, int32_t y_dtype)
{
    const int64_t made[] = {size[0], size[1], size[2], size[3]};
    TRY(strided(d, "x", a, 4, size, a_stride, activation(a_dtype), 0));
    TRY(strided(d, "b", b, 4, size, b_stride, activation(b_dtype), 0));
    return dense(d, "y", y, product(4, made), activation(y_dtype), 1);
}

static npuc_status add(npuc_decoded *d)
{
    const npuc_i_add *r = &d->record.add;
    if (r->subtract > 1) return npuc_sim_fail(d->error, "subtract is 0 or 1");
    TRY(one_arithmetic(d, r->x_dtype, r->b_dtype, r->y_dtype, r->lo, r->hi));
    return two(d, r->x, r->x_dtype, r->b, r->b_dtype, r->size, r->a_stride, r->b_stride, r->y, r->y_dtype);
}

static npuc_status mul(npuc_decoded *d)
{
    const npuc_i_mul *r = &d->record.mul;
    TRY(one_arithmetic(d, r->x_dtype, r->b_dtype, r->y_dtype, r->lo, r->hi));
    if (!npuc_is_float(r->x_dtype)) TRY(stage(d, r->kind, r->count, r->multiplier, r->shift, 1));
    return two(d, r->x, r->x_dtype, r->b, r->b_dtype, r->size, r->a_stride, r->b_stride, r->y, r->y_dtype);
}

static npuc_status requant(npuc_decoded *d)
{
    const npuc_i_requant *r = &d->record.requant;
    const int64_t x_size = r->x_dtype == NPUC_I32 ? 4 : integer(r->x_dtype);
    TRY(stage(d, r->kind, r->count, r->multiplier, r->shift, 1));
    TRY(dense(d, "x", r->x, r->elements, x_size, 0));
    return dense(d, "y", r->y, r->elements, integer(r->y_dtype), 1);
}

static npuc_status table(npuc_decoded *d)
{
    const npuc_i_table *r = &d->record.table;
    const int64_t sizes[] = {r->outer, r->channels, r->inner};
    const int words = r->x_dtype == NPUC_I16;
    if (r->segments && (!integer(r->x_dtype) || r->segments >= (words ? 16 : 8) || r->channels != 1))
        return npuc_sim_fail(d->error, "no table of type %d has 2^%d segments", r->x_dtype, r->segments);
    const int64_t entries = r->segments ? ((int64_t)1 << r->segments) + 1 : npuc_is_float(r->x_dtype) ? 1 << 16 : words ? 513 : 256;
    if (words && r->y_dtype != NPUC_I16) return npuc_sim_fail(d->error, "a table of 16 bits gives 16 bits");
    TRY(same_floats(d, r->x_dtype, r->y_dtype));
    if (npuc_is_float(r->x_dtype) && r->channels != 1) return npuc_sim_fail(d->error, "floats have one table");
    if ((r->x_dtype == NPUC_F32) != (r->pieces != 0)) return npuc_sim_fail(d->error, "f32 has a table of pieces, and nothing else has");
    if (r->pieces) {
        const int64_t numbers = NPUC_PIECEWISE_WORDS / 2 + times(r->pieces, NPUC_PIECE); /* of eight bytes */
        TRY(dense(d, "x", r->x, product(3, sizes), 4, 0));
        TRY(dense(d, "table", r->table, numbers, 8, 0));
        return dense(d, "y", r->y, product(3, sizes), 4, 1);
    }
    TRY(dense(d, "x", r->x, product(3, sizes), activation(r->x_dtype), 0));
    TRY(dense(d, "table", r->table, times(r->channels, entries), activation(r->y_dtype), 0));
    return dense(d, "y", r->y, product(3, sizes), activation(r->y_dtype), 1);
}

static npuc_status cast(npuc_decoded *d)
{
    const npuc_i_cast *r = &d->record.cast;
    const int from_integer = integer(r->x_dtype) > 0, to_integer = integer(r->y_dtype) > 0;
    if (r->x_dtype == r->y_dtype || (from_integer && to_integer))
        return npuc_sim_fail(d->error, "no cast goes from type %d to type %d", r->x_dtype, r->y_dtype);
    TRY(dense(d, "x", r->x, r->elements, activation(r->x_dtype), 0));
    if (npuc_is_block(r->y_dtype)) {
        if (!npuc_is_float(r->x_dtype) || r->lo < 1 || r->elements % (uint32_t)r->lo)
            return npuc_sim_fail(d->error, "%u elements are no rows of %d to be packed", r->elements, r->lo);
        return dense(d, "y", r->y, times(r->elements / (uint32_t)r->lo, npuc_block_bytes(r->y_dtype, r->lo)), 1, 1);
    }
    return dense(d, "y", r->y, r->elements, activation(r->y_dtype), 1);
}

static npuc_status minmax(npuc_decoded *d)
{
    const npuc_i_minmax *r = &d->record.minmax;
    if (r->y_dtype != r->x_dtype) return npuc_sim_fail(d->error, "x and y must have one type");
    if (r->larger > 1) return npuc_sim_fail(d->error, "larger is 0 or 1");
    return two(d, r->x, r->x_dtype, r->b, r->x_dtype, r->size, r->a_stride, r->b_stride, r->y, r->y_dtype);
}

static npuc_status max_pool(npuc_decoded *d)
{
    const npuc_i_max_pool *r = &d->record.max_pool;
    const int64_t from[] = {r->n, r->h, r->w, r->c}, to[] = {r->n, r->out_h, r->out_w, r->c};
    if (r->y_dtype != r->x_dtype) return npuc_sim_fail(d->error, "x and y must have one type");
    TRY(dense(d, "x", r->x, product(4, from), activation(r->x_dtype), 0));
    return dense(d, "y", r->y, product(4, to), activation(r->y_dtype), 1);
}

static npuc_status avg_pool(npuc_decoded *d)
{
    const npuc_i_avg_pool *r = &d->record.avg_pool;
    const int64_t from[] = {r->n, r->h, r->w, r->c}, to[] = {r->n, r->out_h, r->out_w, r->c};
    if (r->include_pad > 1) return npuc_sim_fail(d->error, "include_pad is 0 or 1");
    TRY(same_floats(d, r->x_dtype, r->y_dtype));
    TRY(dense(d, "x", r->x, product(4, from), activation(r->x_dtype), 0));
    if (!npuc_is_float(r->x_dtype) && r->kind != NPUC_DOUBLE_ROUNDING) TRY(stage(d, r->kind, r->count, r->multiplier, r->shift, 0));
    return dense(d, "y", r->y, product(4, to), activation(r->y_dtype), 1);
}

static npuc_status reduce(npuc_decoded *d)
{
    const npuc_i_reduce *r = &d->record.reduce;
    const int64_t from[] = {r->outer, r->reduced, r->inner}, to[] = {r->outer, r->inner};
    int64_t y_size = activation(r->y_dtype);
    const int real = npuc_is_float(r->x_dtype), is_place = r->mode == NPUC_REDUCE_ARGMAX || r->mode == NPUC_REDUCE_ARGMIN;
    if (r->mode > (real ? NPUC_REDUCE_MEAN : NPUC_REDUCE_ARGMIN) || r->last > 1)
        return npuc_sim_fail(d->error, "mode is 0 to 4, or 5 of floats, and last 0 or 1");
    TRY(dense(d, "x", r->x, product(3, from), activation(r->x_dtype), 0));
    if (r->mode == NPUC_REDUCE_SUM && !real) TRY(stage(d, r->kind, r->count, r->multiplier, r->shift, 1));
    if (is_place && r->x_dtype == NPUC_F32) return npuc_sim_fail(d->error, "no place of an extreme of f32");
    if (is_place)
        y_size = r->y_dtype == NPUC_I32 ? 4 : r->y_dtype == 8 ? 8 : 0;
    else if ((r->mode != NPUC_REDUCE_SUM || real || npuc_is_float(r->y_dtype)) && r->y_dtype != r->x_dtype)
        return npuc_sim_fail(d->error, "x and y must have one type");
    return dense(d, "y", r->y, product(2, to), y_size, 1);
}

static npuc_status topk(npuc_decoded *d)
{
    const npuc_i_topk *r = &d->record.topk;
    const int64_t from[] = {r->outer, r->reduced, r->inner}, to[] = {r->outer, r->k, r->inner};
    int64_t y_size = activation(r->y_dtype);
    if (r->places > 1 || r->largest > 1) return npuc_sim_fail(d->error, "places and largest are 0 or 1");
    if (npuc_is_narrow(r->x_dtype)) return npuc_sim_fail(d->error, "x is of integers");
    if (!r->k || r->k > r->reduced) return npuc_sim_fail(d->error, "k is 1 to reduced");
    TRY(dense(d, "x", r->x, product(3, from), activation(r->x_dtype), 0));
    if (r->places)
        y_size = r->y_dtype == NPUC_I32 ? 4 : r->y_dtype == 8 ? 8 : 0;
    else if (r->y_dtype != r->x_dtype)
        return npuc_sim_fail(d->error, "x and y must have one type");
    return dense(d, "y", r->y, product(3, to), y_size, 1);
}

static npuc_status softmax(npuc_decoded *d)
{
    const npuc_i_softmax *r = &d->record.softmax;
    const int64_t elements = times(r->rows, r->width);
    if (r->form > NPUC_SOFTMAX_FLOAT) return npuc_sim_fail(d->error, "form is 0, 1, 2 or 3");
    TRY(same_floats(d, r->x_dtype, r->y_dtype));
    if ((r->form == NPUC_SOFTMAX_FLOAT) != npuc_is_float(r->x_dtype)) return npuc_sim_fail(d->error, "form 3 is of floats");
    if (r->form == 2 && (r->x_dtype != NPUC_I16 || r->y_dtype != NPUC_I16)) return npuc_sim_fail(d->error, "form 2 is of 16 bits");
    TRY(dense(d, "x", r->x, elements, activation(r->x_dtype), 0));
    if (r->form == 0) {
        TRY(dense(d, "coarse", r->coarse, 256, 4, 0));
        TRY(dense(d, "fine", r->fine, 256, 4, 0));
    } else if (r->form == 2) {
        TRY(dense(d, "coarse", r->coarse, 513, 2, 0));
        TRY(dense(d, "fine", r->fine, 513, 2, 0));
    }
    return dense(d, "y", r->y, elements, activation(r->y_dtype), 1);
}

static npuc_status norm(npuc_decoded *d)
{
    const npuc_i_norm *r = &d->record.norm;
    const int64_t elements = times(r->rows, r->width);
    const int real = npuc_is_float(r->x_dtype);
    if (r->form > NPUC_NORM_SUM || r->center > 1) return npuc_sim_fail(d->error, "form is 0 to 3 and center 0 or 1");
    TRY(same_floats(d, r->x_dtype, r->y_dtype));
    if ((r->form >= NPUC_NORM_MEAN) != real) return npuc_sim_fail(d->error, "forms 2 and 3 are of floats");
    if (r->form == 1 && (r->x_dtype > NPUC_U8 || r->y_dtype != r->x_dtype))
        return npuc_sim_fail(d->error, "form 1 is of 8 bits, and of one type");
    TRY(dense(d, "x", r->x, elements, activation(r->x_dtype), 0));
    if (r->form != 1) {
        TRY(dense(d, "gain", r->gain, r->entries, 4, 0));
        TRY(dense(d, "bias", r->bias, r->entries, real ? 4 : 8, 0));
    }
    return dense(d, "y", r->y, elements, activation(r->y_dtype), 1);
}

static npuc_status resize(npuc_decoded *d)
{
    const npuc_i_resize *r = &d->record.resize;
    const int64_t from[] = {r->n, r->h, r->w, r->c}, to[] = {r->n, r->out_h, r->out_w, r->c};
    if (r->y_dtype != r->x_dtype) return npuc_sim_fail(d->error, "x and y must have one type");
    TRY(dense(d, "x", r->x, product(4, from), integer(r->x_dtype), 0));
    TRY(dense(d, "rows", r->rows, times(3, r->out_h), 4, 0));
    TRY(dense(d, "columns", r->columns, times(3, r->out_w), 4, 0));
    return dense(d, "y", r->y, product(4, to), activation(r->y_dtype), 1);
}

static npuc_status custom(npuc_decoded *d)
{
    const npuc_i_custom *r = &d->record.custom;
    const int64_t size = element(d, r->bytes);
    if (!size) return NPUC_BAD_ARGUMENT;
    if (!npuc_kernel_name_valid(r->kernel)) return npuc_sim_fail(d->error, "the name of its kernel is none");
    if (r->x_bytes % size || r->b_bytes % size || r->y_bytes % size)
        return npuc_sim_fail(d->error, "an operand is not made of elements of %d bytes", (int)size);
    if ((r->b == NPUC_NONE) != (r->b_bytes == 0) || (r->constants == NPUC_NONE) != (r->constant_bytes == 0))
        return npuc_sim_fail(d->error, "an operand that is not there has a size");
    TRY(dense(d, "x", r->x, r->x_bytes / size, size, 0));
    if (r->b != NPUC_NONE) TRY(dense(d, "b", r->b, r->b_bytes / size, size, 0));
    if (r->constants != NPUC_NONE) {
        if (r->constants % 16) return npuc_sim_fail(d->error, "constants, at %u, are not aligned to 16 bytes", r->constants);
        TRY(dense(d, "constants", r->constants, r->constant_bytes, 1, 0));
    }
    return dense(d, "y", r->y, r->y_bytes / size, size, 1);
}

/* What the kernel is told, and behind that its constants. */
static npuc_status told(npuc_decoded *d, uint32_t address, uint32_t bytes)
{
    if (bytes < NPU_KERNEL_PARAMETERS * 4) return npuc_sim_fail(d->error, "constants have no room for what the kernel is told");
    if (address % 16) return npuc_sim_fail(d->error, "constants, at %u, are not aligned to 16 bytes", address);
    return dense(d, "constants", address, bytes, 1, 0);
}

static npuc_status workspace(npuc_decoded *d, const char *what, uint32_t address, uint32_t bytes)
{
    if (address % 16) return npuc_sim_fail(d->error, "%s, at %u, is not aligned to 16 bytes", what, address);
    return dense(d, what, address, bytes, 1, 1);
}

static npuc_status custom_local(npuc_decoded *d)
{
    const npuc_i_custom_local *r = &d->record.custom_local;
    const int64_t size = element(d, r->bytes);
    if (!size) return NPUC_BAD_ARGUMENT;
    if (!npuc_kernel_name_valid(r->kernel)) return npuc_sim_fail(d->error, "the name of its kernel is none");
    if (r->x_bytes % size || r->b_bytes % size || r->y_bytes % size)
        return npuc_sim_fail(d->error, "an operand is not made of elements of %d bytes", (int)size);
    if ((r->b == NPUC_NONE) != (r->b_bytes == 0)) return npuc_sim_fail(d->error, "an operand that is not there has a size");
    TRY(dense(d, "x", r->x, r->x_bytes / size, size, 0));
    if (r->b != NPUC_NONE) TRY(dense(d, "b", r->b, r->b_bytes / size, size, 0));
    TRY(told(d, r->constants, r->constant_bytes));
    TRY(workspace(d, "workspace", r->workspace, r->workspace_bytes));
    return dense(d, "y", r->y, r->y_bytes / size, size, 1);
}

/* A dense block of DRAM or of the shared memory. */
static npuc_status far_block(npuc_decoded *d, const char *what, int32_t segment, uint64_t at, uint64_t bytes, int64_t element, int write)
{
    if (at > (uint64_t)NPUC_HUGE || bytes > (uint64_t)NPUC_HUGE) return npuc_sim_fail(d->error, "%s is outside of its segment", what);
    if ((int64_t)at % element) return npuc_sim_fail(d->error, "%s, at %lld, is not aligned to %d bytes", what, (long long)at, (int)element);
    npuc_access *a = next(d, what, write);
    a->space = segment;
    a->at = (int64_t)at;
    a->run = (int64_t)bytes;
    return finish(d);
}

static npuc_status custom_global(npuc_decoded *d)
{
    const npuc_i_custom_global *r = &d->record.custom_global;
    const int64_t size = element(d, r->bytes);
    if (!size) return NPUC_BAD_ARGUMENT;
    if (!npuc_kernel_name_valid(r->kernel)) return npuc_sim_fail(d->error, "the name of its kernel is none");
    if (r->x_bytes % (uint64_t)size || r->b_bytes % (uint64_t)size || r->y_bytes % (uint64_t)size)
        return npuc_sim_fail(d->error, "an operand is not made of elements of %d bytes", (int)size);
    if ((r->local_workspace == NPUC_NONE) != (r->local_workspace_bytes == 0))
        return npuc_sim_fail(d->error, "a workspace that is not there has a size");
    TRY(far_block(d, "x", r->x_segment, r->x, r->x_bytes, size, 0));
    if (r->b_bytes) TRY(far_block(d, "b", r->b_segment, r->b, r->b_bytes, size, 0));
    TRY(told(d, r->constants, r->constant_bytes));
    if (r->local_workspace != NPUC_NONE) TRY(workspace(d, "local_workspace", r->local_workspace, r->local_workspace_bytes));
    if (r->workspace_bytes) TRY(far_block(d, "workspace", r->workspace_segment, r->workspace, r->workspace_bytes, 16, 1));
    return far_block(d, "y", r->y_segment, r->y, r->y_bytes, size, 1);
}

npuc_status npuc_decode(const uint8_t *record, npuc_decoded *d, npuc_sim_error *error)
{
    memcpy(&d->record, record, NPUC_RECORD);
    d->count = 0;
    d->error = error;
    switch (d->record.head.opcode) {
    case NPUC_OP_LOAD: return transfer(d, &d->record.load, 0);
    case NPUC_OP_STORE: {
        npuc_i_load same; /* the fields of a load and a store are one */
        memcpy(&same, record, NPUC_RECORD);
        return transfer(d, &same, 1);
    }
    case NPUC_OP_BARRIER: return NPUC_OK;
    case NPUC_OP_CONV: return conv(d);
    case NPUC_OP_MATMUL: return matmul(d);
    case NPUC_OP_RECURRENT: return recurrent(d);
    case NPUC_OP_QUANTIZED_LSTM: return quantized_lstm(d);
    case NPUC_OP_COPY: return copy(d);
    case NPUC_OP_FILL: return fill(d);
    case NPUC_OP_GATHER: return gather(d);
    case NPUC_OP_ADD: return add(d);
    case NPUC_OP_MUL: return mul(d);
    case NPUC_OP_REQUANT: return requant(d);
    case NPUC_OP_TABLE: return table(d);
    case NPUC_OP_MINMAX: return minmax(d);
    case NPUC_OP_CAST: return cast(d);
    case NPUC_OP_MAX_POOL: return max_pool(d);
    case NPUC_OP_AVG_POOL: return avg_pool(d);
    case NPUC_OP_REDUCE: return reduce(d);
    case NPUC_OP_TOPK: return topk(d);
    case NPUC_OP_SOFTMAX: return softmax(d);
    case NPUC_OP_NORM: return norm(d);
    case NPUC_OP_RESIZE: return resize(d);
    case NPUC_OP_CUSTOM: return custom(d);
    case NPUC_OP_CUSTOM_LOCAL: return custom_local(d);
    case NPUC_OP_CUSTOM_GLOBAL: return custom_global(d);
    default: return npuc_sim_fail(error, "%d is no opcode", d->record.head.opcode);
    }
}

/* ---- blocks ---- */

int64_t npuc_access_blocks(const npuc_access *access) { return product(access->axes, access->size); }

npuc_blocks npuc_blocks_of(const npuc_access *access)
{
    return (npuc_blocks){.access = access, .at = access->at, .left = npuc_access_blocks(access)};
}

int npuc_next_block(npuc_blocks *b, int64_t *at)
{
    const npuc_access *a = b->access;
    if (!b->left) return 0;
    *at = b->at;
    if (--b->left == 0) return 1;
    for (int32_t i = a->axes - 1; i >= 0; i--) {
        b->at += a->stride[i];
        if (++b->index[i] < a->size[i]) break;
        b->at -= a->size[i] * a->stride[i];
        b->index[i] = 0;
    }
    return 1;
}
