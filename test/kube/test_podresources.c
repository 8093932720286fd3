/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/podresources.h"
#include "kube/proto_priv.h"

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
    ck_assert_done(proto_decode(&podres_list_type, hex_in(list_hex), &a, &got, &err),
                   err);
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
        proto_encode(&podres_list_type, &got, PODRES_MESSAGE_MAX, &out, &err),
        "0a320a02703112026e731a280a046d61696e12200a12616c6979756e2e636f6d2f6770752d6d"
        "656d1201611201621a040a0208010a080a02703212026e73");
}
END_TEST

START_TEST(get)
{
    struct podres_pod pod;
    const struct podres_get_request request = {S("p"), S("n")};
    struct podres_get_request read;
    ck_encodes(
        proto_encode(&podres_get_request_type, &request, PODRES_MESSAGE_MAX, &out, &err),
        "0a017012016e");
    ck_assert_done(
        proto_decode(&podres_get_request_type, buf_span(&out), &a, &read, &err), err);
    ck_assert_span_eq(read.ns, "n");
    ck_assert_span_eq(read.name, "p");
    ck_assert_done(proto_decode(&podres_get_type, hex_in("0a0b0a017012016e1a030a0163"),
                                &a, &pod, &err),
                   err);
    ck_assert_span_eq(pod.containers[0].name, "c");
    ck_encodes(proto_encode(&podres_get_type, &pod, PODRES_MESSAGE_MAX, &out, &err),
               "0a0b0a017012016e1a030a0163");
    ck_rejects(proto_decode(&podres_get_type, S(""), &a, &pod, &err), ERR_INVALID,
               "GetPodResourcesResponse: pod: missing");
}
END_TEST

START_TEST(allocatable)
{
    struct podres_allocatable got;
    ck_assert_done(proto_decode(&podres_allocatable_type,
                                hex_in("0a060a0172120178120103"), &a, &got, &err),
                   err);
    ck_assert_uint_eq(got.n, 1);
    ck_assert_span_eq(got.devices[0].ids[0], "x");
    ck_encodes(
        proto_encode(&podres_allocatable_type, &got, PODRES_MESSAGE_MAX, &out, &err),
        "0a060a0172120178");
}
END_TEST

START_TEST(hostile_bytes_are_rejected)
{
    struct podres_list got;
    ck_rejects(
        proto_decode(&podres_list_type, hex_in("0a080a0170120101"), &a, &got, &err),
        ERR_INVALID, "ListPodResourcesResponse: malformed message of type List, 8 bytes");
    ck_rejects(proto_decode(&podres_list_type,
                            hex_in("0a0b1a0912070a017212"
                                   "02"
                                   "61ff"),
                            &a, &got, &err),
               ERR_INVALID,
               "ListPodResourcesResponse: pods[0]: containers[0]: devices[0]: "
               "device_ids[0]: invalid UTF-8 at byte 1");
}
END_TEST

/* Pods with one container each, that has so many devices. */
static struct podres_list make_list(size_t pods, size_t ids)
{
    struct podres_pod *p = arena_zalloc(&a, pods * sizeof *p);
    struct podres_devices *d = arena_zalloc(&a, sizeof *d);
    struct podres_container *c = arena_zalloc(&a, sizeof *c);
    struct span *id = arena_alloc(&a, ids * sizeof *id);
    for (size_t i = 0; i < ids; i++)
        id[i] = S("7fa3-00001");
    *d = (struct podres_devices){
        .resource = S("aliyun.com/gpu-mem"), .ids = id, .n_ids = ids};
    *c = (struct podres_container){S("main"), d, 1};
    for (size_t i = 0; i < pods; i++)
        p[i] = (struct podres_pod){S("pod-1"), S("default"), c, 1};
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
        ck_assert_done(
            proto_encode(&podres_list_type, &m, PODRES_MESSAGE_MAX, &out, &err), err);
        ck_assert_done(proto_decode(&podres_list_type, buf_span(&out), &a, &got, &err),
                       err);
        ck_assert_uint_eq(got.n, cases[i].pods);
        ck_assert_uint_eq(got.pods[got.n - 1].containers[0].devices[0].n_ids,
                          cases[i].ids);
    }
}
END_TEST

UNIT_MAIN_AROUND("podresources", NULL, hex_end, a_list, get, allocatable,
                 hostile_bytes_are_rejected, large_lists_are_read)
