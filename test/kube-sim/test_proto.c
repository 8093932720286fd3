/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include "base/mem.h"
#include "base/rng.h"
#include "lib/unit.h"

/* Appends a field of at most 127 bytes. */
static void add_field(struct buf *out, unsigned number, struct span bytes)
{
    ck_assert_uint_lt(number, 16);
    ck_assert_uint_lt(bytes.n, 128);
    buf_addc(out, (char)(number << 3 | 2));
    buf_addc(out, (char)bytes.n);
    buf_add_span(out, bytes);
}

/* A ConfigMap "c" with data {"k": "v"} and a label {"a": "b"}, immutable. */
static void make(struct buf *out)
{
    cleanup_buf struct buf type = {0}, meta = {0}, label = {0}, data = {0}, object = {0};
    add_field(&type, 1, SPAN("v1"));
    add_field(&type, 2, SPAN("ConfigMap"));
    add_field(&label, 1, SPAN("a"));
    add_field(&label, 2, SPAN("b"));
    add_field(&meta, 1, SPAN("c"));
    add_field(&meta, 3, SPAN("")); /* empty is absent */
    add_field(&meta, 8, SPAN("")); /* creationTimestamp: skipped */
    add_field(&meta, 11, buf_span(&label));
    add_field(&meta, 14, SPAN("a/b"));
    add_field(&meta, 14, SPAN("c/d"));
    add_field(&data, 1, SPAN("k"));
    add_field(&data, 2, SPAN("v"));
    add_field(&object, 1, buf_span(&meta));
    add_field(&object, 2, buf_span(&data));
    buf_add(&object, "\x20\x01", 2); /* field 4: true */
    buf_add(out, "k8s", 4);
    add_field(out, 1, buf_span(&type));
    add_field(out, 2, buf_span(&object));
    add_field(out, 3, SPAN("")); /* content encoding */
}

START_TEST(an_object_is_read_from_its_envelope)
{
    cleanup_buf struct buf body = {0}, text = {0};
    make(&body);
    cleanup_json_value json_t *j = sim_proto_parse(sim_proto_configmap, buf_span(&body), NULL);
    ck_assert_ptr_nonnull(j);
    sim_jsonx_dump(&text, j);
    ck_assert_str_eq(text.p, "{\"metadata\":{\"name\":\"c\",\"labels\":{\"a\":\"b\"},"
                             "\"finalizers\":[\"a/b\",\"c/d\"]},\"data\":{\"k\":\"v\"},"
                             "\"immutable\":true,\"apiVersion\":\"v1\",\"kind\":"
                             "\"ConfigMap\"}");
}

START_TEST(truncated_and_foreign_messages_are_rejected)
{
    cleanup_buf struct buf body = {0};
    struct err err = {0};
    make(&body);
    size_t rejected = 0;
    for (size_t n = 0; n < body.n; n++) {
        cleanup_json_value json_t *j =
            sim_proto_parse(sim_proto_configmap, (struct span){body.p, n}, &err);
        rejected += !j;
    }
    ck_assert_uint_ge(rejected, body.n - 4); /* except between the envelope's fields */
    static const struct span bad[] = {
        {"{}", 2},
        {"k8s", 3},
        {"k8s\0\x12\x03\x0a\x01\xff", 9},
        {"k8s\0\x12\x7f", 6},
        {"k8s\0\x13", 5},
        {"k8s\0\x12\x05\x12\x03\x0a\x01\0", 11},
        {"k8s\0\x02\x00", 6},
        {"k8s\0\x10\x05", 6},
        {"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 15},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        ck_assert_msg(!sim_proto_parse(sim_proto_configmap, bad[i], &err), "%zu", i);
}

START_TEST(mutated_bytes_do_no_harm)
{
    struct rng rng;
    rng_init(&rng, 3);
    for (int i = 0; i < 20000; i++) {
        cleanup_buf struct buf body = {0}, text = {0};
        make(&body);
        for (size_t k = rng_below(&rng, 5); k; k--)
            body.p[rng_below(&rng, body.n)] = (char)rng_next(&rng);
        cleanup_json_value json_t *j =
            sim_proto_parse(sim_proto_configmap, buf_span(&body), NULL);
        if (!j)
            continue;
        sim_jsonx_dump(&text, j);
        cleanup_json_value json_t *again = sim_jsonx_parse(buf_span(&text), NULL);
        ck_assert_msg(again != NULL, "%s", text.p);
    }
}

UNIT_MAIN("proto", an_object_is_read_from_its_envelope,
          truncated_and_foreign_messages_are_rejected, mutated_bytes_do_no_harm)
