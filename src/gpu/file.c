/* SPDX-License-Identifier: Apache-2.0 */
/* The source of cards from a JSON file. */
#include "gpu/gpu_priv.h"

#include <stdlib.h>

#include "base/file.h"
#include "base/jread.h"
#include "base/mem.h"

static const enum gpu_metric memory_metrics[] = {GPU_MEM_TOTAL, GPU_MEM_FREE,
                                                 GPU_MEM_USED, GPU_MEM_RESERVED};

static void read_text(struct jread *j, struct arena *a, const char *where, char *field,
                      size_t size)
{
    struct span text = {0};
    if (jread_text(j, where, a, &text))
        gpu_set_text(field, size, text);
}

static void read_uuid(struct jread *j, struct arena *a, const char *where, char *field,
                      size_t size)
{
    struct span text = {0};
    if (!jread_text(j, where, a, &text))
        return;
    gpu_set_uuid(field, size, text);
    if (text.n && !*field)
        jread_fail(j, where, "is not a valid UUID");
}

static void read_state(struct jread *j, struct arena *a, struct gpu_card *card,
                       bool *given)
{
    struct span text = {0};
    if (!jread_text(j, "cards[].state", a, &text))
        return;
    for (int s = GPU_OK; s <= GPU_LOST; s++)
        if (span_eq(text, span_of(gpu_state_name(s)))) {
            card->state = s;
            *given = true;
            return;
        }
    jread_fail(j, "cards[].state",
               "is not one of ok, warning, not-ready, ecc, reset, unreadable, mig, lost");
}

static void read_processes(struct jread *j, struct arena *a, struct gpu_card *card)
{
    struct gpu_process *list = NULL;
    size_t n = 0, cap = 0;
    jread_array(j, "cards[].processes");
    while (jread_item(j)) {
        struct jread_str key;
        struct gpu_process p = {0, -1, -1};
        int64_t sm = -1;
        jread_object(j, "cards[].processes[]");
        while (jread_member(j, &key)) {
            if (jread_key_is(key, "pid"))
                jread_i64(j, "cards[].processes[].pid", &p.pid);
            else if (jread_key_is(key, "bytes"))
                jread_i64(j, "cards[].processes[].bytes", &p.bytes);
            else if (jread_key_is(key, "sm"))
                jread_i64(j, "cards[].processes[].sm", &sm);
            else
                jread_skip(j);
        }
        if (p.pid < 1 || p.pid > UINT32_MAX)
            jread_fail(j, "cards[].processes[].pid", "is missing or not a process id");
        if (p.bytes < -1 || p.bytes > INT64_C(1) << 60)
            jread_fail(j, "cards[].processes[].bytes", "is not a valid number of bytes");
        if (sm < -1 || sm > 100)
            jread_fail(j, "cards[].processes[].sm", "is not a percentage");
        else
            p.sm_percent = (int32_t)sm;
        if (n == GPU_MAX_PROCESSES) {
            jread_fail(j, "cards[].processes", "has too many items");
            continue;
        }
        MEM_GROW(list, cap, n + 1);
        list[n++] = p;
    }
    card->processes_known = true;
    gpu_set_processes(card, list, n, a);
    free(list);
}

static bool read_metric(struct jread *j, struct jread_str key, struct gpu_card *card)
{
    for (int m = 0; m < GPU_N_METRICS; m++) {
        if (!jread_str_eq(key, span_of(gpu_metric_name(m))))
            continue;
        int64_t v = 0;
        if (jread_i64(j, gpu_metric_name(m), &v)) {
            gpu_set(card, m, (uint64_t)v);
            if (!gpu_knows(card, m) || card->value[m] != v)
                jread_fail(j, gpu_metric_name(m), "is negative or too large");
        }
        return true;
    }
    return false;
}

static void read_card(struct jread *j, struct arena *a, struct gpu_card *card)
{
    struct jread_str key;
    char why[sizeof card->why] = "";
    int64_t index = card->index;
    bool state_given = false;
    jread_object(j, "cards[]");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "index"))
            jread_i64(j, "cards[].index", &index);
        else if (jread_key_is(key, "uuid"))
            read_uuid(j, a, "cards[].uuid", card->uuid, sizeof card->uuid);
        else if (jread_key_is(key, "model"))
            read_text(j, a, "cards[].model", card->model, sizeof card->model);
        else if (jread_key_is(key, "parentUUID"))
            read_uuid(j, a, "cards[].parentUUID", card->parent_uuid,
                      sizeof card->parent_uuid);
        else if (jread_key_is(key, "migProfile"))
            read_text(j, a, "cards[].migProfile", card->profile, sizeof card->profile);
        else if (jread_key_is(key, "busId"))
            read_text(j, a, "cards[].busId", card->bus_id, sizeof card->bus_id);
        else if (jread_key_is(key, "state"))
            read_state(j, a, card, &state_given);
        else if (jread_key_is(key, "why"))
            read_text(j, a, "cards[].why", why, sizeof why);
        else if (jread_key_is(key, "links"))
            card->links = jread_text(j, "cards[].links", a, &card->links)
                              ? arena_copy(a, card->links)
                              : (struct span){0};
        else if (jread_key_is(key, "processes"))
            read_processes(j, a, card);
        else if (!read_metric(j, key, card))
            jread_skip(j);
    }
    bool instance = *card->parent_uuid;
    if (index < (instance ? GPU_MAX_CARDS : 0) ||
        index >= (instance ? GPU_INDEXES : GPU_MAX_CARDS))
        jread_fail(j, "cards[].index", "is not within 0..63, or of an instance 64..575");
    else
        card->index = (int32_t)index;
    if (instance != (*card->profile != '\0'))
        jread_fail(j, "cards[].migProfile", "and parentUUID go together");
    enum gpu_state given = card->state;
    card->state = GPU_OK;
    /* The rules for NVML apply. */
    uint64_t used = (uint64_t)gpu_value(card, GPU_MEM_USED, 0);
    struct gpu_memory m = {.total = (uint64_t)gpu_value(card, GPU_MEM_TOTAL, 0),
                           .used = used,
                           .reserved = (uint64_t)gpu_value(card, GPU_MEM_RESERVED, 0),
                           .has_reserved = gpu_knows(card, GPU_MEM_USED) ||
                                           gpu_knows(card, GPU_MEM_RESERVED)};
    uint64_t taken = used + m.reserved;
    m.free = gpu_knows(card, GPU_MEM_FREE) ? (uint64_t)card->value[GPU_MEM_FREE]
             : m.total > taken             ? m.total - taken
                                           : 0;
    bool known = gpu_knows(card, GPU_MEM_TOTAL);
    for (size_t i = 0; i < ARRAY_LEN(memory_metrics); i++)
        card->known &= ~(UINT32_C(1) << memory_metrics[i]);
    if (known)
        gpu_set_memory(card, &m);
    if (state_given) {
        card->state = given;
        card->why[0] = '\0';
        if (given != GPU_OK)
            gpu_set_text(card->why, sizeof card->why,
                         *why ? span_of(why) : span_of("set by the file"));
    } else {
        gpu_derive_state(card);
    }
}

static void read_cards(struct jread *j, struct gpu_sample *s)
{
    s->cards = arena_zalloc(&s->arena, GPU_MAX_CARDS * sizeof *s->cards);
    s->n_cards = 0;
    jread_array(j, "cards");
    while (jread_item(j)) {
        struct gpu_card card = {.index = (int32_t)s->n_cards};
        read_card(j, &s->arena, &card);
        if (s->n_cards == GPU_MAX_CARDS) {
            jread_fail(j, "cards", "has more than 64 cards");
            continue;
        }
        for (size_t i = 0; i < s->n_cards; i++)
            if (s->cards[i].index == card.index)
                jread_fail(j, "cards[].index", "is not unique");
        s->cards[s->n_cards++] = card;
    }
    /* A row has a word for each card that is no instance. */
    size_t n = 0;
    for (size_t i = 0; i < s->n_cards; i++)
        n += !*s->cards[i].parent_uuid;
    for (size_t i = 0; i < s->n_cards; i++) {
        struct span row = s->cards[i].links;
        size_t words = 1;
        for (size_t k = 0; k < row.n; k++)
            words += row.p[k] == ' ';
        if (row.n && (words != n || row.n >= GPU_MAX_LINKED * 6))
            jread_fail(j, "cards[].links",
                       "has not one word for each card, of at most 32");
    }
}

int gpu_file_parse(struct span text, struct gpu_sample *s, struct err *err)
{
    char error[200] = "";
    struct jread_str key;
    struct jread j;
    arena_reset(&s->arena);
    *s = (struct gpu_sample){.arena = s->arena};
    jread_init(&j, text.p, text.n);
    jread_object(&j, "the file");
    while (jread_member(&j, &key)) {
        if (jread_key_is(key, "driverVersion"))
            read_text(&j, &s->arena, "driverVersion", s->driver, sizeof s->driver);
        else if (jread_key_is(key, "cudaVersion"))
            read_text(&j, &s->arena, "cudaVersion", s->cuda, sizeof s->cuda);
        else if (jread_key_is(key, "cards"))
            read_cards(&j, s);
        else if (jread_key_is(key, "error"))
            read_text(&j, &s->arena, "error", error, sizeof error);
        else
            jread_skip(&j);
    }
    if (jread_finish(&j, err))
        return -1;
    if (*error)
        return err_set(err, ERR_UNAVAILABLE, "%s", error);
    gpu_sample_settle(s);
    return 0;
}

/* -- the source -- */

enum { FILE_MAX = 4 << 20 };

struct file {
    struct gpu base;
    char *path;
};

static int sample_file(struct gpu *g, struct gpu_sample *s, struct err *err)
{
    const struct file *f = (const struct file *)(const void *)g;
    cleanup_buf struct buf text = {0};
    if (file_read(f->path, FILE_MAX, &text, err))
        return -1;
    return gpu_file_parse(buf_span(&text), s, err) ? err_wrap(err, "%s", f->path) : 0;
}

static int wait_event(struct gpu *g, int timeout_ms, struct gpu_event *event,
                      struct err *err)
{
    (void)g, (void)timeout_ms, (void)event;
    return err_set(err, ERR_UNAVAILABLE, "a file has no events");
}

static void free_file(struct gpu *g)
{
    struct file *f = (struct file *)(void *)g;
    free(f->path);
    free(f);
}

struct gpu *gpu_file_new(const char *path)
{
    static const struct gpu_ops ops = {sample_file, wait_event, NULL, NULL, free_file};
    struct file *f = xcalloc(1, sizeof *f);
    f->base.ops = &ops;
    f->path = xstrdup(path);
    return &f->base;
}
