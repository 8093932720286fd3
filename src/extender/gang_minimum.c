/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/gang_minimum.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"

enum { LOG_MS = 60 * 1000 };

struct answer {
    struct span key; /* gang_key; owned; empty: unused */
    uint32_t minimum;
    char *invalid; /* owned; why the minimum cannot be read; NULL: it can */
    int64_t until_ms;
};

struct gang_minimum {
    struct pod_group_reader from;
    pthread_mutex_t lock; /* protects the members below */
    struct answer kept[GANG_MINIMUM_KEPT];
    int64_t read_ms[GANG_KINDS]; /* objects of that kind: not before */
    int64_t log_ms;              /* not before */
};

struct gang_minimum *gang_minimum_new(const struct pod_group_reader *from)
{
    struct gang_minimum *g = xcalloc(1, sizeof *g);
    g->from = *from;
    pthread_mutex_init(&g->lock, NULL);
    return g;
}

void gang_minimum_free(struct gang_minimum *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < GANG_MINIMUM_KEPT; i++) {
        free((char *)g->kept[i].key.p);
        free(g->kept[i].invalid);
    }
    pthread_mutex_destroy(&g->lock);
    free(g);
}

/* The answer for the key, or the place for one: that of the answer that expired longest ago, or
 * will expire first. Requires the lock. */
static struct answer *place_of(struct gang_minimum *g, struct span key)
{
    struct answer *a = &g->kept[0];
    for (size_t i = 0; i < GANG_MINIMUM_KEPT; i++) {
        if (span_eq(g->kept[i].key, key))
            return &g->kept[i];
        if (g->kept[i].until_ms < a->until_ms)
            a = &g->kept[i];
    }
    return a;
}

/* Sets *minimum; -1: the object says what cannot be read. */
static int answer_read(const struct answer *a, uint32_t *minimum, struct err *err)
{
    *minimum = a->minimum;
    return a->invalid ? err_set(err, ERR_INVALID, "%s", a->invalid) : 0;
}

int gang_minimum_of(struct gang_minimum *g, struct span ns, const struct gang *gang,
                    uint32_t *minimum, struct err *err)
{
    cleanup_buf struct buf key = {0};
    struct err why = {0};
    int rc = 0;
    *minimum = 0;
    gang_key(&key, ns, gang);
    pthread_mutex_lock(&g->lock);
    int64_t now_ms = g->from.now_ms();
    struct answer *a = place_of(g, buf_span(&key));
    bool known = span_eq(a->key, buf_span(&key));
    if (known)
        rc = answer_read(a, minimum, err);
    bool enough = now_ms < g->read_ms[gang->kind] || (known && a->until_ms > now_ms);
    pthread_mutex_unlock(&g->lock);
    if (enough)
        return rc;
    uint32_t said = 0;
    int failed = pod_group_read(&g->from, ns, gang, GANG_MINIMUM_CALL_MS, &said, &why);
    bool answered = !failed || why.code == ERR_INVALID;
    pthread_mutex_lock(&g->lock);
    now_ms = g->from.now_ms();
    bool logs =
        !answered && now_ms >= g->log_ms; /* a missing permission fails every call */
    if (logs)
        g->log_ms = now_ms + LOG_MS;
    if (!answered && (why.code == ERR_TIMEOUT || why.code == ERR_UNAVAILABLE)) {
        g->read_ms[gang->kind] = now_ms + GANG_MINIMUM_PAUSE_MS;
    } else {
        a = place_of(g, buf_span(&key));
        if (!span_eq(a->key, buf_span(&key))) {
            free((char *)a->key.p);
            free(a->invalid);
            *a = (struct answer){.key = {xmemdup0(key.p, key.n), key.n}};
        }
        a->until_ms = now_ms + GANG_MINIMUM_KEEP_MS;
        if (answered) { /* else the last one counts */
            free(a->invalid);
            a->invalid = failed ? xstrdup(why.msg) : NULL;
            a->minimum = said;
        }
        rc = answer_read(a, minimum, err);
    }
    pthread_mutex_unlock(&g->lock);
    if (logs)
        log_warn(
            "gang",
            "cannot read the minimum of a gang; all members need a place, or as many "
            "as before",
            LOG_ERR(&why));
    return rc;
}
