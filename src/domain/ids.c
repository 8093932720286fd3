/* SPDX-License-Identifier: Apache-2.0 */
/* Device ids of the kubelet. */
#include "domain/ids.h"

#include "base/mem.h"
#include "domain/keys.h"

const char *ids_resource_name(enum ids_resource r)
{
    static const char *const names[IDS_RESOURCES] = {
        KEY_GPU_MEM, KEY_GPU_COUNT, KEY_GPU_SHARE, KEY_NVIDIA_GPU, KEY_GPU_CORE};
    return names[r];
}

bool ids_resource_read(struct span name, enum ids_resource *r)
{
    for (*r = IDS_MEM; *r < IDS_CARD_RESOURCES; ++*r)
        if (span_eq(name, span_of(ids_resource_name(*r))))
            return true;
    return false;
}

/* Without l, i, o, u: easy to read aloud. */
static const char alphabet[] = "0123456789abcdefghjkmnpqrstvwxyz";

struct ids_tag ids_tag_of(struct span uuid)
{
    struct ids_tag tag = {{0}};
    /* FNV-1a. Must never change: the tags are in the checkpoints of kubelets. */
    uint64_t h = 0xcbf29ce484222325;
    for (size_t i = 0; i < uuid.n; i++)
        h = (h ^ (unsigned char)uuid.p[i]) * 0x100000001b3;
    h ^= h >> 35;
    for (int i = 0; i < IDS_TAG; i++, h >>= 5)
        tag.text[i] = alphabet[h & 31];
    return tag;
}

/* Before the number. */
static struct span mark_of(enum ids_resource r)
{
    return r == IDS_SHARE ? SPAN("-s") : r == IDS_DIALECT ? SPAN("-g") : SPAN("-");
}

void ids_write(struct buf *out, enum ids_resource r, const struct ids_id *id)
{
    buf_add(out, id->tag.text, IDS_TAG);
    if (id->unit >= 0) {
        buf_add_span(out, mark_of(r));
        buf_add_i64(out, id->unit);
    }
}

bool ids_read(enum ids_resource r, struct span text, struct ids_id *id)
{
    if (text.n < IDS_TAG || (text.n == IDS_TAG) != (r == IDS_COUNT))
        return false;
    for (size_t i = 0; i < IDS_TAG; i++)
        if (text.p[i] == '\0' || !strchr(alphabet, text.p[i]))
            return false;
    memcpy(id->tag.text, text.p, IDS_TAG);
    id->tag.text[IDS_TAG] = '\0';
    id->unit = -1;
    if (r == IDS_COUNT)
        return true;
    const struct span mark = mark_of(r), rest = {text.p + IDS_TAG, text.n - IDS_TAG};
    if (!span_starts(rest, mark))
        return false;
    struct span number = {rest.p + mark.n, rest.n - mark.n};
    bool canonical = number.n == 1 || (number.n > 1 && number.p[0] != '0');
    return canonical && span_i64(number, &id->unit) && id->unit >= 0 &&
           id->unit < IDS_UNITS_MAX;
}

bool ids_name_no_card(struct span text)
{
    static const size_t uuid = sizeof "GPU-01234567-0123-0123-0123-0123456789ab" - 1;
    return text.n > 0 && (memmem(text.p, text.n, "-_-", 3) != NULL ||
                          (text.n > uuid && text.p[uuid] == '-'));
}

struct ids_card ids_card_of(struct span uuid)
{
    return (struct ids_card){uuid, ids_tag_of(uuid)};
}

/* The part of an id of NVIDIA's plugin that names the card. */
static struct span nvidia_card(struct span id)
{
    const char *replica = id.n ? memmem(id.p, id.n, "::", 2) : NULL;
    if (replica)
        id.n = (size_t)(replica - id.p);
    if (!span_starts(id, SPAN("MIG-GPU-")))
        return id;
    struct span rest = {id.p + 4, id.n - 4};
    return span_cut(&rest, '/');
}

bool ids_match_card(struct span resource, struct span id, const struct ids_card *card)
{
    enum ids_resource r;
    struct ids_id ours;
    if (!card->uuid.n)
        return false;
    if (ids_resource_read(resource, &r) && ids_read(r, id, &ours))
        return memcmp(ours.tag.text, card->tag.text, IDS_TAG) == 0;
    return span_eq(nvidia_card(id), card->uuid);
}

int64_t ids_message_bytes(const int64_t *mib, size_t cards, int64_t unit)
{
    /* For each id "Unhealthy", eight bytes of framing, tag, hyphen and digits. */
    static const int around = 8 + 9 - 2;
    int64_t bytes = 0;
    for (size_t i = 0; i < cards; i++) {
        const int64_t units = mib[i] / unit;
        bytes += units * (around + IDS_TAG + 1);
        for (int64_t from = 0, to = 10, digits = 1; from < units; from = to, to *= 10)
            bytes += ((units < to ? units : to) - from) * digits++;
    }
    return bytes;
}

int64_t ids_smallest_unit(const int64_t *mib, size_t cards)
{
    int64_t unit = 1;
    while (unit < (int64_t)1 << 40 &&
           ids_message_bytes(mib, cards, unit) > IDS_MESSAGE_MAX)
        unit *= 2;
    return unit;
}
