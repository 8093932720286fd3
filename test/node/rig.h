/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The allocator with an API server that the test plays: cards of GPU-0, GPU-1, ..., pods
 * described by words, and the outputs in their order.
 */

#include "base/clock.h"
#include "domain/objects.h"
#include "node/alloc.h"

static struct {
    struct alloc *a;
    struct step_outputs out;
    struct step_time now;
    struct arena arena; /* of the input that is made */
    void (*carry_out)(const struct alloc_output *o);
    struct buf *said;                 /* the lines of the log; NULL: not kept */
    int seed, step;                   /* of a random test */
    struct card_seen seen[CARDS_MAX]; /* of the last sample */
    size_t n_seen;
    const struct dialect *dialect; /* of pods from now on */
} rig;

static inline const struct alloc_state *state(void)
{
    return alloc_state(rig.a);
}

/* Carries out the outputs, including those that this causes. */
static inline void carry_out_all(void)
{
    while (rig.out.n + rig.out.n_lines) {
        struct step_outputs out = rig.out;
        rig.out = (struct step_outputs){0};
        for (size_t i = 0; i < out.n_lines && rig.said; i++)
            buf_printf(rig.said, "%s\n", out.lines[i].text);
        bool saved = false;
        STEP_EACH(struct alloc_output, o, &out)
        {
            saved |= o->type == ALLOC_SAVE;
            ck_assert_msg(saved || o->type != ALLOC_ALLOCATED,
                          "seed %d, step %d: answered before it was saved", rig.seed,
                          rig.step);
            rig.dialect = o->type == ALLOC_RELIST ? o->dialect : rig.dialect;
            rig.carry_out(o);
        }
        step_outputs_fini(&out);
    }
}

static inline void feed(struct alloc_input in)
{
    alloc_step(rig.a, rig.now, &in, &rig.out);
    carry_out_all();
}
#define FEED(...) feed((struct alloc_input){__VA_ARGS__})

/* Without cards, pods and the Node. */
static inline void start_alloc(struct alloc_settings s)
{
    s.node = "n1";
    s.unit_mib = 1024;
    s.node_ms = 60000;
    s.slots = s.slots ?: 32;
    s.dialect = s.dialect ?: "";
    s.hami = s.hami ?: &dialect_hami;
    alloc_free(rig.a);
    step_outputs_fini(&rig.out);
    rig.dialect = NULL;
    rig.a = alloc_new(&s);
}

static inline void end_alloc(void)
{
    alloc_free(steal(&rig.a));
    step_outputs_fini(&rig.out);
    arena_fini(&rig.arena);
}

/* A sample of "GPU-0", or "GPU-0:lost", ... */
static inline void sample(struct span words, const int64_t *gib,
                          struct driver_view *driver)
{
    struct card_seen *seen = memset(rig.seen, 0, sizeof rig.seen);
    size_t n = 0;
    for (; words.p; n++) {
        struct span lost = span_cut(&words, ' '), uuid = span_cut(&lost, ':');
        snprintf(seen[n].uuid, sizeof seen[n].uuid, "%.*s", SPAN_ARG(uuid));
        seen[n].index = (int32_t)n;
        seen[n].place = (struct card_place){0, -1, -1};
        seen[n].near.numa_node = -1;
        seen[n].mib = gib[n] * 1024;
        seen[n].present = true;
        seen[n].health.healthy = !lost.p;
    }
    rig.n_seen = n;
    FEED(.type = ALLOC_IN_CARDS, .seen = seen, .n = n, .driver = driver);
}

/* The id of a unit or slot of the card; -1: of the whole card. */
static inline struct span id_of(struct arena *arena, enum ids_resource r,
                                struct span uuid, int64_t unit)
{
    cleanup_buf struct buf b = {0};
    ids_write(&b, r, &(struct ids_id){ids_tag_of(uuid), unit});
    return arena_copy(arena, buf_span(&b));
}

/* Pods */

struct pod_text {
    const char *phase;
    struct buf annotations, inits, apps, running;
};

static const char *const resource_words[IDS_CARD_RESOURCES] = {"mem", "cards", "slots",
                                                               "gpus"};

/* "mem3", "cards1", "slots2", "gpus1": the resource and the amount. */
static inline enum ids_resource read_amount(struct span text, int64_t *n)
{
    int r = 0;
    while (!span_starts(text, span_of(resource_words[r])))
        ck_assert_int_lt(++r, IDS_CARD_RESOURCES);
    size_t skip = strlen(resource_words[r]);
    if (!span_i64((struct span){text.p + skip, text.n - skip}, n))
        *n = 0;
    return (enum ids_resource)r;
}

/* "a:mem3", "i:init:mem2", "s:side:mem1", "a:env:mem3" (it sets NVIDIA_VISIBLE_DEVICES),
 * "a:priv:mem3" (it is privileged), "a:run:mem3" (it runs), "a:run-5:mem3" (since 5 s before the
 * boot), "a:run?:mem3" (its status does not say since when), "a:cores30:gpus1", "a:none". */
static inline void add_container_text(struct pod_text *t, struct span word)
{
    struct span rest = word, name = span_cut(&rest, ':');
    bool init = span_starts(rest, SPAN("init:")), side = span_starts(rest, SPAN("side:"));
    bool env = span_starts(rest, SPAN("env:")), priv = span_starts(rest, SPAN("priv:"));
    bool runs = span_starts(rest, SPAN("run")), cores = span_starts(rest, SPAN("cores"));
    struct span kind = {0};
    struct buf *to = init || side ? &t->inits : &t->apps;
    if (init || side || env || priv || runs || cores)
        kind = span_cut(&rest, ':');
    buf_printf(to, "%s{'name':'%.*s'", to->n ? "," : "", SPAN_ARG(name));
    if (side)
        buf_adds(to, ",'restartPolicy':'Always'");
    if (env)
        buf_adds(to, ",'env':[{'name':'NVIDIA_VISIBLE_DEVICES','value':'all'}]");
    if (priv)
        buf_adds(to, ",'securityContext':{'privileged':true}");
    if (runs) {
        struct span since = {kind.p + 3, kind.n - 3};
        int64_t after_boot_s = 1;
        bool known = !span_eq(since, SPAN("?"));
        ck_assert(!known || !since.n || span_i64(since, &after_boot_s));
        buf_printf(&t->running, "%s{'name':'%.*s','state':{'running':{",
                   t->running.n ? "," : "", SPAN_ARG(name));
        if (known) {
            buf_adds(&t->running, "'startedAt':'");
            clock_format_s(&t->running, rig.now.wall_ns / 1000000000 -
                                            rig.now.mono_ms / 1000 + after_boot_s);
            buf_addc(&t->running, '\'');
        }
        buf_adds(&t->running, "}}}");
    }
    if (!span_eq(rest, SPAN("none"))) {
        int64_t n;
        const char *resource = ids_resource_name(read_amount(rest, &n));
        buf_printf(to, ",'resources':{'limits':{'%s':'%lld'", resource, (long long)n);
        if (cores)
            buf_printf(to, ",'nvidia.com/gpucores':'%.*s'", (int)kind.n - 5, kind.p + 5);
        buf_adds(to, "}}");
    }
    buf_addc(to, '}');
}

/* '+' stands for a blank in a value. */
static inline void add_note(struct pod_text *t, const char *key, struct span value)
{
    buf_printf(&t->annotations, "%s'%s':'", t->annotations.n ? "," : "", key);
    for (size_t i = 0; i < value.n; i++)
        buf_addc(&t->annotations, value.p[i] == '+' ? ' ' : value.p[i]);
    buf_addc(&t->annotations, '\'');
}

/* A phase; "on=0,1": promised these cards, by UUID too; another annotation; a container. */
static inline void add_word(struct pod_text *t, struct span word)
{
    static const char *const phases[] = {"Pending", "Running", "Failed", "Succeeded"};
    static const char *const keys[][2] = {
        {"index", KEY_MEM_IDX}, /* as the Go extender */
        {"count", KEY_GPU_COUNT},     {"mirror", KEY_MIRROR},
        {"placement", KEY_PLACEMENT}, {"assigned", KEY_MEM_ASSIGNED},
        {"parts", KEY_ALLOCATION},    {"uuid", KEY_CARD_UUID},
        {"on", KEY_MEM_IDX},          {"unit", KEY_MEMORY_UNIT},
        {"isolation", KEY_ISOLATION}, {"memory", KEY_MEMORY},
        {"record", KEY_CARD_MEMORY},  {"dev", KEY_MEM_DEV}};
    struct span value = word, key = span_cut(&value, '=');
    cleanup_buf struct buf uuids = {0};
    bool known = !value.p && memchr(word.p, ':', word.n);
    if (known)
        add_container_text(t, word);
    array_items(c, phases)
        if (span_eq(word, span_of(*c))) {
            t->phase = *c;
            known = true;
        }
    for (size_t i = 0; i < ARRAY_LEN(keys) && value.p; i++)
        if (span_eq(key, span_of(keys[i][0]))) {
            add_note(t, keys[i][1], value);
            known = true;
        }
    ck_assert_msg(known, "unknown word: %.*s", SPAN_ARG(word));
    if (!span_eq(key, SPAN("on")))
        return;
    /* A UUID counts only beside an allocation; this one leaves the amounts to the index. */
    add_note(t, KEY_ALLOCATION, SPAN("{}"));
    while (value.p) {
        struct span index = span_cut(&value, ',');
        buf_printf(&uuids, "%sGPU-%.*s", uuids.n ? "," : "", SPAN_ARG(index));
    }
    add_note(t, KEY_CARD_UUID, buf_span(&uuids));
}

/* Its namespace is "other" if its name begins so. New. */
static inline struct pod_allocation *pod_in_words(struct span name, struct span uid,
                                                  struct span words)
{
    struct pod_text t = {.phase = "Pending"};
    while (words.p)
        add_word(&t, span_cut(&words, ' '));
    struct pod pod = object_pod(
        &rig.arena,
        quoted(&rig.arena,
               "{'metadata':{'name':'%.*s','namespace':'%s','uid':'%.*s',"
               "'annotations':{%.*s}},'spec':{'nodeName':'n1','initContainers':[%.*s],"
               "'containers':[%.*s]},'status':{'phase':'%s','containerStatuses':[%.*s]}}",
               SPAN_ARG(name), span_starts(name, SPAN("other")) ? "other" : "default",
               SPAN_ARG(uid), SPAN_ARG(buf_span(&t.annotations)),
               SPAN_ARG(buf_span(&t.inits)), SPAN_ARG(buf_span(&t.apps)), t.phase,
               SPAN_ARG(buf_span(&t.running))));
    buf_fini(&t.running);
    buf_fini(&t.annotations);
    buf_fini(&t.inits);
    buf_fini(&t.apps);
    return pod_allocation_new(&pod, 1024, rig.dialect);
}

/* The API server has the pod. */
static inline void api(struct span name, struct span uid, struct span words)
{
    FEED(.type = ALLOC_IN_POD, .pod = pod_in_words(name, uid, words));
}
