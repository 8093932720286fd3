/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/brain.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "plugin/brain_priv.h"

enum {
    POLL_MAX_MS = 1000,
    STOP_MS = 2000,
};

struct alloc_time brain_now(void)
{
    return (struct alloc_time){clock_mono_ms(), clock_wall_ns()};
}

struct brain_msg *brain_msg_new(enum brain_kind kind)
{
    struct brain_msg *m = xcalloc(1, sizeof *m);
    m->kind = kind;
    return m;
}

static void free_msg(struct brain_msg *m)
{
    plan_free(m->plan);
    arena_fini(&m->arena);
    free(m);
}

static void wake(struct brain *b)
{
    uint64_t one = 1;
    if (write(b->wake, &one, sizeof one) < 0 && errno != EAGAIN)
        abort();
}

void brain_tell(struct brain *b, struct brain_msg *m)
{
    pthread_mutex_lock(&b->lock);
    *b->end = m;
    b->end = &m->next;
    pthread_mutex_unlock(&b->lock);
    wake(b);
}

static void take_cards(struct brain *b, struct brain_msg *m)
{
    bool changed =
        m->kind == BRAIN_STRUCK
            ? alloc_card_struck(b->alloc, brain_now(), span_of(m->uuid), m->text, &b->out)
            : alloc_cards(b->alloc, brain_now(), m->seen, m->n, m->text, &b->out);
    b->cards_known |= m->kind == BRAIN_CARDS && !m->text;
    if (changed)
        door_cards(b);
}

static void take(struct brain *b, struct brain_msg *m)
{
    struct alloc_time now = brain_now();
    switch (m->kind) {
    case BRAIN_POD:
        alloc_pod_seen(b->alloc, now, steal(&m->plan), &b->out);
        break;
    case BRAIN_POD_GONE:
        alloc_pod_gone(b->alloc, now, span_of(m->text), &b->out);
        break;
    case BRAIN_LIST:
        if (m->flag)
            alloc_list_ended(b->alloc, now, &b->out);
        else
            alloc_list_begins(b->alloc);
        break;
    case BRAIN_CARDS:
    case BRAIN_STRUCK:
        take_cards(b, m);
        break;
    case BRAIN_ASK:
        alloc_ask(b->alloc, now, &m->ask, &b->out);
        break;
    case BRAIN_CANCEL:
        if (!door_stream_over(b, m->token))
            alloc_cancel(b->alloc, now, m->token, &b->out);
        break;
    case BRAIN_STREAM:
        door_stream(b, m->resource, m->token);
        break;
    case BRAIN_SHOWN:
        alloc_shown(b->alloc, now, &m->shown, &b->out);
        break;
    case BRAIN_REGISTERED:
        b->refused[m->resource] = m->err;
        enroll_answered(&b->enroll[m->resource], now.mono_ms, m->flag);
        break;
    case BRAIN_NODE:
        alloc_cgpu_disable(b->alloc, m->flag);
        break;
    }
    do_outputs(b);
    free_msg(m);
}

/* False: it is time to stop, and everything has been taken. */
static bool take_all(struct brain *b)
{
    uint64_t count;
    if (read(b->wake, &count, sizeof count) < 0 && errno != EAGAIN)
        abort();
    pthread_mutex_lock(&b->lock);
    struct brain_msg *m = b->first, *next;
    b->first = NULL;
    b->end = &b->first;
    bool stop = b->stop;
    pthread_mutex_unlock(&b->lock);
    for (; m; m = next) {
        next = m->next;
        take(b, m);
    }
    return !stop;
}

static void publish(struct brain *b)
{
    const struct cards *cards = alloc_cards_of(b->alloc);
    pthread_mutex_lock(&b->lock);
    struct brain_stats *s = &b->stats;
    s->alloc = *alloc_stats(b->alloc);
    s->grants = alloc_grants(b->alloc)->n;
    s->listed = alloc_listed(b->alloc);
    s->cards = cards->n;
    s->healthy = s->units = 0;
    for (size_t i = 0; i < cards->n; i++) {
        s->healthy += cards->items[i].healthy;
        s->units += cards->items[i].healthy ? (size_t)cards->items[i].units : 0;
    }
    s->cards_err = (struct err){0};
    cards_check(cards, clock_mono_ms(), &s->cards_err);
    s->podresources = *alloc_kubelet_trouble(b->alloc);
    for (int r = 0; r < IDS_RESOURCES; r++) {
        s->registered_err[r] = (struct err){0};
        door_check(b, (enum ids_resource)r, &s->registered_err[r]);
        s->wanted[r] = b->enroll[r].wanted;
        s->up[r] = b->enroll[r].state == ENROLL_UP;
        s->registered[r] = b->enroll[r].registered;
        s->lost[r] = b->enroll[r].lost;
    }
    s->alive_ms = clock_mono_ms();
    pthread_mutex_unlock(&b->lock);
}

void brain_stats(struct brain *b, struct brain_stats *stats)
{
    pthread_mutex_lock(&b->lock);
    *stats = b->stats;
    pthread_mutex_unlock(&b->lock);
}

static void wait_for_something(struct brain *b)
{
    struct pollfd fds[] = {{b->wake, POLLIN, 0}, {dir_fd(b->dir), POLLIN, 0}};
    int64_t due = alloc_due(b->alloc), door = door_due(b), now = clock_mono_ms();
    int64_t ms = (door < due ? door : due) - now;
    ms = ms < 0 ? 0 : ms > POLL_MAX_MS ? POLL_MAX_MS : ms;
    poll(fds, ARRAY_LEN(fds), (int)ms);
    if (fds[1].revents)
        door_look(b);
}

/* Questions that are not answered yet; they get a little time at a stop. */
static bool is_busy(struct brain *b, int64_t *until_ms)
{
    bool busy = false;
    int64_t now = clock_mono_ms();
    pthread_mutex_lock(&b->lock);
    for (size_t i = 0; i < b->n_kept; i++)
        busy |= !b->kept[i].stream;
    pthread_mutex_unlock(&b->lock);
    if (!*until_ms)
        *until_ms = now + STOP_MS;
    return busy && now < *until_ms;
}

static void *run(void *arg)
{
    struct brain *b = arg;
    int64_t until_ms = 0;
    door_open(b);
    while (take_all(b) || is_busy(b, &until_ms)) {
        struct alloc_time now = brain_now();
        if (now.mono_ms >= alloc_due(b->alloc) && alloc_tick(b->alloc, now, &b->out))
            door_cards(b);
        do_outputs(b);
        door_step(b);
        publish(b);
        wait_for_something(b);
    }
    door_close(b);
    return NULL;
}

struct brain *brain_new(const struct brain_settings *settings, struct err *err)
{
    struct dir *dir = dir_open(settings->dir, err);
    if (!dir)
        return NULL;
    struct brain *b = xcalloc(1, sizeof *b);
    b->settings = *settings;
    b->node = xstrdup(settings->alloc.node);
    b->dir = dir;
    b->alloc = alloc_new(&settings->alloc);
    b->end = &b->first;
    b->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    b->stats.alive_ms = clock_mono_ms();
    pthread_mutex_init(&b->lock, NULL);
    do_load(b);
    return b;
}

void brain_go(struct brain *b)
{
    if (pthread_create(&b->thread, NULL, run, b))
        abort();
    pthread_setname_np(b->thread, "brain");
    b->running = true;
}

void brain_stop(struct brain *b)
{
    if (!b || !b->running)
        return;
    pthread_mutex_lock(&b->lock);
    b->stop = true;
    pthread_mutex_unlock(&b->lock);
    wake(b);
    pthread_join(b->thread, NULL);
    b->running = false;
}

void brain_free(struct brain *b)
{
    if (!b)
        return;
    for (struct brain_msg *m = b->first, *next; m; m = next) {
        next = m->next;
        free_msg(m);
    }
    for (int r = 0; r < IDS_RESOURCES; r++)
        endpoint_free(b->endpoints[r]);
    alloc_free(b->alloc);
    alloc_outputs_fini(&b->out);
    dir_close(b->dir);
    close(b->wake);
    pthread_mutex_destroy(&b->lock);
    free(b->kept);
    free(b->node);
    free(b);
}
