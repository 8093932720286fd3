/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "domain/keys.h"
#include "plugin/response_priv.h"

static const char *copy(struct arena *a, const char *x, const char *y, const char *z)
{
    cleanup_free char *text = xasprintf("%s%s%s", x, y, z);
    return arena_copy(a, span_of(text)).p;
}

static const char *isolation_name(enum isolation i)
{
    static const char *const names[] = {"none", "mps", "limit"};
    return names[i];
}

static const struct preload_word {
    struct span word;
    enum preload preload;
} preload_words[] = {{SPAN("limit"), PRELOAD_BOTH},
                     {SPAN("limit-env"), PRELOAD_ENV},
                     {SPAN("limit-file"), PRELOAD_FILE}};

/* The ways of loading that the word asks for; 0: it does not ask for the limit. */
static enum preload preload_of(struct span asks)
{
    for (size_t i = 0; i < ARRAY_LEN(preload_words); i++)
        if (span_eq(asks, preload_words[i].word))
            return preload_words[i].preload;
    return (enum preload)0;
}

enum isolation response_isolation(const struct response_settings *settings,
                                  const struct pod_allocation *pod, struct response *r,
                                  struct arena *a)
{
    enum isolation is = settings->isolation;
    const char *why = NULL;
    struct span asks = pod->isolation;
    enum preload preload = preload_of(asks);
    bool less = span_eq(asks, SPAN("none")) ||
                (is == ISOLATION_LIMIT && preload && preload != PRELOAD_BOTH);
    r->preload = PRELOAD_BOTH;
    if (!asks.n || span_eq(asks, span_of(isolation_name(is))))
        why = NULL;
    else if (less && !settings->less_isolation)
        why = "this node allows no less than its own";
    else if (preload) {
        is = ISOLATION_LIMIT;
        r->preload = preload;
    } else if (less)
        is = ISOLATION_NONE;
    else if (span_eq(asks, SPAN("mps")))
        why = "this node has no MPS daemon";
    else
        why = "expected limit, limit-env, limit-file, mps or none";
    if (is == ISOLATION_LIMIT && !settings->limit_dir) {
        is = ISOLATION_NONE;
        why = "this node has no libgpushare-limit.so";
    }
    if (why) {
        cleanup_free char *text = xasprintf(
            "annotation gpushare/isolation \"%.*s\": %s; its containers have %s",
            (int)(asks.n < 32 ? asks.n : 32), asks.n ? asks.p : "", why,
            isolation_name(is));
        r->not_isolated = copy(a, text, "", "");
    }
    return is;
}

const char *response_limit_evaded(const struct pod_allocation *pod,
                                  const struct allocation *al, const struct response *r,
                                  struct arena *a)
{
    for (size_t i = 0; i < pod->n_containers && r->preload == PRELOAD_ENV; i++)
        if (pod->containers[i].own_preload &&
            span_eq(pod->containers[i].name, al->container)) {
            cleanup_free char *text =
                xasprintf("container %.*s sets LD_PRELOAD itself, so "
                          "gpushare/isolation: limit-env does not limit it",
                          SPAN_ARG(al->container));
            return copy(a, text, "", "");
        }
    return NULL;
}

/* The units of the card that the pod's containers hold at most at a time, which is what the
 * ledger promises (domain/limits.h): app containers and sidecars together, or a plain init
 * container and the sidecars before it. The containers are in the order of admission. */
static int64_t units_of(const struct cards *cards, const struct pod_allocation *pod,
                        const struct plugin_card *card)
{
    int64_t sum = 0, most = 0; /* init containers come before app containers */
    for (size_t i = 0; i < pod->n_containers; i++) {
        const struct pod_allocation_container *c = &pod->containers[i];
        for (size_t k = 0; k < c->n_shares && c->resource == IDS_MEM; k++) {
            const struct pod_allocation_share *s = &c->shares[k];
            const struct plugin_card *of = s->uuid.n ? cards_by_uuid(cards, s->uuid)
                                                     : cards_by_index(cards, s->index);
            if (of != card)
                continue;
            if (c->role != CONTAINER_INIT)
                sum += s->units;
            else if (sum + s->units > most)
                most = sum + s->units;
        }
    }
    return sum > most ? sum : most;
}

static void add_mount(struct response *r, const char *at, const char *from,
                      bool read_only)
{
    r->mounts[r->n_mounts++] = (struct response_pair){at, from, read_only};
    r->n_limit_mounts++;
}

void response_limit(const struct response_settings *settings, const struct cards *cards,
                    const struct pod_allocation *pod, struct response *r, struct arena *a)
{
    static const char library[] = LIMIT_DIR_CONTAINER "/libgpushare-limit.so";
    const char *dir = settings->limit_dir;
    struct limit_plan *plan = arena_zalloc(a, sizeof *plan);
    plan->uid = arena_copy(a, pod->uid).p;
    for (size_t i = 0; i < cards->n; i++) {
        const struct plugin_card *card = &cards->items[i];
        int64_t units = units_of(cards, pod, card);
        if (units <= 0)
            continue;
        if (plan->n == LIMIT_DIR_CARDS) {
            r->not_isolated = "the pod has more cards than libgpushare-limit.so limits";
            return;
        }
        plan->cards[plan->n++] =
            (struct limit_card){card->has_uuid ? copy(a, card->uuid, "", "") : "",
                                units * settings->unit_mib};
    }
    if (!plan->n)
        return;
    const char *pods = copy(a, dir, "/pods/", plan->uid);
    r->limit = plan;
    add_mount(r, library, copy(a, dir, "/libgpushare-limit.so", ""), true);
    /* glibc reads the file, and musl only the variable. A library is loaded once. */
    if (r->preload & PRELOAD_FILE)
        add_mount(r, "/etc/ld.so.preload", copy(a, dir, "/ld.so.preload", ""), true);
    if (r->preload & PRELOAD_ENV) {
        r->envs[r->n_envs++] = (struct response_pair){KEY_PRELOAD, library, false};
        r->n_limit_envs++;
    }
    add_mount(r, LIMIT_DIR_CONTAINER "/limit", copy(a, pods, "/limit", ""), true);
    for (size_t i = 0; i < plan->n; i++) {
        cleanup_free char *name = xasprintf("/state/%zu", i);
        add_mount(r, copy(a, LIMIT_DIR_CONTAINER, name, ""), copy(a, pods, name, ""),
                  false);
    }
}
