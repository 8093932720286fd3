/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/ids.h"

#include "lib/unit.h"

static const char uuid[] = "GPU-1f0c9a7e-53d1-6d55-8e9e-0d7a2b6f3c11";

static const char *written_of(enum ids_resource r, const char *of, int64_t unit)
{
    static char text[64];
    cleanup_buf struct buf b = {0};
    struct ids_id id = {ids_tag_of(span_of(of)), unit};
    ids_write(&b, r, &id);
    ck_assert_uint_lt(b.n, sizeof text);
    memcpy(text, b.p, b.n + 1);
    return text;
}

static const char *written(const char *of, int64_t unit)
{
    return written_of(IDS_MEM, of, unit);
}

TEST(ids_depend_only_on_the_uuid_and_never_change)
{
    /* Checkpoints of kubelets have these ids: they must not change. */
    ck_assert_str_eq(written(uuid, 0), "pt35a0q-0");
    ck_assert_str_eq(written(uuid, 139), "pt35a0q-139");
    ck_assert_str_eq(written(uuid, -1), "pt35a0q");
    ck_assert_str_eq(written_of(IDS_SHARE, uuid, 31), "pt35a0q-s31");
    ck_assert_str_eq(written_of(IDS_DIALECT, uuid, 31), "pt35a0q-g31");
    ck_assert_str_ne(written("GPU-1f0c9a7e-53d1-6d55-8e9e-0d7a2b6f3c12", -1), "pt35a0q");
}

TEST(ids_are_read_back)
{
    static const int64_t units[] = {-1, 0, 9, 10, 143770, IDS_UNITS_MAX - 1};
    array_items(u, units) {
        struct ids_id id;
        const char *text = written(uuid, *u);
        ck_assert_uint_le(strlen(text), IDS_LENGTH_MAX);
        enum ids_resource r = *u < 0 ? IDS_COUNT : IDS_MEM;
        ck_assert(ids_read(r, span_of(text), &id));
        ck_assert(!ids_read(r == IDS_MEM ? IDS_COUNT : IDS_MEM, span_of(text), &id));
        ck_assert(!ids_read(IDS_SHARE, span_of(text), &id));
        ck_assert(ids_read(r, span_of(text), &id));
        ck_assert_int_eq(id.unit, *u);
        ck_assert_str_eq(id.tag.text, ids_tag_of(span_of(uuid)).text);
    }
    for (int r = 0; r < IDS_CARD_RESOURCES; r++) {
        struct ids_id id;
        const int64_t unit = r == IDS_COUNT ? -1 : 7;
        struct span text = span_of(written_of((enum ids_resource)r, uuid, unit));
        for (int other = 0; other < IDS_CARD_RESOURCES; other++)
            ck_assert(ids_read((enum ids_resource)other, text, &id) == (other == r));
    }
}

TEST(other_ids_are_rejected)
{
    static const char *const bad[] = {
        "",           "abcdef",     "abcdefg-",
        "abcdefg-x",  "abcdefg-01", "abcdefg--1",
        "abcdefg-1 ", "abcdefgh",   "abcdefg-1000000",
        "ABCDEFG-1",  "abcdefl-1",  "abcdefg-999999999999999999999",
        "abcdefg_1",  "abcdefg-+1", "GPU-1f0c9a7e-53d1-6d55-8e9e-0d7a2b6f3c11-_-7",
    };
    struct ids_id id;
    array_items(c, bad)
        for (int r = 0; r < IDS_CARD_RESOURCES; r++)
            ck_assert_msg(!ids_read((enum ids_resource)r, span_of(*c), &id), "\"%s\"",
                          *c);
    ck_assert(!ids_read(IDS_MEM, (struct span){"abcdef\0-1", 9}, &id));
    ck_assert(ids_name_no_card(span_of(bad[ARRAY_LEN(bad) - 1])));
    ck_assert(!ids_name_no_card(span_of(written(uuid, 3))));
    ck_assert(!ids_name_no_card((struct span){0}));
    ck_assert(ids_name_no_card(SPAN("GPU-1f0c9a7e-53d1-6d55-8e9e-0d7a2b6f3c11-7")));
    ck_assert(!ids_name_no_card(SPAN("GPU-1f0c9a7e-53d1-6d55-8e9e-0d7a2b6f3c11::7")));
    ck_assert(
        !ids_name_no_card(SPAN("MIG-GPU-1f0c9a7e-53d1-6d55-8e9e-0d7a2b6f3c11/7/0")));
}

TEST(an_id_names_its_card)
{
    static const struct {
        const char *resource, *id;
        bool is;
    } cases[] = {
        {"aliyun.com/gpu-mem", "pt35a0q-0", true},
        {"aliyun.com/gpu-mem", "pt35a0q-143770", true},
        {"aliyun.com/gpu-mem", "pt35a0q", false}, /* that is a whole card */
        {"aliyun.com/gpu-count", "pt35a0q", true},
        {"aliyun.com/gpu-share", "pt35a0q-s31", true},
        {"aliyun.com/gpu-share", "pt35a0q-31", false},
        {"aliyun.com/gpu-share", "pt35a0q-s", false},
        {"aliyun.com/gpu-share", "pt35a0q-s01", false},
        {"aliyun.com/gpu-mem", "pt35a0q-s31", false},
        {"aliyun.com/gpu-share", "pt35a0q", false},
        {"aliyun.com/gpu-count", "pt35a0q-0", false},
        {"aliyun.com/gpu-mem", "pt35a0r-0", false},
        {"nvidia.com/gpu", "pt35a0q-g31", true},
        {"nvidia.com/gpu", "pt35a0r-g31", false},
        {"nvidia.com/gpu", "pt35a0q-s31", false},
        {"aliyun.com/gpu-share", "pt35a0q-g31", false},
        {"nvidia.com/gpu", "pt35a0q-0", false},
        {"nvidia.com/gpu", "pt35a0q", false},
        {"nvidia.com/gpu", "GPU-1f0c9a7e-53d1-6d55-8e9e-0d7a2b6f3c11", true},
        {"nvidia.com/gpu", "GPU-1f0c9a7e-53d1-6d55-8e9e-0d7a2b6f3c12", false},
        {"nvidia.com/gpu", "GPU-1f0c9a7e-53d1-6d55-8e9e-0d7a2b6f3c11::3", true},
        {"nvidia.com/gpu.shared", "GPU-1f0c9a7e-53d1-6d55-8e9e-0d7a2b6f3c11::0", true},
        {"nvidia.com/gpu", "GPU-1f0c9a7e-53d1-6d55-8e9e-0d7a2b6f3c1", false},
        {"nvidia.com/gpu", "GPU-1f0c9a7e-53d1-6d55-8e9e-0d7a2b6f3c111", false},
        {"nvidia.com/gpu", "GPU-1f0c9a7e-53d1-6d55-8e9e-0d7a2b6f3c11-_-3", false},
        {"aliyun.com/gpu-mem", "GPU-1f0c9a7e-53d1-6d55-8e9e-0d7a2b6f3c11-_-3", false},
        {"nvidia.com/gpu", "MIG-GPU-1f0c9a7e-53d1-6d55-8e9e-0d7a2b6f3c11/1/0", true},
        {"nvidia.com/mig-1g.5gb", "MIG-GPU-1f0c9a7e-53d1-6d55-8e9e-0d7a2b6f3c11/7/0::1",
         true},
        {"nvidia.com/gpu", "MIG-GPU-1f0c9a7e-53d1-6d55-8e9e-0d7a2b6f3c12/1/0", false},
        {"nvidia.com/gpu", "MIG-1f0c9a7e-53d1-6d55-8e9e-0d7a2b6f3c11", false},
        {"nvidia.com/gpu", "::", false},
        {"nvidia.com/gpu", "", false},
    };
    const struct ids_card instance = ids_card_of(SPAN("MIG-1"));
    ck_assert(ids_match_card(SPAN("nvidia.com/mig-1g.5gb"), SPAN("MIG-1::2"), &instance));
    ck_assert(!ids_match_card(SPAN("nvidia.com/gpu"), SPAN("MIG-2"), &instance));
    struct ids_card card = ids_card_of(span_of(uuid)), none = ids_card_of(SPAN(""));
    array_items(c, cases) {
        struct span resource = span_of(c->resource), id = span_of(c->id);
        ck_assert_msg(ids_match_card(resource, id, &card) == c->is, "%s of %s", c->id,
                      c->resource);
        ck_assert(!ids_match_card(resource, id, &none));
    }
}

/* The message as protobuf writes it: Device{1: id, 2: health}, each as field 1. */
static int64_t really(int64_t units)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < units; i++) {
        int64_t inner = 2 + (int64_t)strlen(written(uuid, i)) + 2 + 9;
        bytes += 2 + inner;
    }
    return bytes;
}

TEST(the_size_of_the_message_is_known)
{
    static const int64_t units[] = {0, 1, 9, 10, 11, 99, 100, 1234, 100000};
    array_items(unit, units)
        ck_assert_int_eq(ids_message_bytes(unit, 1, 1), really(*unit));
    ck_assert_int_eq(ids_message_bytes(units, ARRAY_LEN(units), 1),
                     really(0) + really(1) + really(9) + really(10) + really(11) +
                         really(99) + really(100) + really(1234) + really(100000));
}

TEST(a_unit_that_fits_is_found)
{
    int64_t h200[8], gib[8], one[1] = {143771};
    for (int i = 0; i < 8; i++) {
        h200[i] = 143771;
        gib[i] = 140;
    }
    ck_assert_int_le(ids_message_bytes(gib, 8, 1), IDS_MESSAGE_MAX);
    ck_assert_int_gt(ids_message_bytes(h200, 8, 1), IDS_MESSAGE_MAX);
    ck_assert_int_eq(ids_smallest_unit(h200, 8), 8);
    /* Such a card can be listed in MiB, which was impossible with the Go plugin's ids. */
    ck_assert_int_eq(ids_smallest_unit(one, 1), 1);
    int64_t many[1] = {140000};
    ck_assert_int_le(ids_message_bytes(many, 1, 1), IDS_MESSAGE_MAX);
}
