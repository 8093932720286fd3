/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "cli/explain_priv.h"

/* Cores, with up to three decimals. */
static void add_cores(struct buf *out, int64_t milli)
{
    buf_add_i64(out, milli / 1000);
    if (milli % 1000 == 0)
        return;
    buf_printf(out, ".%03" PRId64, milli % 1000);
    while (out->p[out->n - 1] == '0')
        out->p[--out->n] = '\0';
}

static void add_mib(struct buf *out, int64_t bytes)
{
    buf_printf(out, "%" PRId64 " MiB", (bytes >> 20) + (bytes % (1 << 20) != 0));
}

static int64_t left(int64_t offered, int64_t requested)
{
    return offered > requested ? offered - requested : 0;
}

bool explain_space(struct buf *out, const struct ledger_node *node,
                   const struct ledger_pod *pod)
{
    struct resources has = ledger_node_allocatable(node);
    struct resources used = ledger_node_requested(node);
    struct resources wanted = ledger_pod_requests(pod);
    int64_t cpu = left(has.cpu_milli, used.cpu_milli);
    int64_t memory = left(has.memory, used.memory);
    size_t before = out->n;
    if (has.cpu_milli && wanted.cpu_milli > cpu) {
        buf_adds(out, "; lacks CPU: the pod requests ");
        add_cores(out, wanted.cpu_milli);
        buf_adds(out, ", free are ");
        add_cores(out, cpu);
    }
    if (has.memory && wanted.memory > memory) {
        buf_adds(out, "; lacks node memory: the pod requests ");
        add_mib(out, wanted.memory);
        buf_printf(out, ", free are %" PRId64 " MiB", memory >> 20);
    }
    if (has.pods && used.pods >= has.pods)
        buf_printf(out, "; no pod slot is free: %" PRId64 " of %" PRId64 " are taken",
                   used.pods, has.pods);
    return out->n > before;
}
