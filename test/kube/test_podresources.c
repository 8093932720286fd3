/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/podresources.h"

#include <stdlib.h>

#include "kube/hex.h"

/*
 * The bytes in hexadecimal were made with protoc from Kubernetes' own api.proto (1.35).
 */

/* With CPUs, memory and dynamic resources, which are skipped. */
static const char list_hex[] =
    "0a530a02703112026e731a490a046d61696e12200a12616c6979756e2e636f6d2f6770752d6d656d1201"
    "611201621a040a0208011a0301ac02220a0a066d656d6f727910052a0e1201631a016e22061201642a01"
    "730a080a02703212026e73";

#define S SPAN

START_TEST(a_list)
{
    struct podres_list got;
    ck_assert_done(podres_list_decode(hex_in(list_hex), &a, &got, &err), err);
    ck_assert_uint_eq(got.n, 2);
    const struct podres_pod *pod = &got.pods[0];
    ck_assert_span_eq(pod->name, "p1");
    ck_assert_span_eq(pod->ns, "ns");
    ck_assert_uint_eq(pod->n_containers, 1);
    ck_assert_span_eq(pod->containers[0].name, "main");
    ck_assert_uint_eq(pod->containers[0].n_devices, 1);
    const struct podres_devices *d = &pod->containers[0].devices[0];
    ck_assert_span_eq(d->resource, "aliyun.com/gpu-mem");
    ck_assert_uint_eq(d->n_ids, 2);
    ck_assert_span_eq(d->ids[1], "b");
    ck_assert_uint_eq(d->n_numa, 1);
    ck_assert_int_eq(d->numa[0], 1);
    ck_assert_span_eq(got.pods[1].name, "p2");
    ck_assert_uint_eq(got.pods[1].n_containers, 0);

    /* Encoded again, without the skipped fields. */
    ck_encodes(
        podres_list_encode(&got, &out, &err),
        "0a320a02703112026e731a280a046d61696e12200a12616c6979756e2e636f6d2f6770752d6d"
        "656d1201611201621a040a0208010a080a02703212026e73");
}
END_TEST

START_TEST(get)
{
    struct podres_pod pod;
    struct span ns, name;
    ck_encodes(podres_get_request_encode(S("n"), S("p"), &out, &err), "0a017012016e");
    ck_assert_done(podres_get_request_decode(buf_span(&out), &a, &ns, &name, &err), err);
    ck_assert_span_eq(ns, "n");
    ck_assert_span_eq(name, "p");
    ck_assert_done(
        podres_get_decode(hex_in("0a0b0a017012016e1a030a0163"), &a, &pod, &err), err);
    ck_assert_span_eq(pod.containers[0].name, "c");
    ck_encodes(podres_get_encode(&pod, &out, &err), "0a0b0a017012016e1a030a0163");
    ck_assert_int_eq(podres_get_decode(S(""), &a, &pod, &err), -1);
    ck_assert_int_eq(err.code, ERR_INVALID);
    ck_assert_str_eq(err.msg, "GetPodResourcesResponse: pod: missing");
}
END_TEST

START_TEST(allocatable)
{
    struct podres_allocatable got;
    ck_assert_done(
        podres_allocatable_decode(hex_in("0a060a0172120178120103"), &a, &got, &err), err);
    ck_assert_uint_eq(got.n, 1);
    ck_assert_span_eq(got.devices[0].ids[0], "x");
    ck_encodes(podres_allocatable_encode(&got, &out, &err), "0a060a0172120178");
}
END_TEST

START_TEST(hostile_bytes_are_rejected)
{
    struct podres_list got;
    /* Truncated. */
    ck_assert_int_eq(podres_list_decode(hex_in("0a080a0170120101"), &a, &got, &err), -1);
    ck_assert_int_eq(err.code, ERR_INVALID);
    ck_assert_str_eq(err.msg,
                     "ListPodResourcesResponse: malformed message of type List, 8 bytes");
    const struct span ids[] = {S("a"), S("Q")};
    const struct podres_devices devices = {.resource = S("r"), .ids = ids, .n_ids = 2};
    const struct podres_container container = {S("c"), &devices, 1};
    const struct podres_pod pod = {S("p"), S("n"), &container, 1};
    buf_clear(&out);
    ck_assert_done(podres_list_encode(&(struct podres_list){&pod, 1}, &out, &err), err);
    *(char *)memchr(out.p, 'Q', out.n) = (char)0xff;
    ck_assert_int_eq(podres_list_decode(buf_span(&out), &a, &got, &err), -1);
    ck_assert_str_eq(err.msg, "ListPodResourcesResponse: pods[0]: containers[0]: "
                              "devices[0]: device_ids[1]: invalid UTF-8 at byte 0");
}
END_TEST

static struct podres_list make_list(size_t pods, size_t ids)
{
    struct podres_pod *p = arena_zalloc(&a, pods * sizeof *p);
    struct podres_container *c = arena_zalloc(&a, pods * sizeof *c);
    struct podres_devices *d = arena_zalloc(&a, pods * sizeof *d);
    struct span *id = arena_alloc(&a, pods * ids * sizeof *id);
    char text[32];
    for (size_t i = 0; i < pods * ids; i++) {
        size_t n = (size_t)snprintf(text, sizeof text, "7fa3-%zx", i);
        id[i] = arena_copy(&a, (struct span){text, n});
    }
    for (size_t i = 0; i < pods; i++) {
        size_t n = (size_t)snprintf(text, sizeof text, "pod-%zu", i);
        d[i] = (struct podres_devices){
            .resource = S("aliyun.com/gpu-mem"), .ids = id + i * ids, .n_ids = ids};
        c[i] = (struct podres_container){S("main"), &d[i], 1};
        p[i] = (struct podres_pod){arena_copy(&a, (struct span){text, n}), S("default"),
                                   &c[i], 1};
    }
    return (struct podres_list){p, pods};
}

START_TEST(large_lists_are_read)
{
    static const struct {
        size_t pods, ids;
    } cases[] = {{15000, 8}, {100, 10000}, {100000, 0}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct podres_list m, got;
        buf_clear(&out);
        m = make_list(cases[i].pods, cases[i].ids);
        ck_assert_done(podres_list_encode(&m, &out, &err), err);
        ck_assert_done(podres_list_decode(buf_span(&out), &a, &got, &err), err);
        ck_assert_uint_eq(got.n, cases[i].pods);
        ck_assert_uint_eq(got.pods[got.n - 1].containers[0].devices[0].n_ids,
                          cases[i].ids);
    }
}
END_TEST

UNIT_MAIN_AROUND("podresources", NULL, hex_end, a_list, get, allocatable,
                 hostile_bytes_are_rejected, large_lists_are_read)
