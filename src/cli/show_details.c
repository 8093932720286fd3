/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "base/mem.h"
#include "cli/show_priv.h"

static struct buf amount_of(const struct page *p, int64_t mib)
{
    struct buf text = {0};
    if (mib < 0)
        buf_adds(&text, "-");
    else
        show_amount(&text, mib, p->unit);
    return text;
}

void show_page_amount(struct page *p, enum color color, int64_t mib)
{
    cleanup_buf struct buf text = amount_of(p, mib);
    table_span(&p->table, color, buf_span(&text));
}

/* Ends the line. */
static void add_last_amount(struct page *p, int64_t mib)
{
    cleanup_buf struct buf text = amount_of(p, mib);
    table_end(&p->table, PLAIN, "%s", text.p);
}

void show_page_write(struct page *p, struct buf *out)
{
    p->table.colors = p->show->colors;
    table_write(&p->table, out);
    table_fini(&p->table);
}

static void percent(struct page *p, int64_t value)
{
    if (value < 0)
        table_cell(&p->table, PLAIN, "-");
    else
        table_cell(&p->table, PLAIN, "%" PRId64 "%%", value);
}

/* What is used, and if the pod was promised a share, what that is. */
static void add_compute(struct page *p, int64_t used, uint32_t promised)
{
    if (!promised)
        percent(p, used);
    else if (used < 0)
        table_cell(&p->table, PLAIN, "-/%u%%", promised);
    else
        table_cell(&p->table, used > promised ? YELLOW : PLAIN, "%" PRId64 "%%/%u%%",
                   used, promised);
}

/* `mib`: the promise; -1: none that is known. */
static void add_pod_row(struct page *p, const struct ledger_node *node,
                        const struct ledger_pod *pod, const char *gpu, int64_t mib,
                        const struct ledger_use *use, uint32_t core)
{
    const struct cluster_state_pod *object = cluster_state_pod(p->cs, pod->uid);
    bool assigned = object && span_eq(object->assigned, SPAN("true"));
    table_span(&p->table, PLAIN, node->name);
    table_cell(&p->table, gpu ? PLAIN : YELLOW, "%s", gpu ? gpu : "none");
    table_span(&p->table, PLAIN, pod->ns);
    table_span(&p->table, PLAIN, pod->name);
    show_page_amount(p, PLAIN, mib);
    show_page_amount(p, mib >= 0 && use->used_mib > mib ? RED : PLAIN, use->used_mib);
    add_compute(p, use->sm_percent, core);
    table_end(&p->table, PLAIN, "%s",
              pod->running ? "running"
              : assigned   ? "assigned"
                           : "bound");
}

static void add_pod_rows(struct page *p, const struct ledger_node *node)
{
    static const struct ledger_use unknown = {-1, -1};
    const struct ledger_pod **pods;
    size_t n = show_pods_on(node, &p->arena, &pods);
    for (size_t i = 0; i < n; i++) {
        bool any = false;
        for (uint32_t k = 0; k < node->n_cards; k++) {
            int64_t mib = ledger_pod_mib(pods[i], &node->cards[k]);
            cleanup_free char *gpu = xasprintf("%" PRId32, node->cards[k].index);
            struct ledger_use use = unknown;
            if (!ledger_pod_use(node, pods[i], &node->cards[k], &use)) {
                if (mib < 0)
                    continue;
                use = unknown;
            }
            add_pod_row(p, node, pods[i], gpu, mib, &use,
                        ledger_pod_core(pods[i], &node->cards[k]));
            any = true;
        }
        if (!any && pods[i]->request->kind != REQUEST_NONE)
            add_pod_row(p, node, pods[i], NULL, -1, &unknown, 0);
    }
}

static void add_names(struct page *p, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        (i + 1 < n ? table_cell : table_end)(&p->table, BOLD, "%s", names[i]);
}

static void add_pending(struct page *p, struct buf *out)
{
    static const char *const names[] = {"NAMESPACE", "PENDING POD", "REQUEST",
                                        "PRIORITY"};
    const struct ledger_pod **pods;
    size_t n = show_pending(cluster_state_ledger(p->cs), &p->arena, &pods);
    if (!n || p->show->node.n)
        return;
    buf_addc(out, '\n');
    add_names(p, names, ARRAY_LEN(names));
    for (size_t i = 0; i < n; i++) {
        cleanup_buf struct buf request = {0};
        if (pods[i]->invalid_reason)
            buf_adds(&request, pods[i]->invalid_reason);
        else
            request_write(&request, pods[i]->request, p->unit);
        table_span(&p->table, PLAIN, pods[i]->ns);
        table_span(&p->table, PLAIN, pods[i]->name);
        table_span(&p->table, pods[i]->invalid_reason ? RED : PLAIN, buf_span(&request));
        table_end(&p->table, PLAIN, "%" PRId32, pods[i]->priority);
    }
    show_page_write(p, out);
}

static int32_t index_of(const struct ledger_node *node, struct span uuid)
{
    for (uint32_t i = 0; i < node->n_cards; i++)
        if (span_eq(node->cards[i].uuid, uuid))
            return node->cards[i].index;
    return -1;
}

static void add_other_use(struct page *p, const struct ledger_node *node,
                          const struct scv_process *use)
{
    int32_t index = index_of(node, use->uuid);
    cleanup_buf struct buf what = {0};
    buf_add_span(&what, use->name);
    if (!use->pid)
        buf_printf(&what, "pod %.*s/%.*s", SPAN_ARG(use->ns), SPAN_ARG(use->pod));
    else if (use->unmapped)
        buf_adds(&what, ", not known whether in a pod");
    else
        buf_adds(&what, ", outside Kubernetes");
    table_span(&p->table, PLAIN, node->name);
    if (index < 0)
        table_cell(&p->table, PLAIN, "-");
    else
        table_cell(&p->table, PLAIN, "%" PRId32, index);
    table_span(&p->table, YELLOW, buf_span(&what));
    if (use->pid)
        table_cell(&p->table, PLAIN, "%" PRId64, use->pid);
    else
        table_cell(&p->table, PLAIN, "-");
    percent(p, use->sm_percent);
    add_last_amount(p, use->used_mib);
}

/* What uses cards without a promise. */
static void add_other_uses(struct page *p, struct buf *out,
                           const struct ledger_node **nodes, size_t n)
{
    static const char *const names[] = {"NODE", "GPU", "OTHER USE", "PID", "SM", "USED"};
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        const struct cluster_state_scv *s = cluster_state_scv(p->cs, nodes[i]->name);
        for (size_t k = 0; s && k < s->scv.n_processes; k++) {
            if (!show_is_other_use(nodes[i], &s->scv.processes[k]))
                continue;
            if (!any)
                add_names(p, names, ARRAY_LEN(names));
            any = true;
            add_other_use(p, nodes[i], &s->scv.processes[k]);
        }
    }
    if (!any)
        return;
    buf_addc(out, '\n');
    show_page_write(p, out);
}

void show_page_details(struct page *p, struct buf *out, const struct ledger_node **nodes,
                       size_t n)
{
    static const char *const names[] = {"NODE",     "GPU",  "NAMESPACE", "POD",
                                        "PROMISED", "USED", "SM",        "STATE"};
    bool any = false;
    for (size_t i = 0; i < n; i++)
        any |= nodes[i]->pods != NULL;
    if (any) {
        buf_addc(out, '\n');
        add_names(p, names, ARRAY_LEN(names));
        for (size_t i = 0; i < n; i++)
            add_pod_rows(p, nodes[i]);
        show_page_write(p, out);
    }
    add_other_uses(p, out, nodes, n);
    add_pending(p, out);
}
