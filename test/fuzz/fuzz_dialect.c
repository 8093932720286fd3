/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Pods in HAMi's words. Every request that is accepted can be promised: a number of cards, MiB or
 * percent, and an amount that grows with the card. A promise is what its annotation says by a
 * reading of its own, and a pod that asks for a card has one or an error. As a request, it asks for the
 * same of each card; no pod asks for two things on one node, and none that asks for nothing.
 */

#include "fuzz/fuzz.h"

#include "base/array.h"
#include "domain/dialect.h"
#include "domain/request.h"

static void check_container(const struct dialect_container *c)
{
    fuzz_fail_if(c->cards > REQUEST_MAX_CARDS || c->cores > REQUEST_CORE ||
                     c->percent > 100 || c->mib < 0 || c->mib > INT32_MAX,
                 "a container asks for an amount out of range");
    fuzz_fail_if(c->cards && !c->mib == !c->percent, "neither MiB nor percent, or both");
}

static void check_join(const struct dialect_pod *pod)
{
    int64_t small = dialect_mib(pod, 10000, 10400),
            large = dialect_mib(pod, 80000, 81559);
    cleanup_buf struct buf text = {0};
    fuzz_fail_if(pod->cards && (small < 1 || large < small),
                 "an amount that does not grow with the card");
    fuzz_fail_if(pod->cores > REQUEST_CORE || (pod->alone && pod->cores != REQUEST_CORE),
                 "more compute than a card has");
    for (const struct dialect_container *c = pod->containers; c; c = c->next)
        fuzz_fail_if(c->cards && c->cards != pod->cards, "another number of cards");
    if (pod->cards)
        dialect_write(&text, pod, 10000, 10400);
    struct span use = pod->notes[DIALECT_USE_TYPE],
                nouse = pod->notes[DIALECT_NOUSE_TYPE];
    fuzz_fail_if(span_trim(use).n && span_eq(use, nouse) &&
                     dialect_accepts(pod->notes, &SPAN("Tesla T4"), &SPAN("GPU-a")),
                 "a model is both wanted and unwanted");
}

/* MiB of all shares of the annotation with this UUID, and at least `least` for each. */
static int64_t sum_of(struct span text, struct span uuid, int64_t least)
{
    int64_t sum = 0;
    cleanup_free char *copy = xmemdup0(text.p, text.n);
    char *rest = NULL, *fields = NULL;
    for (char *part = strtok_r(copy, ":;", &rest); part;
         part = strtok_r(NULL, ":;", &rest)) {
        const char *own = strtok_r(part, ",", &fields);
        strtok_r(NULL, ",", &fields);
        const char *mib = strtok_r(NULL, ",", &fields);
        if (own && mib && span_eq(span_of(own), uuid))
            sum += atoll(mib) > least ? atoll(mib) : least;
    }
    return sum;
}

static void check_promise(const struct dialect_pod *pod, const struct pod *object)
{
    struct dialect_promise p, again;
    struct err err = {0};
    struct span text = pod->notes[DIALECT_ALLOCATED];
    bool inits = false, cards = false;
    int64_t most = 0; /* that the limits of one container ask for */
    if (dialect_promise(pod, object->node, &p, &err)) {
        fuzz_check_error(&err);
        fuzz_fail_if(p.n > 0, "a promise beside an error");
        return;
    }
    for (const struct dialect_container *c = pod->containers; c; c = c->next) {
        cards |= c->cards > 0;
        inits |= c->cards && c->role != CONTAINER_APP;
        most = c->cards && c->mib > most ? c->mib : most;
    }
    fuzz_fail_if(text.p && pod->notes[DIALECT_NODE].p && !p.n != !cards,
                 "no promise for a pod that asks, or one for a pod that does not");
    for (size_t i = 0; i < p.n; i++) {
        const struct dialect_share *s = &p.shares[i];
        fuzz_fail_if(s->mib < 1 || s->cores < 0, "an empty share");
        for (size_t k = 0; k < i; k++)
            fuzz_fail_if(span_eq(s->uuid, p.shares[k].uuid), "a card has two shares");
        /* A field that is empty is not one for strtok_r. */
        fuzz_fail_if(!memmem(text.p, text.n, ",,", 2) &&
                         memchr(text.p, 0, text.n) == NULL &&
                         (s->mib > sum_of(text, s->uuid, most) ||
                          (!inits && s->mib < sum_of(text, s->uuid, 0))),
                     "another reading gives another amount");
    }
    fuzz_fail_if(dialect_promise(pod, object->node, &again, NULL) || again.n != p.n,
                 "a second reading differs");
}

/* What the pod asks for on a node with or without the dialect; `joined`: it is valid in it. */
static void check_request(const struct dialect_pod *pod, const struct pod *object,
                          struct arena *a, bool joined)
{
    const struct request_rules plain = {.unit_mib = 1024},
                               rules = {.unit_mib = 1024, .dialect = &dialect_hami};
    struct request r, today;
    struct err err = {0};
    struct pod other_cards = *object; /* links are of cards that are ours */
    if (pod->certain)
        other_cards.min_link = (struct span){0};
    int bad_today = request_of(&other_cards, &plain, a, &today, NULL);
    int bad = request_of(object, &rules, a, &r, &err);
    if (bad)
        fuzz_check_error(&err);
    fuzz_fail_if(bad_today && !bad, "an invalid request became valid");
    fuzz_fail_if(bad && !bad_today && !pod->certain,
                 "a request of NVIDIA's devices became invalid");
    if (bad)
        return;
    const struct request *here = request_on(&r, SCV_DIALECT_HAMI);
    bool hami = here->dialect && here->kind != REQUEST_NONE;
    bool ours = today.kind == REQUEST_MEMORY || today.kind == REQUEST_CARDS;
    if (hami && !joined && object->node.n) { /* bound by another system: it has cards */
        fuzz_fail_if(ours || here->kind != REQUEST_CARDS || !here->cards,
                     "a bound pod that asks in HAMi's words has no cards");
        return;
    }
    fuzz_fail_if(hami && (ours || !joined || !pod->cards),
                 "a request that HAMi's words do not make, or in two languages");
    fuzz_fail_if(!hami && !ours && joined && pod->cards,
                 "a pod that asks in HAMi's words has no request");
    if (!r.dialect) {
        struct request single = r;
        single.hami = NULL;
        fuzz_fail_if(!request_equal(&single, &today), "another request on plain nodes");
    } else {
        fuzz_fail_if(object->node.n || !pod->certain || r.hami,
                     "a request of NVIDIA's devices is HAMi's on every node");
    }
    if (!hami)
        return;
    static const int64_t sizes[][2] = {{10000, 400}, {81559, 0}, {1, 5}};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        fuzz_fail_if(request_mib(here, sizes[i][0], sizes[i][1]) !=
                         dialect_mib(pod, sizes[i][0], sizes[i][0] + sizes[i][1]),
                     "another amount of a card");
    fuzz_fail_if(here->cards != pod->cards ||
                     (here->kind == REQUEST_CARDS) != pod->alone ||
                     (!pod->alone && here->compute_percent != pod->cores),
                 "another number of cards, or other cores");
}

void fuzz_input(struct span in)
{
    cleanup_arena struct arena arena = {0};
    struct dialect_pod pod;
    struct pod object;
    struct err err = {0};
    struct jread j, k;
    jread_init(&j, in.p, in.n);
    dialect_read(&j, &arena, &dialect_hami, &pod);
    jread_init(&k, in.p, in.n);
    pod_read(&k, &arena, &object);
    if (jread_finish(&j, NULL) || jread_finish(&k, NULL))
        return;
    if (dialect_request(&pod, &err)) {
        fuzz_check_error(&err);
        return;
    }
    for (const struct dialect_container *c = pod.containers; c; c = c->next)
        check_container(c);
    if (object.node.n)
        pod.notes[DIALECT_MODE] = (struct span){0};
    bool joined = dialect_join(&pod, &err) == 0;
    if (joined)
        check_join(&pod);
    else
        fuzz_check_error(&err);
    check_request(&pod, &object, &arena, joined);
    check_promise(&pod, &object);
}

/* -- pods, most of them valid -- */

static void add_limits(struct rng *rng, struct buf *out)
{
    static const char *const keys[] = {"gpu", "gpumem", "gpumem-percentage", "gpucores"};
    static const char *const amounts[] = {"1",  "1",   "1",  "2",  "0",
                                          "30", "100", "3k", "101"};
    const char *comma = "";
    buf_adds(out, "\"resources\":{\"limits\":{");
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        if (rng_below(rng, 2))
            continue;
        buf_printf(out, "%s\"nvidia.com/%s\":\"%s\"", comma, keys[i],
                   amounts[rng_below(rng, i ? ARRAY_LEN(amounts) : 5)]);
        comma = ",";
    }
    buf_adds(out, "}}");
}

static void add_containers(struct rng *rng, struct buf *out)
{
    size_t n = 1 + rng_below(rng, 2);
    buf_adds(out, "[");
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "%s{\"name\":\"c%zu\",%s", i ? "," : "", i,
                   rng_below(rng, 4) ? "" : "\"restartPolicy\":\"Always\",");
        add_limits(rng, out);
        buf_adds(out, "}");
    }
    buf_adds(out, "]");
}

void fuzz_generate(struct rng *rng, struct buf *out)
{
    size_t entries = rng_below(rng, 4);
    if (rng_below(rng, 2)) {
        buf_adds(out, "{\"metadata\":{\"name\":\"p\"},\"spec\":{\"containers\":");
        add_containers(rng, out);
        buf_adds(out, "}}");
        return;
    }
    buf_adds(out, "{\"metadata\":{\"name\":\"p\",\"annotations\":{\"hami.io/vgpu-node\":"
                  "\"n1\",\"hami.io/vgpu-devices-allocated\":\"");
    for (size_t i = 0; i < entries; i++) {
        size_t cards = rng_below(rng, 3);
        for (size_t k = 0; k < cards; k++)
            buf_printf(out, "GPU-%zu,NVIDIA,%u,%u:", k, (unsigned)rng_below(rng, 5000),
                       (unsigned)rng_below(rng, 110));
        buf_adds(out, ";");
    }
    buf_adds(out, "\"}},\"spec\":{\"nodeName\":\"n1\",\"containers\":");
    add_containers(rng, out);
    if (!rng_below(rng, 3)) {
        buf_adds(out, ",\"initContainers\":");
        add_containers(rng, out);
    }
    buf_adds(out, "}}");
}
