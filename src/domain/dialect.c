/* SPDX-License-Identifier: Apache-2.0 */
/* From the limits and annotations of another system to what a pod asks for and has. */
#include "domain/dialect.h"

#include "base/mem.h"
#include "domain/fields.h"
#include "domain/keys.h"
#include "domain/quantity.h"

#define KEY(text)                                                                        \
    {                                                                                    \
        text, sizeof(text) - 1                                                           \
    }

#define EACH_CONTAINER(c, pod)                                                           \
    for (struct dialect_container *c = (pod)->containers; c; c = c->next)

/* nvidia.com/priority is for HAMi's library alone, and hami.io/device-scoring-weights for its
 * choice of a card. */
const struct dialect dialect_hami = {
    .limits = {[DIALECT_CARDS] = {KEY("nvidia.com/gpu"), 1, 1, REQUEST_MAX_CARDS, false},
               [DIALECT_MEMORY] = {KEY("nvidia.com/gpumem"), 0, 1, INT32_MAX, false},
               [DIALECT_PERCENT] = {KEY("nvidia.com/gpumem-percentage"), 0, 1, 100,
                                    false},
               [DIALECT_CORES] = {KEY("nvidia.com/gpucores"), 0, 1, REQUEST_CORE, true}},
    .alone_by_default = true,
    /* In the order of enum dialect_note. */
    .notes = {KEY("nvidia.com/use-gputype"), KEY("nvidia.com/nouse-gputype"),
              KEY("nvidia.com/use-gpuuuid"), KEY("nvidia.com/nouse-gpuuuid"),
              KEY("hami.io/gpu-scheduler-policy"), KEY("nvidia.com/numa-bind"),
              KEY("nvidia.com/vgpu-mode"), KEY("hami.io/vgpu-node"),
              KEY("hami.io/vgpu-devices-allocated")},
    .mode = KEY("hami-core"),
};

static int configure(struct dialect *d, struct span key, struct span value,
                     struct err *err)
{
    static const struct {
        struct span names[3]; /* of key, absent, factor */
    } fields[DIALECT_LIMITS] = {
        [DIALECT_CARDS] = {{KEY("resourceName"), KEY("defaultGPUNum")}},
        [DIALECT_MEMORY] = {{KEY("resourceMem"), KEY("defaultMemory"),
                             KEY("memoryFactor")}},
        [DIALECT_PERCENT] = {{KEY("resourceMemPercentage")}},
        [DIALECT_CORES] = {{KEY("resourceCores"), KEY("defaultCores")}},
    };
    for (size_t i = 0; i < 3 * DIALECT_LIMITS; i++) {
        struct dialect_rule *rule = &d->limits[i / 3];
        int64_t number = -1;
        if (!key.n || !span_eq(key, fields[i / 3].names[i % 3]))
            continue;
        if (i % 3 == 0) {
            rule->key = value;
            return value.n ? 0
                           : err_set(err, ERR_INVALID, "%.*s is empty", SPAN_ARG(key));
        }
        if (!span_i64(value, &number) || number < (i % 3 == 2) || number > rule->most)
            return err_set(err, ERR_INVALID, "%.*s: \"%.*s\" is not a number up to %lld",
                           SPAN_ARG(key), SPAN_ARG(value), (long long)rule->most);
        *(i % 3 == 1 ? &rule->absent : &rule->factor) = number;
        return 0;
    }
    return err_set(err, ERR_INVALID,
                   "\"%.*s\" is not resourceName, resourceMem, resourceMemPercentage, "
                   "resourceCores, defaultGPUNum, defaultMemory, defaultCores or "
                   "memoryFactor",
                   SPAN_ARG(key));
}

int dialect_configure(struct dialect *d, struct span text, struct err *err)
{
    while (text.p) {
        struct span value = span_cut(&text, ','), key = span_cut(&value, '=');
        if (configure(d, span_trim(key), span_trim(value), err))
            return -1;
    }
    return 0;
}

/* -- the object -- */

/* A pod while it is read. */
struct reading {
    struct dialect_pod pod;
    uint32_t apps, sidecars;
};

struct container {
    struct dialect_container c;
    struct dialect_pod *pod;
    struct span restart_policy;
    bool any; /* has a limit of the dialect */
};

static void read_limits(struct field_reader *r, const struct field *f, void *at)
{
    struct container *read = at;
    struct jread_str key;
    jread_object(r->j, f->where);
    while (jread_member(r->j, &key)) {
        size_t k = 0;
        while (k < DIALECT_LIMITS && !jread_str_eq(key, read->pod->d->limits[k].key))
            k++;
        if (k == DIALECT_LIMITS) {
            jread_skip(r->j);
            continue;
        }
        fields_read_quantity(r->j, f->where, r->a, &read->c.limits[k]);
        read->any = true;
        read->pod->certain |= k != DIALECT_CARDS || !jread_key_is(key, KEY_NVIDIA_GPU);
    }
}

static const struct field resources_fields[] = {
    {FIELD("resources.", "limits", container, c), .type = FIELD_OTHER,
     .read = read_limits},
    FIELDS_END,
};
static const struct field container_fields[] = {
    {FIELD("container.", "name", container, c.name)},
    {FIELD("container.", "restartPolicy", container, restart_policy)},
    {FIELD("container.", "resources", container, c), FIELD_IS_OBJECT(resources_fields)},
    FIELDS_END,
};

static void read_container(struct field_reader *r, const struct field *f, void *at)
{
    struct reading *q = at;
    struct dialect_pod *pod = &q->pod;
    struct container read = {.pod = pod};
    fields_read(r, f->where, container_fields, &read);
    read.c.role = span_eq(f->name, SPAN("containers"))           ? CONTAINER_APP
                  : span_eq(read.restart_policy, SPAN("Always")) ? CONTAINER_SIDECAR
                                                                 : CONTAINER_INIT;
    if (read.c.role != CONTAINER_INIT)
        read.c.index = read.c.role == CONTAINER_APP ? q->apps++ : q->sidecars++;
    if (!read.any)
        return;
    *pod->end = arena_alloc(r->a, sizeof read.c);
    **pod->end = read.c;
    pod->end = &(*pod->end)->next;
}

static void read_meta(struct field_reader *r, const struct field *f, void *at)
{
    struct dialect_pod *pod = at;
    struct object_meta meta;
    struct object_field fields[DIALECT_NOTES];
    (void)f;
    for (size_t k = 0; k < DIALECT_NOTES; k++)
        fields[k] =
            (struct object_field){OBJECT_ANNOTATION, pod->d->notes[k], &pod->notes[k]};
    object_meta_read(r->j, r->a, &meta, fields, ARRAY_LEN(fields));
}

#define CONTAINERS(key)                                                                  \
    FIELD("spec.", key, dialect_pod, d), .type = FIELD_LIST, .read = read_container
static const struct field spec_fields[] = {
    {CONTAINERS("containers")},
    {CONTAINERS("initContainers")},
    FIELDS_END,
};
static const struct field pod_fields[] = {
    {FIELD("", "metadata", dialect_pod, d), .type = FIELD_OTHER, .read = read_meta},
    {FIELD("", "spec", dialect_pod, d), FIELD_IS_OBJECT(spec_fields)},
    FIELDS_END,
};
_Static_assert(offsetof(struct dialect_pod, d) == 0 &&
                   offsetof(struct container, c) == 0 &&
                   offsetof(struct reading, pod) == 0,
               "so that all is read into them");

void dialect_read(struct jread *j, struct arena *a, const struct dialect *d,
                  struct dialect_pod *pod)
{
    struct field_reader reader = {.j = j, .a = a};
    struct reading q = {.pod = {.d = d, .end = &q.pod.containers}};
    fields_read(&reader, "pod", pod_fields, &q);
    EACH_CONTAINER(c, &q.pod)
    c->index += c->role == CONTAINER_SIDECAR ? q.apps : 0;
    *pod = q.pod;
    pod->certain |= pod->notes[DIALECT_ALLOCATED].p != NULL;
}

/* -- requests -- */

static int read_amount(const struct dialect *d, const struct dialect_container *c,
                       enum dialect_limit limit, int64_t *amount, struct err *err)
{
    const struct dialect_rule *rule = &d->limits[limit];
    int64_t most = rule->most / rule->factor;
    *amount = 0;
    if ((c->limits[limit].p && quantity_read(c->limits[limit], amount, err)) ||
        (*amount > most && !rule->capped &&
         err_set(err, ERR_INVALID, "%lld exceeds %lld", (long long)*amount,
                 (long long)most)))
        return err_wrap(err, "container %.*s: limit %.*s", SPAN_ARG(c->name),
                        SPAN_ARG(rule->key));
    *amount = quantity_at_most(*amount, most) * rule->factor;
    return 0;
}

int dialect_request(struct dialect_pod *pod, struct err *err)
{
    const struct dialect *d = pod->d;
    EACH_CONTAINER(c, pod)
    {
        int64_t of[DIALECT_LIMITS];
        for (enum dialect_limit k = 0; k < DIALECT_LIMITS; k++)
            if (read_amount(d, c, k, &of[k], err))
                return -1;
        if (!c->limits[DIALECT_CARDS].p)
            of[DIALECT_CARDS] = c->set[DIALECT_CARDS] = d->limits[DIALECT_CARDS].absent;
        bool asks = c->limits[DIALECT_CARDS].p || c->set[DIALECT_CARDS];
        bool all = of[DIALECT_PERCENT] == 100 ||
                   (!c->limits[DIALECT_MEMORY].p && !c->limits[DIALECT_PERCENT].p);
        if (of[DIALECT_MEMORY] && of[DIALECT_PERCENT])
            of[d->percent_wins ? DIALECT_MEMORY : DIALECT_PERCENT] = 0;
        c->cards = (uint32_t)of[DIALECT_CARDS];
        c->by = of[DIALECT_MEMORY]    ? DIALECT_MEMORY
                : of[DIALECT_PERCENT] ? DIALECT_PERCENT
                                      : DIALECT_CARDS;
        c->mib = c->by == DIALECT_CARDS ? d->limits[DIALECT_MEMORY].absent
                                        : of[DIALECT_MEMORY];
        c->percent = c->mib ? 0 : (uint8_t)(of[DIALECT_PERCENT] ?: 100);
        if (!c->limits[DIALECT_CORES].p) {
            if (asks && all && d->alone_by_default)
                c->set[DIALECT_CORES] = REQUEST_CORE;
            of[DIALECT_CORES] = c->set[DIALECT_CORES] ?: d->limits[DIALECT_CORES].absent;
        }
        c->cores = (uint8_t)of[DIALECT_CORES];
    }
    return 0;
}

int64_t dialect_mib(const struct dialect_pod *pod, int64_t usable_mib, int64_t total_mib)
{
    struct container_sum sum = {0};
    EACH_CONTAINER(c, pod)
    {
        int64_t mib = c->mib ?: usable_mib * c->percent / 100;
        if (c->cards)
            container_sum_add(&sum, c->role,
                              mib <= total_mib ? quantity_at_most(mib, usable_mib) : mib);
    }
    return container_sum_most(&sum);
}

/* Has the list a word that is the text or, with `part`, in the text in any case? */
static bool list_names(struct span list, struct span text, bool part)
{
    while (list.p) {
        struct span word = span_trim(span_cut(&list, ','));
        if (!part && word.n && span_eq(text, word))
            return true;
        for (size_t i = 0; part && word.n && i + word.n <= text.n; i++)
            if (((text.p[i] ^ word.p[0]) | 0x20) == 0x20 &&
                span_eq_nocase((struct span){text.p + i, word.n}, word))
                return true;
    }
    return false;
}

int dialect_join(struct dialect_pod *pod, struct err *err)
{
    const struct dialect *d = pod->d;
    static const int64_t any_card = (int64_t)1 << 50; /* MiB */
    struct span mode = pod->notes[DIALECT_MODE];
    struct container_sum cores = {0};
    pod->cards = 0;
    pod->alone = false;
    EACH_CONTAINER(c, pod)
    {
        if (!c->cards)
            continue;
        if (pod->cards && pod->cards != c->cards)
            return err_set(err, ERR_INVALID,
                           "containers with %u and %u cards of %.*s: all memory of a pod "
                           "is on the same cards",
                           pod->cards, c->cards, SPAN_ARG(d->limits[DIALECT_CARDS].key));
        pod->cards = c->cards;
        pod->alone |= c->cores == REQUEST_CORE;
        container_sum_add(&cores, c->role, c->cores);
    }
    if (container_sum_most(&cores) > REQUEST_CORE ||
        dialect_mib(pod, any_card, any_card) > any_card)
        return err_set(
            err, ERR_INVALID,
            "the containers need more memory or compute than one card has: all "
            "memory of a pod is on the same cards");
    if (pod->cards && mode.p && !memmem(mode.p, mode.n, d->mode.p, d->mode.n))
        return err_set(err, ERR_INVALID, "annotation %.*s does not allow %.*s",
                       SPAN_ARG(d->notes[DIALECT_MODE]), SPAN_ARG(d->mode));
    pod->cores = (uint8_t)container_sum_most(&cores);
    /* HAMi knows no word with blanks around it; here they are ignored. */
    pod->placement = list_names(pod->notes[DIALECT_POLICY], SPAN("binpack"), false)
                         ? PLACE_BINPACK
                         : PLACE_SPREAD;
    pod->one_numa =
        list_names(SPAN("1,t,T,true,True,TRUE"), pod->notes[DIALECT_NUMA], false);
    return 0;
}

bool dialect_accepts(const struct span *lists, const struct span *model,
                     const struct span *uuid)
{
    cleanup_buf struct buf name = {0};
    if (model && model->n && !span_starts(*model, SPAN("NVIDIA")))
        buf_adds(&name, "NVIDIA-");
    if (model)
        buf_add_span(&name, *model);
    for (enum dialect_note k = DIALECT_USE_TYPE; k <= DIALECT_NOUSE_UUID; k++) {
        bool use = k == DIALECT_USE_TYPE || k == DIALECT_USE_UUID;
        bool type = k < DIALECT_USE_UUID;
        if (!span_trim(lists[k]).n ||
            !(type ? model : uuid)) /* a blank list is no rule */
            continue;
        struct span text = type ? buf_span(&name) : *uuid;
        if (!text.n || lists[k].n > (type ? DIALECT_TYPES_MAX : DIALECT_LIST_MAX) ||
            list_names(lists[k], text, type) != use)
            return false;
    }
    return true;
}

void dialect_write(struct buf *out, const struct dialect_pod *pod, int64_t usable_mib,
                   int64_t total_mib)
{
    const struct dialect_rule *limits = pod->d->limits;
    const char *comma = "";
    bool known = true;
    EACH_CONTAINER(c, pod)
    {
        if (!c->cards)
            continue;
        int64_t amount = c->by == DIALECT_MEMORY    ? c->mib / limits[c->by].factor
                         : c->by == DIALECT_PERCENT ? c->percent
                                                    : c->cards;
        buf_printf(out, "%s%.*s %lld", comma, SPAN_ARG(limits[c->by].key),
                   (long long)amount);
        comma = ", ";
        known &= usable_mib || !c->percent;
    }
    buf_printf(out, " on %u card%s", pod->cards, pod->cards == 1 ? "" : "s");
    if (known)
        buf_printf(out, " = %lld MiB%s",
                   (long long)dialect_mib(pod, usable_mib, total_mib),
                   pod->cards == 1 ? "" : " each");
    if (pod->cores)
        buf_printf(out, ", %u percent of %.*s", pod->cores,
                   SPAN_ARG(limits[DIALECT_CORES].key));
}

/* -- promises -- */

/* "UUID,TYPE,MIB,PERCENT", and whatever follows. False when damaged, or of too many cards. */
static bool add_share(struct span text, const struct dialect_container *c,
                      struct dialect_promise *p)
{
    struct span uuid = span_cut(&text, ',');
    struct dialect_share *s = p->shares;
    int64_t amounts[4] = {0, 0, c->percent, 1};
    span_cut(&text, ',');
    while (s < p->shares + p->n && !span_eq(s->uuid, uuid))
        s++;
    if (!uuid.n || s == p->shares + REQUEST_MAX_CARDS ||
        !span_i64(span_cut(&text, ','), &amounts[0]) || amounts[0] < 1 ||
        amounts[0] > INT32_MAX || !span_i64(span_cut(&text, ','), &amounts[1]) ||
        amounts[1] < 0 || amounts[1] > REQUEST_CORE)
        return false;
    p->n += s == p->shares + p->n;
    s->uuid = uuid;
    amounts[0] = amounts[0] < c->mib ? c->mib : amounts[0];
    amounts[1] = amounts[1] < c->cores ? c->cores : amounts[1];
    int64_t *const sums[] = {&s->mib, &s->cores, &s->percent, &s->slots};
    for (size_t i = 0; i < ARRAY_LEN(sums); i++) {
        container_sum_add(&s->sums[i], c->role, amounts[i]);
        *sums[i] = container_sum_most(&s->sums[i]);
    }
    return true;
}

/* Reads the next entry that is not empty: HAMi writes one for a container without a card only
 * where cards are registered without a model. False unless it has so many cards. */
static bool add_entry(struct span *rest, const struct dialect_container *c,
                      struct dialect_promise *p)
{
    struct span entry = {0};
    uint32_t n = 0;
    while (rest->p && !entry.n)
        entry = span_cut(rest, ';');
    for (; entry.n; n++)
        if (!add_share(span_cut(&entry, ':'), c, p))
            return false;
    return n == c->cards;
}

int dialect_promise(const struct dialect_pod *pod, struct span node,
                    struct dialect_promise *p, struct err *err)
{
    struct span text = pod->notes[DIALECT_ALLOCATED], rest = text;
    bool good = span_eq(pod->notes[DIALECT_NODE], node);
    *p = (struct dialect_promise){0};
    if (!pod->notes[DIALECT_NODE].p || !text.p)
        return 0;
    for (int apps = 0; apps < 2; apps++) /* init containers first */
        EACH_CONTAINER(c, pod)
    if (c->cards && (c->role == CONTAINER_APP) == apps)
        good = good && add_entry(&rest, c, p);
    if (good && add_entry(&rest, &(struct dialect_container){0}, p))
        return 0;
    p->n = 0;
    return err_set(err, ERR_INVALID,
                   "annotation %.*s is not of this node and these containers: \"%.*s\"",
                   SPAN_ARG(pod->d->notes[DIALECT_ALLOCATED]), SPAN_ARG(text));
}
