/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/deviceplugin.h"
#include "kube/proto_priv.h"

#include "kube/hex.h"

/*
 * The bytes in hexadecimal were made with protoc from Kubernetes' own api.proto (1.35).
 */

static const char register_hex[] =
    "0a0776316265746131120d67707573686172652e736f636b1a12616c6979756e2e636f6d2f6770752d6d"
    "656d220408011001";
static const char devices_hex[] =
    "0a170a0461312d3012074865616c7468791a060a000a0208010a110a"
    "0461312d311209556e6865616c746879";
static const char preferences_hex[] = "0a0c0a01610a016212016218ac02";
static const char groups_hex[] = "0a060a01610a01620a030a0163";
static const char allocations_hex[] =
    "0a5f0a1f0a164e56494449415f56495349424c455f4445564943455312054750552d31120a0a022f6312"
    "022f6818011a140a062f6465762f6112062f6465762f621a02727722060a016b1201762a120a106e7669"
    "6469612e636f6d2f6770753d300a00";

#define S SPAN

START_TEST(register_request)
{
    const struct dp_register m = {
        S("v1beta1"), S("gpushare.sock"), S("aliyun.com/gpu-mem"), {true, true}};
    struct dp_register got;
    ck_encodes(dp_register_encode(&m, &out, &err), register_hex);
    ck_decodes(proto_decode(&dp_register_type, hex_in(register_hex), &a, &got, &err),
               dp_register_encode(&got, &out, &err), register_hex);
    ck_assert_done(proto_decode(&dp_register_type, S(""), &a, &got, &err), err);
    ck_assert_span_eq(got.version, "");
    ck_assert(!got.options.pre_start_required);
}
END_TEST

START_TEST(options)
{
    const struct dp_options m = {.preferred_allocation = true};
    struct dp_options got;
    ck_encodes(dp_options_encode(&m, &out, &err), "1001");
    ck_assert_done(proto_decode(&dp_options_type, buf_span(&out), NULL, &got, &err), err);
    ck_assert(got.preferred_allocation && !got.pre_start_required);
}
END_TEST

START_TEST(devices)
{
    const int64_t numa[] = {0, 1};
    const struct dp_device items[] = {{S("a1-0"), true, numa, 2},
                                      {S("a1-1"), false, NULL, 0}};
    struct dp_devices got;
    ck_encodes(dp_devices_encode(&(struct dp_devices){items, 2}, &out, &err),
               devices_hex);
    ck_decodes(proto_decode(&dp_devices_type, hex_in(devices_hex), &a, &got, &err),
               dp_devices_encode(&got, &out, &err), devices_hex);
}
END_TEST

START_TEST(a_device_list_must_fit_into_a_message)
{
    enum { N = 140000 };
    struct dp_device *items = arena_zalloc(&a, N * sizeof *items);
    struct dp_devices m = {items, N}, got;
    for (size_t i = 0; i < N; i++)
        items[i] = (struct dp_device){.id = S("7fa3-00001"), .is_healthy = true};
    ck_assert_done(dp_devices_encode(&m, &out, &err), err);
    ck_assert_uint_le(out.n, DP_MESSAGE_MAX);
    ck_assert_done(proto_decode(&dp_devices_type, buf_span(&out), &a, &got, &err), err);
    ck_assert_uint_eq(got.n, N);
    for (size_t i = 0; i < N; i++)
        items[i].id = S("an-id-that-is-somewhat-longer");
    size_t before = out.n;
    ck_rejects(dp_devices_encode(&m, &out, &err), ERR_TOO_LARGE,
               "ListAndWatchResponse: message has 5880000 bytes, at most 4194304 are "
               "allowed");
    ck_assert_uint_eq(out.n, before);
}
END_TEST

START_TEST(ids_and_groups)
{
    const struct span ab[] = {S("a"), S("b")}, c[] = {S("c")};
    const struct dp_ids groups[] = {{ab, 2}, {c, 1}};
    struct dp_groups got;
    struct dp_ids ids;
    ck_encodes(dp_groups_encode(&(struct dp_groups){groups, 2}, &out, &err), groups_hex);
    ck_decodes(dp_groups_decode(hex_in(groups_hex), &a, &got, &err),
               dp_groups_encode(&got, &out, &err), groups_hex);
    ck_encodes(proto_encode(&dp_ids_type, &groups[0], DP_MESSAGE_MAX, &out, &err),
               "0a01610a0162");
    ck_decodes(proto_decode(&dp_ids_type, hex_in("0a01610a0162"), &a, &ids, &err),
               proto_encode(&dp_ids_type, &ids, DP_MESSAGE_MAX, &out, &err),
               "0a01610a0162");
}
END_TEST

START_TEST(preferences)
{
    const struct span ab[] = {S("a"), S("b")};
    const struct dp_preference item = {{ab, 2}, {ab + 1, 1}, 300};
    struct dp_preferences got;
    ck_encodes(proto_encode(&dp_preferences_type, &(struct dp_preferences){&item, 1},
                            DP_MESSAGE_MAX, &out, &err),
               preferences_hex);
    ck_decodes(dp_preferences_decode(hex_in(preferences_hex), &a, &got, &err),
               proto_encode(&dp_preferences_type, &got, DP_MESSAGE_MAX, &out, &err),
               preferences_hex);
    ck_rejects(
        dp_preferences_decode(hex_in("0a0b18ffffffffffffffffff01"), &a, &got, &err),
        ERR_INVALID,
        "PreferredAllocationRequest: containers[0]: size: negative number -1");
}
END_TEST

START_TEST(allocations)
{
    const struct dp_entry env = {S("NVIDIA_VISIBLE_DEVICES"), S("GPU-1")},
                          annotation = {S("k"), S("v")};
    const struct dp_mount mount = {S("/c"), S("/h"), true};
    const struct dp_spec spec = {S("/dev/a"), S("/dev/b"), S("rw")};
    const struct span cdi = S("nvidia.com/gpu=0");
    const struct dp_allocation items[] = {{.envs = &env,
                                           .n_envs = 1,
                                           .annotations = &annotation,
                                           .n_annotations = 1,
                                           .mounts = &mount,
                                           .n_mounts = 1,
                                           .specs = &spec,
                                           .n_specs = 1,
                                           .cdi = &cdi,
                                           .n_cdi = 1},
                                          {0}};
    struct dp_allocations got;
    ck_encodes(dp_allocations_encode(&(struct dp_allocations){items, 2}, &out, &err),
               allocations_hex);
    ck_decodes(
        proto_decode(&dp_allocations_type, hex_in(allocations_hex), &a, &got, &err),
        dp_allocations_encode(&got, &out, &err), allocations_hex);
}
END_TEST

START_TEST(messages_that_the_kubelet_would_misread_are_rejected)
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
    for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
        const struct dp_device item = {.id = ids[i].id, .is_healthy = true};
        cleanup_free char *want =
            xasprintf("ListAndWatchResponse: devices[0]: id: %s", ids[i].want);
        ck_rejects(dp_devices_encode(&(struct dp_devices){&item, 1}, &out, &err),
                   ERR_INVALID, want);
        ck_assert_uint_eq(out.n, 0);
    }
    const struct dp_entry bad[] = {
        {S(""), S("x")}, {S("A=B"), S("x")}, {S("A"), S("\0")}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const struct dp_allocation item = {.envs = &bad[i], .n_envs = 1};
        ck_assert_int_eq(
            dp_allocations_encode(&(struct dp_allocations){&item, 1}, &out, &err), -1);
        ck_assert_msg(strstr(err.msg, "envs[0]") != NULL, "%s", err.msg);
    }
}
END_TEST

START_TEST(hostile_bytes_are_rejected)
{
    static const struct {
        const char *hex, *want;
    } cases[] = {
        {"0a060a01610a01", "malformed message of type ContainersIds, 7 bytes"},
        {"0aff", "malformed message of type ContainersIds, 2 bytes"},
        {"0b", "malformed message of type ContainersIds, 1 bytes"},
        {"0a030a01ff", "containers[0]: ids[0]: invalid UTF-8 at byte 0"},
        {"0a060a01610a01000a00", "containers[0]: ids[1]: NUL at byte 0"},
    };
    struct dp_groups got;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        cleanup_free char *want = xasprintf("device ids: %s", cases[i].want);
        ck_rejects(dp_groups_decode(hex_in(cases[i].hex), &a, &got, &err), ERR_INVALID,
                   want);
    }
}
END_TEST

START_TEST(unknown_fields_are_skipped)
{
    struct dp_groups got;
    /* 10, 11, 4, 18 */
    ck_assert_done(dp_groups_decode(hex_in("5205ffffffff000a070a01619201017858012201"
                                           "0b"),
                                    &a, &got, &err),
                   err);
    ck_assert_uint_eq(got.n, 1);
    ck_assert_span_eq(got.items[0].items[0], "a");
}
END_TEST

START_TEST(small_messages_must_not_take_much_memory)
{
    enum { N = 1 << 20 };
    struct dp_groups got;
    for (int i = 0; i < N; i++)
        buf_add(&in, "\x0a\x00", 2); /* a million containers without ids */
    ck_assert_int_eq(dp_groups_decode(buf_span(&in), &a, &got, &err), -1);
    ck_assert_int_eq(err.code, ERR_TOO_LARGE);
}
END_TEST

UNIT_MAIN_AROUND("deviceplugin", NULL, hex_end, register_request, options, devices,
                 a_device_list_must_fit_into_a_message, ids_and_groups, preferences,
                 allocations, messages_that_the_kubelet_would_misread_are_rejected,
                 hostile_bytes_are_rejected, unknown_fields_are_skipped,
                 small_messages_must_not_take_much_memory)
