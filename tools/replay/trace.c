/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/trace.h"

#include <stddef.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/mem.h"
#include "domain/links.h"
#include "replay/csv.h"

/* Of CPU and memory. Sums over a trace do not overflow. */
static const int64_t amount_max = (int64_t)1 << 32;

void trace_fini(struct trace *t)
{
    free(t->nodes);
    free(t->pods);
    arena_fini(&t->arena);
    *t = (struct trace){0};
}

static struct span read_name(struct csv *c, int column)
{
    struct span name = csv_text(c, column);
    if (!name.n && c->err.code == ERR_NONE)
        csv_fail(c, column, "is empty");
    return name;
}

/* Finds duplicate names. The name is the first member of an item. */
static void check_names(struct csv *c, int column, const void *items, size_t size,
                        size_t n)
{
    struct map map;
    map_init(&map, 1, 0);
    for (size_t i = 0; i < n && c->err.code == ERR_NONE; i++) {
        char *item = (char *)items + i * size;
        struct span name = *(struct span *)item;
        if (map_get(&map, name)) {
            /* Line 1 has the column names; every further line is an item. */
            c->line = (unsigned)i + 2;
            csv_fail(c, column, "duplicate %.*s", SPAN_ARG(name));
        }
        map_set(&map, item);
    }
    map_fini(&map);
}

static int finish(struct csv *c, size_t n, const char *what, struct err *err)
{
    if (c->err.code == ERR_NONE && n == 0)
        return err_set(err, ERR_INVALID, "%s: contains no %s", c->name, what);
    if (c->err.code == ERR_NONE)
        return 0;
    return err_set(err, c->err.code, "%s", c->err.msg);
}

_Static_assert(offsetof(struct trace_node, name) == 0 &&
                   offsetof(struct trace_pod, name) == 0,
               "check_names reads the name at offset 0");

int trace_nodes(struct trace *t, const char *name, struct span text, struct err *err)
{
    struct csv c;
    if (csv_open(&c, name, text))
        return finish(&c, 0, "nodes", err);
    int sn = csv_column(&c, "sn", true), cpu = csv_column(&c, "cpu_milli", true);
    int memory = csv_column(&c, "memory_mib", true), gpu = csv_column(&c, "gpu", true);
    int model = csv_column(&c, "model", true);
    while (csv_row(&c) > 0) {
        struct trace_node node = {
            .name = read_name(&c, sn),
            .model = csv_text(&c, model),
            .cpu_milli = csv_int(&c, cpu, 0, amount_max),
            .memory_mib = csv_int(&c, memory, 0, amount_max),
            .cards = (uint32_t)csv_int(&c, gpu, 0, TRACE_MAX_CARDS),
        };
        MEM_GROW(t->nodes, t->nodes_cap, t->n_nodes + 1);
        t->nodes[t->n_nodes++] = node;
        t->capacity += (int64_t)node.cards * TRACE_CARD;
        t->cpu_milli += node.cpu_milli;
    }
    check_names(&c, sn, t->nodes, sizeof *t->nodes, t->n_nodes);
    if (c.err.code == ERR_NONE && t->n_nodes && !t->capacity)
        return err_set(err, ERR_INVALID, "%s: no node has cards", name);
    return finish(&c, t->n_nodes, "nodes", err);
}

/* From openb's separator to the one of struct request. */
static struct span read_models(struct trace *t, struct csv *c, int column)
{
    struct span text = csv_text(c, column);
    if (!text.n)
        return text;
    struct span models = arena_copy(&t->arena, text);
    for (char *p = (char *)models.p; *p; p++)
        *p = *p == '|' ? ',' : *p;
    return models;
}

int trace_pods(struct trace *t, const char *name, struct span text, struct err *err)
{
    struct csv c;
    if (csv_open(&c, name, text))
        return finish(&c, 0, "pods", err);
    int id = csv_column(&c, "name", true), cpu = csv_column(&c, "cpu_milli", true);
    int memory = csv_column(&c, "memory_mib", true);
    int num = csv_column(&c, "num_gpu", true), milli = csv_column(&c, "gpu_milli", true);
    int spec = csv_column(&c, "gpu_spec", false);
    while (csv_row(&c) > 0) {
        struct trace_pod pod = {
            .name = read_name(&c, id),
            .models = read_models(t, &c, spec),
            .cpu_milli = csv_int(&c, cpu, 0, amount_max),
            .memory_mib = csv_int(&c, memory, 0, amount_max),
            .cards = (uint32_t)csv_int(&c, num, 0, TRACE_MAX_CARDS),
            .gpu_milli = csv_int(&c, milli, 0, TRACE_CARD),
        };
        if (pod.cards == 0 && pod.gpu_milli != 0)
            csv_fail(&c, milli, "%lld, but num_gpu is 0", (long long)pod.gpu_milli);
        else if (pod.cards > 0 && pod.gpu_milli == 0)
            csv_fail(&c, milli, "0, but num_gpu is %u", pod.cards);
        else if (pod.cards > 1 && pod.gpu_milli != TRACE_CARD)
            csv_fail(&c, milli,
                     "%lld, expected %d: a pod with several cards gets whole cards",
                     (long long)pod.gpu_milli, TRACE_CARD);
        MEM_GROW(t->pods, t->pods_cap, t->n_pods + 1);
        t->pods[t->n_pods++] = pod;
    }
    check_names(&c, id, t->pods, sizeof *t->pods, t->n_pods);
    return finish(&c, t->n_pods, "pods", err);
}

int trace_links(struct trace *t, const char *name, struct span text, struct err *err)
{
    struct csv c;
    struct trace_links *links = NULL; /* of the kind */
    uint32_t at = 0, n = 0;           /* its cards: those read, and all */
    int64_t count = 1, most = TRACE_LINKED_NODES;
    if (csv_open(&c, name, text))
        return finish(&c, 0, "nodes", err);
    int nodes = csv_column(&c, "nodes", true), numa = csv_column(&c, "numa", true);
    int column = csv_column(&c, "links", true);
    while (csv_row(&c) > 0) {
        struct span row = csv_text(&c, column);
        uint32_t words = 0;
        for (struct span rest = row; rest.p; words++) {
            struct span word = span_cut(&rest, ' ');
            uint8_t width = link_width(word);
            if (!width || (width == LINK_MAX) != (words == at))
                csv_fail(&c, column, "word %u is \"%.*s\": expected %s", words + 1,
                         SPAN_ARG(word),
                         words == at ? "X" : "NV#, PIX, PXB, PHB, NODE or SYS");
        }
        if (!at) {
            n = words;
            links = arena_alloc(&t->arena, TRACE_LINKED * sizeof *links);
        }
        if (words != n || n < 2 || n > TRACE_LINKED) {
            csv_fail(&c, column, "%u words, expected %s%u", words, at ? "" : "2 to ",
                     at ? n : TRACE_LINKED);
            break;
        }
        count = csv_int(&c, nodes, at ? count : 1, at ? count : most);
        links[at++] = (struct trace_links){row, csv_int(&c, numa, -1, INT32_MAX)};
        if (at < n)
            continue;
        at = 0;
        most -= count;
        for (int64_t i = 0; i < count; i++) {
            const char *id = arena_printf(&t->arena, "%zu", t->n_nodes);
            MEM_GROW(t->nodes, t->nodes_cap, t->n_nodes + 1);
            t->nodes[t->n_nodes++] =
                (struct trace_node){.name = span_of(id), .cards = n, .links = links};
            t->capacity += (int64_t)n * TRACE_CARD;
        }
    }
    if (at)
        csv_fail(&c, column, "the last of %u rows, expected %u", at, n);
    return finish(&c, t->n_nodes, "nodes", err);
}
