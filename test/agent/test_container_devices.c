/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/container_devices.h"

#include "base/mem.h"
#include "base/rng.h"
#include "domain/ids.h"
#include "lib/unit.h"

static struct arena arena;

static void end(void)
{
    arena_fini(&arena);
}

/* "ns/p/c aliyun.com/gpu-mem id id", one a line. */
static void read_entries(const char *text, struct container_devices *pods)
{
    struct span rest = span_of(text);
    struct container_devices_entry *entries = arena_zalloc(&arena, 64 * sizeof *entries);
    *pods = (struct container_devices){.entries = entries};
    while (rest.n) {
        struct span line = span_cut(&rest, '\n');
        struct container_devices_entry *e = &entries[pods->n++];
        struct span *ids = arena_alloc(&arena, 64 * sizeof *ids);
        e->ns = span_cut(&line, '/');
        e->pod = span_cut(&line, '/');
        e->container = span_cut(&line, ' ');
        e->resource = span_cut(&line, ' ');
        e->ids = ids;
        while (line.n)
            ids[e->n_ids++] = span_cut(&line, ' ');
    }
}

static void write_entries(const struct container_devices *pods, struct buf *out)
{
    for (size_t i = 0; i < pods->n; i++) {
        const struct container_devices_entry *e = &pods->entries[i];
        buf_printf(out, "%.*s/%.*s/%.*s %.*s", SPAN_ARG(e->ns), SPAN_ARG(e->pod),
                   SPAN_ARG(e->container), SPAN_ARG(e->resource));
        for (size_t k = 0; k < e->n_ids; k++)
            buf_printf(out, " %.*s", SPAN_ARG(e->ids[k]));
        buf_addc(out, '\n');
    }
}

static void kept_is(const struct container_devices *from, const char *want)
{
    cleanup_buf struct buf got = {0};
    cleanup_arena struct arena a = {0};
    struct container_devices kept;
    container_devices_normalize(from, &a, &kept);
    buf_adds(&got, "");
    write_entries(&kept, &got);
    ck_assert_str_eq(got.p, want);
}

/* A kubelet has an entry for each id, of a container twice if it is near two NUMA nodes,
 * and what it has comes out of hash tables. */
START_TEST(equal_states_have_equal_entries)
{
    struct rng rng;
    struct container_devices pods;
    rng_init(&rng, 5);
    read_entries("ns/p/c aliyun.com/gpu-mem aaaaaaa-1\n"
                 "ns/p/c aliyun.com/gpu-mem aaaaaaa-0\n"
                 "ns/p/c aliyun.com/gpu-count bbbbbbb\n"
                 "ns/p/d aliyun.com/gpu-mem aaaaaaa-2\n"
                 "ns/p/d example.com/fpga f0\n"
                 "ns/n/c nvidia.com/gpu GPU-1\n"
                 "ns/n/c nvidia.com/gpu GPU-1\n"
                 "ns/n/c nvidia.com/gpu GPU-0\n"
                 "a/z/c nvidia.com/mig-1g.5gb MIG-7\n",
                 &pods);
    struct container_devices_entry *e = (struct container_devices_entry *)pods.entries;
    for (int round = 0; round < 50; round++) {
        for (size_t i = pods.n; i > 1; i--) {
            size_t k = rng_below(&rng, i);
            struct container_devices_entry other = e[k];
            e[k] = e[i - 1];
            e[i - 1] = other;
        }
        kept_is(&pods, "a/z/c nvidia.com/mig-1g.5gb MIG-7\n"
                       "ns/n/c nvidia.com/gpu GPU-0 GPU-1\n"
                       "ns/p/c aliyun.com/gpu-count bbbbbbb\n"
                       "ns/p/c aliyun.com/gpu-mem aaaaaaa-0 aaaaaaa-1\n"
                       "ns/p/d aliyun.com/gpu-mem aaaaaaa-2\n");
    }
    kept_is(&(struct container_devices){0}, "");
    read_entries("ns/p/c aliyun.com/gpu-mem\nns/p/c cpu 1\n", &pods);
    kept_is(&pods, "");
}
END_TEST

static void held_is(const char *entries, const char *want)
{
    cleanup_buf struct buf got = {0};
    struct scv_card cards[] = {{.uuid = SPAN("GPU-0")}, {0}, {.uuid = SPAN("GPU-1")}};
    struct scv scv = {.cards = cards, .n_cards = ARRAY_LEN(cards)};
    struct container_devices pods, kept;
    read_entries(entries, &pods);
    container_devices_normalize(&pods, &arena, &kept);
    container_devices_to_scv(&kept, &scv, &arena);
    for (size_t i = 0; i < scv.n_held; i++) {
        const struct scv_held *h = &scv.held[i];
        buf_printf(&got, "%.*s %.*s %lld:", SPAN_ARG(h->pod), SPAN_ARG(h->resource),
                   (long long)h->units);
        for (size_t k = 0; k < h->n_uuids; k++)
            buf_printf(&got, " %.*s", SPAN_ARG(h->uuids[k]));
        buf_addc(&got, '\n');
    }
    ck_assert_str_eq(got.p, want);
}

/* An entry for a container with ids of our plugin. */
static const char *ours(const char *pod, const char *const *cards, size_t n,
                        enum ids_resource r)
{
    cleanup_buf struct buf b = {0};
    buf_printf(&b, "ns/%s/c %s", pod, ids_resource_name(r));
    for (size_t i = 0; i < n; i++) {
        struct ids_id id = {ids_tag_of(span_of(cards[i])),
                            r == IDS_MEM ? (int64_t)i : -1};
        buf_addc(&b, ' ');
        ids_write(&b, &id);
    }
    return arena_copy(&arena, buf_span(&b)).p;
}

START_TEST(ids_of_our_plugin_name_the_card)
{
    static const char *const mixed[] = {"GPU-1", "GPU-1", "GPU-0"}, *const one[] = {
                                                                        "GPU-1"};
    static const char *const unknown[] = {"GPU-7", "index-1"};
    held_is(ours("p", one, 1, IDS_MEM), "p aliyun.com/gpu-mem 1: GPU-1\n");
    held_is(ours("p", mixed, 3, IDS_MEM), "p aliyun.com/gpu-mem 3: GPU-0 GPU-1\n");
    held_is(ours("p", mixed + 1, 2, IDS_COUNT),
            "p aliyun.com/gpu-count 2: GPU-0 GPU-1\n");
    held_is(ours("p", unknown, 2, IDS_MEM), "p aliyun.com/gpu-mem 2:\n");
}
END_TEST

START_TEST(ids_of_other_plugins)
{
    held_is("ns/p/c nvidia.com/gpu GPU-1\n"
            "ns/q/c nvidia.com/gpu GPU-0::1 GPU-0::0\n"
            "ns/r/c nvidia.com/gpu MIG-GPU-1/3/0 MIG-8d7c2a\n"
            "ns/s/c nvidia.com/gpu MIG-8d7c2a\n"
            "ns/t/c aliyun.com/gpu-mem GPU-1-_-0 GPU-1-_-1\n"
            "ns/u/c nvidia.com/gpu GPU-11 GPU-\n",
            "p nvidia.com/gpu 1: GPU-1\n"
            "q nvidia.com/gpu 2: GPU-0\n"
            "r nvidia.com/gpu 2: GPU-1\n"
            "s nvidia.com/gpu 1:\n"
            "t aliyun.com/gpu-mem 2:\n"
            "u nvidia.com/gpu 2:\n");
}
END_TEST

START_TEST(the_number_of_entries_is_limited)
{
    cleanup_arena struct arena a = {0};
    struct scv scv = {0};
    const struct span id = SPAN("GPU-0");
    struct container_devices_entry *entries =
        arena_zalloc(&a, (SCV_MAX_HELD + 5) * sizeof *entries);
    for (size_t i = 0; i < SCV_MAX_HELD + 5; i++) {
        cleanup_free char *name = xasprintf("p%06zu", i);
        entries[i] =
            (struct container_devices_entry){SPAN("ns"), arena_copy(&a, span_of(name)),
                                             SPAN("c"),  SPAN("nvidia.com/gpu"),
                                             &id,        1};
    }
    container_devices_to_scv(
        &(struct container_devices){.entries = entries, .n = SCV_MAX_HELD + 5}, &scv, &a);
    ck_assert_uint_eq(scv.n_held, SCV_MAX_HELD);
    ck_assert_span_eq(scv.held[SCV_MAX_HELD - 1].pod, "p008191");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {equal_states_have_equal_entries,
                                  ids_of_our_plugin_name_the_card, ids_of_other_plugins,
                                  the_number_of_entries_is_limited};
    const struct unit_fixtures around = {.end = end};
    return unit_run_with("pods", tests, sizeof tests / sizeof *tests, 60, &around);
}
