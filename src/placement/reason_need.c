/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/reason_priv.h"

#include <assert.h>

#include "domain/keys.h"

/* What a request needs: the first part of most reasons, the same for all nodes. */

void reason_add_mib(struct buf *out, int64_t mib)
{
    buf_add_i64(out, mib);
    buf_adds(out, " MiB");
}

static void add_whole(struct buf *out, const struct request *r)
{
    bool ours = r->kind == REQUEST_CARDS;
    buf_add_i64(out, r->cards);
    buf_adds(out, ours ? " whole card" : " card");
    buf_adds(out, r->cards == 1 ? "" : "s");
    buf_adds(out, ours ? "" : " through " KEY_NVIDIA_GPU);
    if (r->mib_per_card) {
        buf_adds(out, " of at least ");
        reason_add_mib(out, r->mib_per_card);
    }
}

void reason_add_percent(struct buf *out, uint32_t percent)
{
    buf_add_i64(out, percent);
    buf_adds(out, " %");
}

static void add_shared(struct buf *out, const struct request *r)
{
    reason_add_mib(out, r->mib_per_card);
    if (r->core) {
        buf_adds(out, " and ");
        reason_add_percent(out, r->core);
        buf_adds(out, " of the compute");
    }
    if (r->cards == 1) {
        buf_adds(out, " on one card");
        return;
    }
    buf_adds(out, " on each of ");
    buf_add_i64(out, r->cards);
    buf_adds(out, " cards");
}

static void add_need(struct buf *out, const struct request *r)
{
    buf_adds(out, "needs ");
    if (r->kind == REQUEST_MEMORY)
        add_shared(out, r);
    else
        add_whole(out, r);
    if (r->models.n) {
        buf_adds(out, ", model ");
        reason_add_plain(out, r->models);
    }
    if (r->clock_mhz) {
        buf_adds(out, ", memory clock ");
        buf_adds(out, r->clock_exact ? "" : "at least ");
        buf_add_i64(out, r->clock_mhz);
        buf_adds(out, " MHz");
    }
}

void reason_prepare(struct prepared_reason *r, const struct request *request)
{
    *r = (struct prepared_reason){.request = request};
    /* A filter call allocates nothing: the longest text fits into r->need. */
    struct buf need = {.p = r->need, .cap = sizeof r->need};
    add_need(&need, request);
    r->need_n = need.n;
    if (request->kind == REQUEST_MEMORY && request->cards == 1 && !request->core &&
        !request_is_selective(request)) {
        buf_adds(&need, REASON_MOST_FREE);
        r->most_free_n = need.n;
    }
    assert(need.p == r->need);
}
