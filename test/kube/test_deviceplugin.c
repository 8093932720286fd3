/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/deviceplugin.h"

#include <stdlib.h>

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
    ck_assert_done(dp_register_decode(buf_span(&out), &a, &got, &err), err);
    ck_assert_span_eq(got.version, "v1beta1");
    ck_assert_span_eq(got.endpoint, "gpushare.sock");
    ck_assert_span_eq(got.resource, "aliyun.com/gpu-mem");
    ck_assert(got.options.pre_start_required && got.options.preferred_allocation);
    ck_assert_done(dp_register_decode(S(""), &a, &got, &err), err);
    ck_assert_span_eq(got.version, "");
    ck_assert(!got.options.pre_start_required);
}
END_TEST

START_TEST(options)
{
    for (int i = 0; i < 4; i++) {
        const struct dp_options m = {i & 1, i & 2};
        struct dp_options got = {0};
        buf_clear(&out);
        ck_assert_done(dp_options_encode(&m, &out, &err), err);
        ck_assert_done(dp_options_decode(buf_span(&out), &got, &err), err);
        ck_assert_int_eq(got.pre_start_required, m.pre_start_required);
        ck_assert_int_eq(got.preferred_allocation, m.preferred_allocation);
    }
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
    ck_assert_done(dp_devices_decode(buf_span(&out), &a, &got, &err), err);
    ck_assert_uint_eq(got.n, 2);
    ck_assert_span_eq(got.items[0].id, "a1-0");
    ck_assert(got.items[0].is_healthy && !got.items[1].is_healthy);
    ck_assert_uint_eq(got.items[0].n_numa, 2);
    ck_assert_int_eq(got.items[0].numa[1], 1);
    ck_assert_uint_eq(got.items[1].n_numa, 0);
}
END_TEST

START_TEST(a_device_list_must_fit_into_a_message)
{
    enum { N = 140000 };
    struct dp_device *items = xcalloc(N, sizeof *items);
    char *ids = xcalloc(N, 16);
    for (size_t i = 0; i < N; i++) {
        size_t n = (size_t)snprintf(ids + i * 16, 16, "7fa3-%05zx", i);
        items[i] = (struct dp_device){{ids + i * 16, n}, true, NULL, 0};
    }
    struct dp_devices m = {items, N}, got;
    ck_assert_done(dp_devices_encode(&m, &out, &err), err);
    ck_assert_uint_le(out.n, DP_MESSAGE_MAX);
    ck_assert_done(dp_devices_decode(buf_span(&out), &a, &got, &err), err);
    ck_assert_uint_eq(got.n, N);
    ck_assert(span_eq(got.items[N - 1].id, items[N - 1].id));

    for (size_t i = 0; i < N; i++)
        items[i].id = S("an-id-that-is-somewhat-longer");
    size_t before = out.n;
    ck_assert_int_eq(dp_devices_encode(&m, &out, &err), -1);
    ck_assert_int_eq(err.code, ERR_TOO_LARGE);
    ck_assert_str_eq(err.msg, "ListAndWatchResponse: message has "
                              "5880000 bytes, at most 4194304 are allowed");
    ck_assert_uint_eq(out.n, before);
    free(items);
    free(ids);
}
END_TEST

START_TEST(ids_and_groups)
{
    const struct span ab[] = {S("a"), S("b")}, c[] = {S("c")};
    const struct dp_ids groups[] = {{ab, 2}, {c, 1}};
    struct dp_groups got;
    struct dp_ids ids;
    ck_encodes(dp_groups_encode(&(struct dp_groups){groups, 2}, &out, &err), groups_hex);
    ck_assert_done(dp_groups_decode(buf_span(&out), &a, &got, &err), err);
    ck_assert_uint_eq(got.n, 2);
    ck_assert_uint_eq(got.items[0].n, 2);
    ck_assert_span_eq(got.items[0].items[1], "b");
    ck_assert_span_eq(got.items[1].items[0], "c");
    ck_encodes(dp_ids_encode(&groups[0], &out, &err), "0a01610a0162");
    ck_assert_done(dp_ids_decode(buf_span(&out), &a, &ids, &err), err);
    ck_assert_uint_eq(ids.n, 2);
    ck_assert_span_eq(ids.items[0], "a");
}
END_TEST

START_TEST(preferences)
{
    const struct span ab[] = {S("a"), S("b")};
    const struct dp_preference item = {{ab, 2}, {ab + 1, 1}, 300};
    struct dp_preferences got;
    ck_encodes(dp_preferences_encode(&(struct dp_preferences){&item, 1}, &out, &err),
               preferences_hex);
    ck_assert_done(dp_preferences_decode(buf_span(&out), &a, &got, &err), err);
    ck_assert_uint_eq(got.n, 1);
    ck_assert_int_eq(got.items[0].size, 300);
    ck_assert_uint_eq(got.items[0].available.n, 2);
    ck_assert_span_eq(got.items[0].must_include.items[0], "b");

    ck_assert_int_eq(
        dp_preferences_decode(hex_in("0a0b18ffffffffffffffffff01"), &a, &got, &err), -1);
    ck_assert_str_eq(
        err.msg, "PreferredAllocationRequest: containers[0]: size: negative number -1");
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
    ck_assert_done(dp_allocations_decode(buf_span(&out), &a, &got, &err), err);
    ck_assert_uint_eq(got.n, 2);
    const struct dp_allocation *first = &got.items[0];
    ck_assert_span_eq(first->envs[0].key, "NVIDIA_VISIBLE_DEVICES");
    ck_assert_span_eq(first->envs[0].value, "GPU-1");
    ck_assert_span_eq(first->annotations[0].value, "v");
    ck_assert_span_eq(first->mounts[0].host_path, "/h");
    ck_assert(first->mounts[0].read_only);
    ck_assert_span_eq(first->specs[0].permissions, "rw");
    ck_assert_span_eq(first->cdi[0], "nvidia.com/gpu=0");
    ck_assert_uint_eq(got.items[1].n_envs + got.items[1].n_cdi, 0);
}
END_TEST

static void expect_rejected_device(struct span id, const char *words)
{
    const struct dp_device item = {id, true, NULL, 0};
    buf_clear(&out);
    ck_assert_int_eq(dp_devices_encode(&(struct dp_devices){&item, 1}, &out, &err), -1);
    ck_assert_int_eq(err.code, ERR_INVALID);
    ck_assert_str_eq(err.msg, words);
    ck_assert_uint_eq(out.n, 0);
}

START_TEST(messages_that_the_kubelet_would_misread_are_rejected)
{
    char long_id[65];
    memset(long_id, 'x', sizeof long_id);
    expect_rejected_device(
        (struct span){long_id, 64},
        "ListAndWatchResponse: devices[0]: id: 64 bytes, expected 1 to 63");
    expect_rejected_device(
        S(""), "ListAndWatchResponse: devices[0]: id: 0 bytes, expected 1 to 63");
    expect_rejected_device(S("a\0b"),
                           "ListAndWatchResponse: devices[0]: id: NUL at byte 1");
    expect_rejected_device(
        S("ab\xff"), "ListAndWatchResponse: devices[0]: id: invalid UTF-8 at byte 2");

    const struct dp_entry bad[] = {
        {S(""), S("x")}, {S("A=B"), S("x")}, {S("A"), S("\0")}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const struct dp_allocation item = {.envs = &bad[i], .n_envs = 1};
        ck_assert_int_eq(
            dp_allocations_encode(&(struct dp_allocations){&item, 1}, &out, &err), -1);
        ck_assert_int_eq(err.code, ERR_INVALID);
        ck_assert_msg(strstr(err.msg, "envs[0]") != NULL, "%s", err.msg);
    }
}
END_TEST

static void expect_rejected_groups(const char *hex, enum err_code code, const char *words)
{
    struct dp_groups got;
    ck_assert_int_eq(dp_groups_decode(hex_in(hex), &a, &got, &err), -1);
    ck_assert_int_eq(err.code, code);
    ck_assert_str_eq(err.msg, words);
}

START_TEST(hostile_bytes_are_rejected)
{
    expect_rejected_groups(
        "0a060a01610a01", ERR_INVALID,
        "device ids: malformed message of type ContainersIds, 7 bytes");
    expect_rejected_groups(
        "0aff", ERR_INVALID,
        "device ids: malformed message of type ContainersIds, 2 bytes");
    expect_rejected_groups(
        "ff", ERR_INVALID,
        "device ids: malformed message of type ContainersIds, 1 bytes");
    expect_rejected_groups(
        "0aff7f", ERR_INVALID,
        "device ids: malformed message of type ContainersIds, 3 bytes");
    expect_rejected_groups(
        "0b", ERR_INVALID,
        "device ids: malformed message of type ContainersIds, 1 bytes");
    expect_rejected_groups("0a030a01ff", ERR_INVALID,
                           "device ids: containers[0]: ids[0]: invalid UTF-8 at byte 0");
    expect_rejected_groups("0a060a01610a01000a00", ERR_INVALID,
                           "device ids: containers[0]: ids[1]: NUL at byte 0");
}
END_TEST

START_TEST(unknown_fields_are_skipped)
{
    struct dp_groups got;
    /* 10, 11, 4, 18 */
    ck_assert_int_eq(
        dp_groups_decode(hex_in("5205ffffffff000a060a016192010178580122010b"), &a, &got,
                         &err),
        -1);
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
