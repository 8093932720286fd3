/* SPDX-License-Identifier: Apache-2.0 */

/*
 * CSV files of a trace, as nodes and as pods. Accepted values are within bounds, names
 * are unique, and a trace is unchanged by a write and a read. An error names the file.
 */

#include "fuzz/fuzz.h"

#include "base/mem.h"
#include "replay/trace.h"

static void check_error(int rc, const struct err *err)
{
    if (rc == 0 ? err->code != ERR_NONE
                : err->code != ERR_INVALID || strncmp(err->msg, "file:", 5) != 0)
        fuzz_fail("neither a trace nor an error that names the file");
    for (const char *p = err->msg; *p; p++)
        if ((unsigned char)*p < ' ')
            fuzz_fail("an error of more than one line");
}

static void check_nodes(struct span text)
{
    struct trace t = {0}, again = {0};
    struct err err = {0};
    cleanup_buf struct buf out = {0};
    int rc = trace_nodes(&t, "file", text, &err);
    check_error(rc, &err);
    buf_adds(&out, "model,sn,gpu,memory_mib,cpu_milli\n");
    for (size_t i = 0; rc == 0 && i < t.n_nodes; i++) {
        const struct trace_node *n = &t.nodes[i];
        if (!n->name.n || n->cards > TRACE_MAX_CARDS || n->cpu_milli < 0)
            fuzz_fail("a node out of bounds");
        buf_printf(&out, "%.*s,%.*s,%u,%lld,%lld\n", SPAN_ARG(n->model),
                   SPAN_ARG(n->name), n->cards, (long long)n->memory_mib,
                   (long long)n->cpu_milli);
    }
    if (rc == 0) {
        if (trace_nodes(&again, "file", buf_span(&out), NULL) ||
            again.n_nodes != t.n_nodes || again.capacity != t.capacity)
            fuzz_fail("the nodes change when written and read");
        for (size_t i = 0; i < t.n_nodes; i++)
            if (!span_eq(t.nodes[i].name, again.nodes[i].name) ||
                t.nodes[i].cpu_milli != again.nodes[i].cpu_milli)
                fuzz_fail("a node changes when written and read");
    }
    trace_fini(&t);
    trace_fini(&again);
}

static void check_pods(struct span text)
{
    struct trace t = {0};
    struct err err = {0};
    int rc = trace_pods(&t, "file", text, &err);
    check_error(rc, &err);
    for (size_t i = 0; rc == 0 && i < t.n_pods; i++) {
        const struct trace_pod *p = &t.pods[i];
        if (!p->name.n || p->cards > TRACE_MAX_CARDS || p->gpu_milli > TRACE_CARD ||
            (p->cards == 0) != (p->gpu_milli == 0) ||
            (p->cards > 1 && p->gpu_milli != TRACE_CARD))
            fuzz_fail("an invalid pod is accepted");
        if (p->models.n && memchr(p->models.p, '|', p->models.n))
            fuzz_fail("the models are not separated by commas");
    }
    trace_fini(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span text = {(const char *)data, size};
    check_nodes(text);
    check_pods(text);
    return 0;
}
