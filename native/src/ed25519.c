/*
 * Signatures of Ed25519 (RFC 8032), verified; there is no secret here, so that time may depend on the numbers.
 *
 * Numbers are eight 32-bit digits, the lowest first. Those of the field, modulo p = 2^255 - 19, may be anything below 2^256 in
 * between: what is carried out of the last digit comes back as 38 times as much, because 2^256 = 38 modulo p. Points of the curve
 * -x^2 + y^2 = 1 + d x^2 y^2 have x = X/Z, y = Y/Z and T = XY/Z; one formula adds any two of them.
 */
#include "npuc/signature.h"

#include <string.h>

#include "sha512.h"

enum { DIGITS = 8 };

typedef struct number {
    uint32_t digit[DIGITS];
} number;

typedef struct point {
    number x, y, z, t;
} point;

static const number ONE = {{1}};
static const number D = {{0x135978a3, 0x75eb4dca, 0x4141d8ab, 0x00700a4d, 0x7779e898, 0x8cc74079, 0x2b6ffe73, 0x52036cee}};
static const number TWICE_D = {{0x26b2f159, 0xebd69b94, 0x8283b156, 0x00e0149a, 0xeef3d130, 0x198e80f2, 0x56dffce7, 0x2406d9dc}};
static const number ROOT_OF_MINUS_ONE = {{0x4a0ea0b0, 0xc4ee1b27, 0xad2fe478, 0x2f431806, 0x3dfbd7a7, 0x2b4d0099, 0x4fc1df0b, 0x2b832480}};
/* (p - 5) / 8 and p - 2, exponents of a square root and of the inverse. */
static const number ROOT_EXPONENT = {{0xfffffffd, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x0fffffff}};
static const number INVERSE_EXPONENT = {{0xffffffeb, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x7fffffff}};
/* The order of the base point, 2^252 + 27742317777372353535851937790883648493. */
static const number ORDER = {{0x5cf5d3ed, 0x5812631a, 0xa2f79cd6, 0x14def9de, 0x00000000, 0x00000000, 0x00000000, 0x10000000}};
static const point BASE = {
    {{0x8f25d51a, 0xc9562d60, 0x9525a7b2, 0x692cc760, 0xfdd6dc5c, 0xc0a4e231, 0xcd6e53fe, 0x216936d3}},
    {{0x66666658, 0x66666666, 0x66666666, 0x66666666, 0x66666666, 0x66666666, 0x66666666, 0x66666666}},
    {{1}},
    {{0xa5b7dda3, 0x6dde8ab3, 0x775152f5, 0x20f09f80, 0x64abe37d, 0x66ea4e8e, 0xd78b7665, 0x67875f0f}},
};
static const point ZERO = {{{0}}, {{1}}, {{1}}, {{0}}};

/* ---- numbers ---- */

static number from_bytes(const uint8_t bytes[32])
{
    number n = {{0}};
    for (int i = 0; i < 32; i++) n.digit[i / 4] |= (uint32_t)bytes[i] << 8 * (i % 4);
    return n;
}

static int bit(const number *n, int index) { return n->digit[index / 32] >> index % 32 & 1; }

/* r = a + b, and what is carried out of it. */
static uint32_t plus(number *r, const number *a, const number *b)
{
    uint64_t sum = 0;
    for (int i = 0; i < DIGITS; i++) {
        sum += (uint64_t)a->digit[i] + b->digit[i];
        r->digit[i] = (uint32_t)sum;
        sum >>= 32;
    }
    return (uint32_t)sum;
}

/* r = a - b, and whether one was borrowed for it. */
static uint32_t minus(number *r, const number *a, const number *b)
{
    uint32_t borrowed = 0;
    for (int i = 0; i < DIGITS; i++) {
        const uint64_t difference = (uint64_t)a->digit[i] - b->digit[i] - borrowed;
        r->digit[i] = (uint32_t)difference;
        borrowed = (uint32_t)(difference >> 63);
    }
    return borrowed;
}

/* ---- the field ---- */

/* r + 38 carried; the second time round the rest is small. */
static void fold(number *r, uint32_t carried)
{
    while (carried) {
        const number more = {{38 * carried}};
        carried = plus(r, r, &more);
    }
}

static number add(const number *a, const number *b)
{
    number r;
    fold(&r, plus(&r, a, b));
    return r;
}

static number subtract(const number *a, const number *b)
{
    const number more = {{38}};
    number r;
    for (uint32_t borrowed = minus(&r, a, b); borrowed;) borrowed = minus(&r, &r, &more);
    return r;
}

static number multiply(const number *a, const number *b)
{
    uint32_t product[2 * DIGITS] = {0};
    for (int i = 0; i < DIGITS; i++) {
        uint64_t carried = 0;
        for (int k = 0; k < DIGITS; k++) {
            carried += (uint64_t)a->digit[i] * b->digit[k] + product[i + k];
            product[i + k] = (uint32_t)carried;
            carried >>= 32;
        }
        product[i + DIGITS] = (uint32_t)carried;
    }
    number r;
    uint64_t carried = 0;
    for (int i = 0; i < DIGITS; i++) {
        carried += product[i] + (uint64_t)38 * product[i + DIGITS];
        r.digit[i] = (uint32_t)carried;
        carried >>= 32;
    }
    fold(&r, (uint32_t)carried);
    return r;
}

static number square(const number *a) { return multiply(a, a); }

static number power(const number *a, const number *exponent)
{
    number r = ONE;
    for (int i = 255; i >= 0; i--) {
        r = square(&r);
        if (bit(exponent, i)) r = multiply(&r, a);
    }
    return r;
}

/* The one number below p: 2^255 = 19, and n is p or more where n + 19 reaches 2^255. */
static number reduced(const number *a)
{
    number r = *a, more = {{19 * (a->digit[7] >> 31)}};
    r.digit[7] &= 0x7fffffff;
    plus(&r, &r, &more);
    more.digit[0] = 19;
    number tried;
    plus(&tried, &r, &more);
    if (!bit(&tried, 255)) return r;
    tried.digit[7] &= 0x7fffffff;
    return tried;
}

static int same(const number *a, const number *b)
{
    const number x = reduced(a), y = reduced(b);
    return memcmp(&x, &y, sizeof x) == 0;
}

/* ---- the curve ---- */

static point add_points(const point *p, const point *q)
{
    const number p_minus = subtract(&p->y, &p->x), q_minus = subtract(&q->y, &q->x);
    const number p_plus = add(&p->y, &p->x), q_plus = add(&q->y, &q->x);
    const number a = multiply(&p_minus, &q_minus), b = multiply(&p_plus, &q_plus);
    const number tt = multiply(&p->t, &q->t), zz = multiply(&p->z, &q->z);
    const number c = multiply(&tt, &TWICE_D), d = add(&zz, &zz);
    const number e = subtract(&b, &a), f = subtract(&d, &c), g = add(&d, &c), h = add(&b, &a);
    return (point){multiply(&e, &f), multiply(&g, &h), multiply(&f, &g), multiply(&e, &h)};
}

/* A point is its y, and in the highest bit whether x is odd. Refuses what is on no curve, and numbers of p or more. */
static int decode(const uint8_t bytes[32], point *p)
{
    number y = from_bytes(bytes);
    const int odd = bit(&y, 255);
    y.digit[7] &= 0x7fffffff;
    const number canonical = reduced(&y);
    if (memcmp(&y, &canonical, sizeof y) != 0) return 0;
    /* x^2 = u / v; x = u v^3 (u v^7)^((p - 5) / 8), or that times the root of -1. */
    const number yy = square(&y), u = subtract(&yy, &ONE), dyy = multiply(&D, &yy), v = add(&dyy, &ONE);
    const number vv = square(&v), v3 = multiply(&vv, &v), v6 = square(&v3), v7 = multiply(&v6, &v), uv7 = multiply(&u, &v7);
    const number root = power(&uv7, &ROOT_EXPONENT), uv3 = multiply(&u, &v3);
    number x = multiply(&uv3, &root), xx = square(&x), vxx = multiply(&v, &xx);
    if (!same(&vxx, &u)) {
        x = multiply(&x, &ROOT_OF_MINUS_ONE);
        xx = square(&x);
        vxx = multiply(&v, &xx);
        if (!same(&vxx, &u)) return 0;
    }
    const number nothing = {{0}};
    x = reduced(&x);
    if (odd && same(&x, &nothing)) return 0;
    if (bit(&x, 0) != odd) {
        x = subtract(&nothing, &x);
        x = reduced(&x);
    }
    *p = (point){x, y, ONE, multiply(&x, &y)};
    return 1;
}

static void encode(const point *p, uint8_t bytes[32])
{
    const number inverse = power(&p->z, &INVERSE_EXPONENT);
    number x = multiply(&p->x, &inverse), y = multiply(&p->y, &inverse);
    x = reduced(&x);
    y = reduced(&y);
    for (int i = 0; i < 32; i++) bytes[i] = (uint8_t)(y.digit[i / 4] >> 8 * (i % 4));
    bytes[31] |= (uint8_t)(bit(&x, 0) << 7);
}

/* Points of order 8 or less: with such a key, a signature that fits can be written by anyone. */
static int has_small_order(const point *p)
{
    point eightfold = *p;
    for (int i = 0; i < 3; i++) eightfold = add_points(&eightfold, &eightfold);
    const number nothing = {{0}};
    return same(&eightfold.x, &nothing) && same(&eightfold.y, &eightfold.z);
}

/* ---- signatures ---- */

/* 64 bytes modulo the order of the base point, one bit after the other. */
static number modulo_order(const uint8_t bytes[64])
{
    number r = {{0}}, less;
    for (int i = 511; i >= 0; i--) {
        plus(&r, &r, &r); /* below 2^254 */
        r.digit[0] |= bytes[i / 8] >> i % 8 & 1;
        if (!minus(&less, &r, &ORDER)) r = less;
    }
    return r;
}

int npuc_ed25519_key_is_sound(const uint8_t key[32])
{
    point a;
    return decode(key, &a) && !has_small_order(&a);
}

int npuc_ed25519_verify(const uint8_t key[32], const uint8_t signature[64], const uint8_t *message, uint64_t size)
{
    point a;
    number less;
    const number s = from_bytes(signature + 32);
    /* s and s + order would be two signatures of one message. */
    if (!minus(&less, &s, &ORDER) || !decode(key, &a) || has_small_order(&a)) return 0;
    npuc_sha512 hash;
    uint8_t digest[64], encoded[32];
    npuc_sha512_begin(&hash);
    npuc_sha512_add(&hash, signature, 32);
    npuc_sha512_add(&hash, key, 32);
    npuc_sha512_add(&hash, message, size);
    npuc_sha512_end(&hash, digest);
    const number k = modulo_order(digest), nothing = {{0}};
    /* R has to be s B - k A. */
    a.x = subtract(&nothing, &a.x);
    a.t = subtract(&nothing, &a.t);
    point r = ZERO;
    for (int i = 252; i >= 0; i--) {
        r = add_points(&r, &r);
        if (bit(&s, i)) r = add_points(&r, &BASE);
        if (bit(&k, i)) r = add_points(&r, &a);
    }
    encode(&r, encoded);
    return memcmp(encoded, signature, 32) == 0;
}
