/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/proto.h"

#include "kube/deviceplugin.h"
#include "kube/podresources.h"
#include "lib/unit.h"

/* The bytes in hexadecimal were made with protoc from Kubernetes' own api.proto (1.35). */

#define S         SPAN
#define LIST(...) __VA_ARGS__, 1
static const struct span ab[] = {S("a"), S("b")}, c[] = {S("c")},
                         cdi[] = {S("nvidia.com/gpu=0")};
static const struct dp_register registration = {
    S("v1beta1"), S("gpushare.sock"), S("aliyun.com/gpu-mem"), {true, true}};
static const struct podres_get_request request = {S("p"), S("n")};
static const struct dp_device devices[] = {{S("a1-0"), S("Healthy")},
                                           {S("a1-1"), S("Unhealthy")}};
static const struct dp_ids groups[] = {{ab, 2}, {c, 1}};
static const struct dp_preference preference = {{ab, 2}, {ab + 1, 1}, 300};
static const struct dp_entry env = {S("NVIDIA_VISIBLE_DEVICES"), S("GPU-1")},
                             annotation = {S("k"), S("v")};
static const struct dp_mount mount = {S("/c"), S("/h"), true};
static const struct dp_spec spec = {S("/dev/a"), S("/dev/b"), S("rw")};
static const struct dp_allocation allocations[] = {
    {LIST(&env), LIST(&annotation), LIST(&mount), LIST(&spec), LIST(cdi)}, {0}};
static const struct podres_devices held = {S("aliyun.com/gpu-mem"), ab, 2};
static const struct podres_container holder = {S("main"), &held, 1},
                                     idle = {S("c"), NULL, 0};
static const struct podres_pod pods[] = {{S("p1"), S("ns"), &holder, 1},
                                         {S("p2"), S("ns"), NULL, 0}},
                               pod = {S("p"), S("n"), &idle, 1};

#define SOME(type, ...)                                                                  \
    &(const struct type)                                                                 \
    {                                                                                    \
        __VA_ARGS__                                                                      \
    }
#define GPU_MEM "12616c6979756e2e636f6d2f6770752d6d656d"
static const struct {
    const struct proto_type *type;
    const void *m;
    const char *hex;
} messages[] = {
    {&dp_options_type, SOME(dp_options, .preferred_allocation = true), "1001"},
    {&dp_register_type, &registration,
     "0a0776316265746131120d67707573686172652e736f636b1a" GPU_MEM "220408011001"},
    {&dp_devices_type, SOME(dp_devices, devices, 2),
     "0a0f0a0461312d3012074865616c7468790a110a0461312d311209556e6865616c746879"},
    {&dp_ids_type, groups, "0a01610a0162"},
    {&dp_groups_type, SOME(dp_groups, groups, 2), "0a060a01610a01620a030a0163"},
    {&dp_preferences_type, SOME(dp_preferences, &preference, 1),
     "0a0c0a01610a016212016218ac02"},
    {&dp_allocations_type, SOME(dp_allocations, allocations, 2),
     "0a5f0a1f0a164e56494449415f56495349424c455f4445564943455312054750552d31120a0a022f63"
     "12022f6818011a140a062f6465762f6112062f6465762f621a02727722060a016b1201762a120a106e"
     "76696469612e636f6d2f6770753d300a00"},
    {&podres_list_type, SOME(podres_list, pods, 2),
     "0a2c0a02703112026e731a220a046d61696e121a0a" GPU_MEM "1201611201620a080a027032120"
     "26e73"},
    {&podres_get_request_type, &request, "0a017012016e"},
    {&podres_get_type, &pod, "0a0b0a017012016e1a030a0163"},
};

static void put_hex(struct buf *out, const char *hex)
{
    unsigned byte;
    for (; sscanf(hex, "%2x", &byte) == 1; hex += 2)
        buf_addc(out, (char)byte);
    ck_assert_int_eq(*hex, '\0');
}

static void ck_encodes(const struct proto_type *type, const void *m, struct span want)
{
    cleanup_buf struct buf out = {0};
    struct err err = {0};
    ck_assert_done(proto_encode(type, m, want.n, &out, &err), err);
    ck_assert_msg(span_eq(buf_span(&out), want), "%s", type->name);
    ck_assert_int_eq(proto_encode(type, m, want.n - 1, &out, &err), -1);
    ck_assert_int_eq(err.code, ERR_TOO_LARGE);
    ck_assert_uint_eq(out.n, want.n);
}

TEST_LOOP(a_message_has_the_bytes_of_kubernetes, ARRAY_LEN(messages))
{
    cleanup_arena struct arena arena = {0};
    cleanup_buf struct buf bytes = {0};
    struct err err = {0};
    void *got = arena_alloc(&arena, messages[_i].type->size);
    put_hex(&bytes, messages[_i].hex);
    ck_encodes(messages[_i].type, messages[_i].m, buf_span(&bytes));
    ck_assert_done(proto_decode(messages[_i].type, buf_span(&bytes), &arena, got, &err),
                   err);
    ck_encodes(messages[_i].type, got, buf_span(&bytes));
}

#define BAD "malformed message of type "
static const struct {
    const struct proto_type *type;
    const char *hex, *want; /* want: NULL: decoded */
} received[] = {
    {&dp_register_type, "", NULL},
    /* unknown fields: 10, 11, 4, 18; CPUs, memory, topology and dynamic resources */
    {&dp_groups_type, "5205ffffffff000a070a016192010178580122010b", NULL},
    {&podres_list_type,
     "0a530a02703112026e731a490a046d61696e12200a" GPU_MEM "1201611201621a040a0208011a0301"
     "ac02220a0a066d656d6f727910052a0e1201631a016e22061201642a01730a080a02703212026e73",
     NULL},
    {&dp_groups_type, "0a060a01610a01", "device ids: " BAD "ContainersIds, 7 bytes"},
    {&dp_groups_type, "0aff", "device ids: " BAD "ContainersIds, 2 bytes"},
    {&dp_groups_type, "0b", "device ids: " BAD "ContainersIds, 1 bytes"},
    {&dp_groups_type, "0a030a01ff",
     "device ids: containers[0]: ids[0]: invalid UTF-8 at byte 0"},
    {&dp_groups_type, "0a060a01610a01000a00",
     "device ids: containers[0]: ids[1]: NUL at byte 0"},
    {&dp_preferences_type, "0a0b18ffffffffffffffffff01",
     "PreferredAllocationRequest: containers[0]: size: negative number -1"},
    {&podres_list_type, "0a080a0170120101",
     "ListPodResourcesResponse: " BAD "List, 8 bytes"},
    {&podres_list_type, "0a0b1a0912070a0172120261ff",
     "ListPodResourcesResponse: pods[0]: containers[0]: devices[0]: device_ids[0]: "
     "invalid UTF-8 at byte 1"},
};

TEST_LOOP(received_bytes_are_checked, ARRAY_LEN(received))
{
    cleanup_arena struct arena arena = {0};
    cleanup_buf struct buf bytes = {0};
    struct err err = {0};
    void *got = arena_alloc(&arena, received[_i].type->size);
    put_hex(&bytes, received[_i].hex);
    int rc = proto_decode(received[_i].type, buf_span(&bytes), &arena, got, &err);
    ck_assert_str_eq(rc ? err.msg : "", received[_i].want ? received[_i].want : "");
    ck_assert_int_eq(err.code, rc ? ERR_INVALID : ERR_NONE);
}

TEST(ids_that_the_kubelet_would_misread_are_rejected)
{
    char long_id[65];
    memset(long_id, 'x', sizeof long_id);
    const struct {
        struct span id;
        const char *want;
    } ids[] = {
        {{long_id, 64}, "64 bytes, expected 1 to 63"},
        {S(""), "0 bytes, expected 1 to 63"},
        {S("a\0b"), "NUL at byte 1"},
        {S("ab\xff"), "invalid UTF-8 at byte 2"},
    };
    array_items(one, ids) {
        cleanup_buf struct buf out = {0};
        struct err err = {0};
        const struct dp_device item = {.id = one->id};
        cleanup_free char *want =
            xasprintf("ListAndWatchResponse: devices[0]: id: %s", one->want);
        ck_assert_int_eq(proto_encode(&dp_devices_type, SOME(dp_devices, &item, 1),
                                      DP_MESSAGE_MAX, &out, &err),
                         -1);
        ck_assert_str_eq(err.msg, want);
        ck_assert_uint_eq(out.n, 0);
    }
}

/* As many as a node of 8 cards may have in units of 1 MiB. */
TEST(a_long_list_fits_into_a_message)
{
    enum { N = 140000 };
    cleanup_arena struct arena arena = {0};
    cleanup_buf struct buf out = {0};
    struct err err = {0};
    struct dp_device *items = arena_zalloc(&arena, N * sizeof *items);
    struct dp_devices got;
    for (size_t i = 0; i < N; i++)
        items[i] = (struct dp_device){S("7fa3-00001"), S("Healthy")};
    ck_assert_done(proto_encode(&dp_devices_type, SOME(dp_devices, items, N),
                                DP_MESSAGE_MAX, &out, &err),
                   err);
    ck_assert_done(proto_decode(&dp_devices_type, buf_span(&out), &arena, &got, &err),
                   err);
    ck_assert_uint_eq(got.n, N);
}

/* Each empty struct takes 2 bytes of the message and over 100 bytes of memory. */
TEST(a_message_that_takes_much_more_memory_than_its_size_is_rejected)
{
    enum { N = 100000 };
    cleanup_arena struct arena arena = {0};
    cleanup_buf struct buf bytes = {0};
    struct err err = {0};
    struct podres_list got;
    for (size_t i = 0; i < N; i++)
        buf_add(&bytes, "\x0a", 2);
    ck_assert_int_eq(
        proto_decode(&podres_list_type, buf_span(&bytes), &arena, &got, &err), -1);
    ck_assert_int_eq(err.code, ERR_TOO_LARGE);
    ck_assert_str_eq(err.msg, "ListPodResourcesResponse: message of 200000 bytes needs "
                              "more than 4865536 bytes of memory");
}
