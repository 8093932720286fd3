/* SPDX-License-Identifier: Apache-2.0 */
/* cuMemAlloc and its like, and arrays. */
#include "limit/limit.h"
#include "limit/sys.h"

CUresult linear_alloc(enum call call, const uint64_t *words)
{
    return account_alloc(call, words, words[1], KIND_LINEAR);
}

/* The driver makes rows longer by its alignment, which is 512 bytes on today's cards. What it
 * takes beyond that is added afterwards. */
enum { PITCH = 512 };

CUresult linear_pitch(enum call call, const uint64_t *words)
{
    struct account a;
    if (!account_begin(&a))
        return resolve_call(call, words);
    LIMIT_RESERVE(&a, times(round_up(words[2], PITCH), words[3]));
    CUresult rc = resolve_call(call, words);
    uint64_t bytes = rc == CUDA_SUCCESS ? times(word_at(words[1]), words[3]) : 0;
    if (bytes > a.bytes && account_reserve(&a, bytes - a.bytes) != CUDA_SUCCESS) {
        DRIVER(cuMemFree_v2, word_at(words[0]));
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return account_end(&a, rc, KIND_LINEAR, (const uint64_t *)words[0]);
}

/* -- arrays -- */

/* Arrays and mipmapped arrays. Their size is that of their elements: the driver pads them, and
 * does not say by how much. */

/* CUarray_format of the CUDA Driver API: bits of an element, of each of its channels, or of one
 * that is part of a block of 4 x 4. */
static const struct {
    uint8_t first, last, bits;
    enum { OF_ELEMENT, OF_CHANNEL, IN_BLOCK } what;
} formats[] = {
    {0x01, 0x01, 8, OF_CHANNEL},  {0x02, 0x02, 16, OF_CHANNEL}, /* integers, floats */
    {0x08, 0x08, 8, OF_CHANNEL},  {0x09, 0x09, 16, OF_CHANNEL},
    {0x10, 0x10, 16, OF_CHANNEL}, {0x91, 0x92, 4, IN_BLOCK},
    {0x93, 0x96, 8, IN_BLOCK}, /* BC1 to BC7 */
    {0x97, 0x98, 4, IN_BLOCK},    {0x99, 0x9e, 8, IN_BLOCK},
    {0x9f, 0xa1, 24, OF_ELEMENT}, {0xb0, 0xb0, 12, OF_ELEMENT}, /* planes, 4:2:0 */
    {0xa2, 0xa2, 16, OF_ELEMENT}, {0xa3, 0xa4, 32, OF_ELEMENT}, /* 4:2:2 */
    {0xa5, 0xa5, 16, OF_ELEMENT}, {0xa6, 0xa9, 32, OF_ELEMENT}, /* and 4:4:4 */
    {0xb1, 0xb1, 64, OF_ELEMENT}, {0xb2, 0xb2, 24, OF_ELEMENT},
    {0xb3, 0xb3, 48, OF_ELEMENT}, {0xb4, 0xb4, 24, OF_ELEMENT},
    {0xb5, 0xb5, 48, OF_ELEMENT}, {0x50, 0x50, 32, OF_ELEMENT},
    {0x51, 0x51, 16, OF_ELEMENT}, {0x52, 0x52, 32, OF_ELEMENT}, /* 4:2:2 and 4:4:4 */
};

static uint64_t at_least_1(uint64_t n)
{
    return n ? n : 1;
}

static uint64_t size_of(const CUarray3dDesc *d)
{
    uint64_t width = at_least_1(d->width), height = at_least_1(d->height);
    /* Normalized ones: 1, 2 or 4 channels of 8 or 16 bits, signed behind unsigned. Planes of CUDA
     * 13.1: 4:2:0, 4:2:2 and 4:4:4, each of 8 and 16 bits. */
    static const uint8_t planes[] = {12, 16, 24};
    int normal = d->format - 0xc0, planar = d->format - 0x53;
    uint64_t bits = normal >= 0 && normal < 12 ? (normal / 3 % 2 ? 16u : 8u) << normal % 3
                    : planar >= 0 && planar < 12
                        ? (uint64_t)planes[planar / 2 % 3] << planar % 2
                        : 0;
    if (!bits) /* also the most that an unknown format takes */
        bits = times(32, at_least_1(d->channels));
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (d->format >= formats[i].first && d->format <= formats[i].last) {
            bits = formats[i].bits;
            if (formats[i].what == OF_CHANNEL)
                bits = times(bits, at_least_1(d->channels));
            if (formats[i].what == IN_BLOCK) {
                width += -width & 3;
                height += -height & 3;
            }
        }
    uint64_t elements = times(times(width, height), at_least_1(d->depth));
    uint64_t all = times(elements, bits);
    return all == UINT64_MAX ? all : all / 8 + (all % 8 != 0);
}

/* Each level has half the width, height and depth of the one before. The depth of layers and
 * cube maps stays. */
static uint64_t mipmap_bytes(const CUarray3dDesc *d, unsigned levels)
{
    enum { LAYERED = 1 };
    CUarray3dDesc level = *d;
    uint64_t sum = 0;
    for (unsigned i = 0; i < levels; i++) {
        sum = plus(sum, size_of(&level));
        if (level.width <= 1 && level.height <= 1 && level.depth <= 1)
            break;
        level.width /= 2;
        level.height /= 2;
        if (!(d->flags & (LAYERED | CU_ARRAY3D_CUBEMAP)))
            level.depth /= 2;
        else if (level.width <= 1 && level.height <= 1)
            break;
    }
    return sum;
}

/* The memory of sparse arrays comes later, from cuMemCreate, where it is counted. */
CUresult linear_array(enum call call, const uint64_t *words, int type)
{
    CUarray3dDesc d = {.flags = CU_ARRAY3D_SPARSE};
    const CUarrayDesc *flat = (const void *)words[1];
    if (flat && type == ARRAY_2D)
        d = (CUarray3dDesc){.width = flat->width,
                            .height = flat->height,
                            .format = flat->format,
                            .channels = flat->channels};
    else if (flat)
        d = *(const CUarray3dDesc *)words[1];
    uint64_t bytes = mipmap_bytes(&d, type == ARRAY_MIPMAPPED ? (unsigned)words[2] : 1);
    bool later = d.flags & (CU_ARRAY3D_SPARSE | CU_ARRAY3D_DEFERRED_MAPPING);
    return account_alloc(call, words, later ? 0 : bytes, KIND_ARRAY);
}
