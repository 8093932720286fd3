/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The allocator with a kubelet and an API server that the test plays, from a script: one
 * command a line, with the expected answer behind "=>" (equal) or "~>" (contained).
 *
 *     api NAME WORD...           the API server has the pod; see add_word
 *     kubelet NAME CONTAINER...  podresources has the pod
 *     pod NAME WORD...           both: the kubelet admits the pod
 *     -api NAME, -kubelet NAME   it has the pod no more
 *     shows NAME CONTAINER ID... podresources shows these ids of the container
 *     prefer mem3 [ID...] [+ ID...]   GetPreferredAllocation of 3 ids, from these (default:
 *                                all), which must include those behind the "+"
 *     allocate mem ID...         Allocate
 *     admit NAME CONTAINER mem3 [ID...]   prefer, allocate what is preferred, and show it
 *     pass MS                    time passes
 *     away, back, no-get         podresources fails; answers again; does not implement Get
 *     restart                    the kubelet restarts
 *     xid UUID                   an XID of the card
 *     node [disable]             the Node is read, with the label that disables cGPU
 *     list, listed               a list of the pods begins, ends
 *     cards UUID[:lost]...       a sample; each card has 8 GiB
 *     answer, env, log, said     the last answer; what the container got; patches and
 *                                events; lines of the log
 *     count NAME N               a counter; see count_of
 *
 * An ID is "GPU-1/3" (unit 3), "GPU-1/0-3" (four units), "GPU-1" (the whole card), or an id as
 * the kubelet has it.
 */

#include <stdio.h>

#include "base/mem.h"
#include "domain/objects.h"
#include "kube/deviceplugin.h"
#include "plugin/alloc.h"
#include "plugin/response.h"

enum { PODS = 64, CONTAINERS = 4, IDS = 256, TEXT = 64 };

#define NOTHING "(nothing yet)"
#define ALL_MEM "GPU-0/0-7 GPU-1/0-15"

/* The kubelet's pods; ids are strings. */
struct kubelet_pod {
    char name[TEXT];
    struct {
        char name[TEXT];
        struct span ids[IDS_CARD_RESOURCES][IDS];
        size_t n_ids[IDS_CARD_RESOURCES];
    } containers[CONTAINERS];
    size_t n;
};

static struct {
    struct alloc *a;
    struct step_outputs out;
    struct step_time now;
    struct arena arena;
    struct kubelet_pod pods[PODS];
    size_t n_pods;
    bool away, no_get;
    uint64_t tokens;
    int64_t lists, gets, saves, device_lists;
    char answer[4096]; /* the last one */
    bool answered;
    struct buf log, said, env;
} rig;

static void carry_out_all(void);

static void feed(struct alloc_input in)
{
    alloc_step(rig.a, rig.now, &in, &rig.out);
    carry_out_all();
}
#define FEED(...) feed((struct alloc_input){__VA_ARGS__})

static const struct alloc_state *state(void)
{
    return alloc_state(rig.a);
}

/* Ids */

static struct span copy(struct span s)
{
    return arena_copy(&rig.arena, s);
}

/* Appends the ids that the word stands for. */
static size_t add_ids(struct span word, struct span *ids, size_t n)
{
    struct span range = word, card = span_cut(&range, '/');
    struct ids_id id = {ids_tag_of(card), -1};
    int64_t from = -1, to;
    if (strstr(copy(word).p, "-_-")) {
        ids[n++] = copy(word);
        return n;
    }
    if (range.p)
        ck_assert(span_i64(span_cut(&range, '-'), &from));
    if (!range.p || !span_i64(range, &to))
        to = from;
    for (id.unit = from; id.unit <= to; id.unit++) {
        cleanup_buf struct buf b = {0};
        ck_assert_uint_lt(n, IDS);
        ids_write(&b, &id);
        ids[n++] = copy(buf_span(&b));
    }
    return n;
}

/* The ids of the words up to `end`, which is cut off. */
static size_t read_ids(struct span *words, const char *end, struct span *ids)
{
    size_t n = 0;
    while (words->p) {
        struct span word = span_cut(words, ' ');
        if (span_eq(word, span_of(end)))
            break;
        if (word.n)
            n = add_ids(word, ids, n);
    }
    return n;
}

/* The reverse of add_ids, for one id. */
static void name_id(struct span text, struct buf *out)
{
    struct ids_id id;
    ck_assert(ids_read(text.n > IDS_TAG ? IDS_MEM : IDS_COUNT, text, &id));
    const struct plugin_card *c = cards_by_tag(&state()->cards, &id.tag);
    ck_assert_ptr_nonnull(c);
    buf_adds(out, c->uuid);
    if (id.unit >= 0)
        buf_printf(out, "/%lld", (long long)id.unit);
}

/* The kubelet */

static struct kubelet_pod *find_pod(struct span name)
{
    for (size_t i = 0; i < rig.n_pods; i++)
        if (span_eq(span_of(rig.pods[i].name), name))
            return &rig.pods[i];
    ck_abort_msg("the kubelet has no pod %.*s", SPAN_ARG(name));
}

static struct kubelet_pod *add_pod(struct span name)
{
    struct kubelet_pod *p = &rig.pods[rig.n_pods++];
    ck_assert_uint_le(rig.n_pods, PODS);
    *p = (struct kubelet_pod){0};
    snprintf(p->name, TEXT, "%.*s", SPAN_ARG(name));
    return p;
}

static void add_container(struct kubelet_pod *p, struct span name)
{
    ck_assert_uint_lt(p->n, CONTAINERS);
    snprintf(p->containers[p->n++].name, TEXT, "%.*s", SPAN_ARG(name));
}

static void show_ids(struct span pod, struct span container, const struct span *ids,
                     size_t n)
{
    struct kubelet_pod *p = find_pod(pod);
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < n; k++) {
            int r = ids[k].n > IDS_TAG ? IDS_MEM : IDS_COUNT;
            if (span_eq(span_of(p->containers[i].name), container))
                p->containers[i].ids[r][p->containers[i].n_ids[r]++] = ids[k];
        }
}

/* The namespace of a pod: "other" if its name begins so. */
static const char *ns_of(const char *name)
{
    return strncmp(name, "other", 5) == 0 ? "other" : "default";
}

static void answer_query(const struct alloc_output *o)
{
    static struct podres_devices devices[PODS][CONTAINERS][IDS_CARD_RESOURCES];
    static struct podres_container containers[PODS][CONTAINERS];
    static struct podres_pod pods[PODS];
    struct alloc_kubelet_view view = {.query = o->query, .pods = pods};
    struct err err = {.code = ERR_UNAVAILABLE, .msg = "away"};
    bool get = o->name != NULL;
    rig.gets += get;
    rig.lists += !get;
    for (size_t i = 0; i < rig.n_pods; i++) {
        struct kubelet_pod *p = &rig.pods[i];
        if (get && strcmp(p->name, o->name) != 0)
            continue;
        for (size_t k = 0; k < p->n; k++) {
            for (int r = 0; r < IDS_CARD_RESOURCES; r++)
                devices[i][k][r] = (struct podres_devices){
                    .resource = span_of(ids_resource_name((enum ids_resource)r)),
                    .ids = p->containers[k].ids[r],
                    .n_ids = p->containers[k].n_ids[r]};
            containers[i][k] = (struct podres_container){
                span_of(p->containers[k].name), devices[i][k], IDS_CARD_RESOURCES};
        }
        pods[view.n_pods++] = (struct podres_pod){
            span_of(p->name), span_of(ns_of(p->name)), containers[i], p->n};
    }
    view.unsupported = get && rig.no_get && !rig.away;
    if (rig.away || view.unsupported) {
        view.err = &err;
        view.n_pods = 0;
    }
    struct alloc_input in = {.type = ALLOC_IN_PODRESOURCES, .view = view};
    alloc_step(rig.a, rig.now, &in, &rig.out);
}

/* Outputs */

static void set_answer(const char *text)
{
    ck_assert_msg(!rig.answered, "two answers");
    snprintf(rig.answer, sizeof rig.answer, "%s", text);
    rig.answered = true;
}

static void write_env(const struct response *r)
{
    buf_clear(&rig.env);
    for (size_t i = 0; i < r->dp.n_envs; i++)
        buf_printf(&rig.env, "%s=%s\n", r->dp.envs[i].key.p, r->dp.envs[i].value.p);
    for (size_t i = 0; i < r->dp.n_mounts; i++)
        buf_printf(&rig.env, "mount %s=%s\n", r->dp.mounts[i].container_path.p,
                   r->dp.mounts[i].host_path.p);
    for (size_t i = 0; i < r->dp.n_cdi; i++)
        buf_printf(&rig.env, "cdi %s\n", r->dp.cdi[i].p);
}

static void carry_out(const struct alloc_output *o)
{
    cleanup_buf struct buf b = {0};
    switch (o->type) {
    case ALLOC_QUERY:
        answer_query(o);
        break;
    case ALLOC_PREFERRED:
        buf_adds(&b, "");
        for (size_t i = 0; i < o->n_ids; i++) {
            buf_adds(&b, i ? " " : "");
            name_id(o->ids[i], &b);
        }
        set_answer(b.p);
        break;
    case ALLOC_ALLOCATED:
        write_env(o->response);
        set_answer("allocated");
        break;
    case ALLOC_REJECTED:
        buf_printf(&b, "%s: %s", alloc_rejection_name(o->rejection), o->text);
        set_answer(b.p);
        break;
    case ALLOC_SAVE:
        rig.saves++;
        break;
    case ALLOC_PATCH:
        buf_printf(&rig.log, "patch %s %s %s\n", o->name, o->uid, o->text);
        break;
    case ALLOC_EVENT:
        buf_printf(&rig.log, "event %s %s %s\n", o->name, o->reason, o->text);
        break;
    case ALLOC_DEVICES:
        rig.device_lists++;
        break;
    default:
        break;
    }
}

/* Carries out the outputs, including those that this causes. */
static void carry_out_all(void)
{
    while (rig.out.n + rig.out.n_lines) {
        struct step_outputs out = rig.out;
        rig.out = (struct step_outputs){0};
        const struct alloc_output *items = out.items;
        for (size_t i = 0; i < out.n_lines; i++)
            buf_printf(&rig.said, "%s\n", out.lines[i].text);
        bool saved = state()->allocations.n == 0; /* --legacy-no-gpu-env */
        for (size_t i = 0; i < out.n; i++) {
            saved |= items[i].type == ALLOC_SAVE;
            ck_assert_msg(saved || items[i].type != ALLOC_ALLOCATED,
                          "answered before it was saved");
            carry_out(&items[i]);
        }
        step_outputs_fini(&out);
    }
}

/* Pods of the API server */

struct pod_text {
    const char *phase;
    struct buf annotations, inits, apps;
};

/* "mem3", "cards1": the resource and the amount. */
static enum ids_resource read_amount(struct span text, int64_t *n)
{
    bool mem = span_starts(text, SPAN("mem"));
    size_t skip = mem ? 3 : 5;
    ck_assert(mem || span_starts(text, SPAN("cards")));
    if (!span_i64((struct span){text.p + skip, text.n - skip}, n))
        *n = 0;
    return mem ? IDS_MEM : IDS_COUNT;
}

/* "a:mem3", "i:init:mem2", "s:side:mem1", "a:env:mem3" (it sets NVIDIA_VISIBLE_DEVICES),
 * "a:none". Returns whether it is a plain init container. */
static bool add_container_text(struct pod_text *t, struct span name, struct span rest)
{
    struct span role =
        rest.n && memchr(rest.p, ':', rest.n) ? span_cut(&rest, ':') : (struct span){0};
    bool init = span_eq(role, SPAN("init")), side = span_eq(role, SPAN("side"));
    struct buf *to = init || side ? &t->inits : &t->apps;
    buf_printf(to, "%s{'name':'%.*s'", to->n ? "," : "", SPAN_ARG(name));
    if (side)
        buf_adds(to, ",'restartPolicy':'Always'");
    if (span_eq(role, SPAN("env")))
        buf_adds(to, ",'env':[{'name':'NVIDIA_VISIBLE_DEVICES','value':'all'}]");
    if (!span_eq(rest, SPAN("none"))) {
        int64_t n;
        const char *resource = ids_resource_name(read_amount(rest, &n));
        buf_printf(to, ",'resources':{'limits':{'%s':'%lld'}}", resource, (long long)n);
    }
    buf_addc(to, '}');
    return init;
}

static void add_note(struct pod_text *t, const char *key, struct span value)
{
    buf_printf(&t->annotations, "%s'%s':'%.*s'", t->annotations.n ? "," : "", key,
               SPAN_ARG(value));
}

/* A phase; "on=0,1": promised these cards, by UUID too; "index=1": as the Go extender; another
 * annotation; a container, which is also added to `p` unless podresources never shows it. */
static void add_word(struct pod_text *t, struct span word, struct kubelet_pod *p)
{
    static const char *const phases[] = {"Running", "Failed", "Succeeded"};
    struct span value = word, key = span_cut(&value, '=');
    for (size_t i = 0; i < ARRAY_LEN(phases); i++)
        if (span_eq(word, span_of(phases[i]))) {
            t->phase = phases[i];
            return;
        }
    if (span_eq(key, SPAN("on"))) {
        cleanup_buf struct buf uuids = {0};
        add_note(t, KEY_MEM_IDX, value);
        /* A UUID counts only beside an allocation; this one leaves the amounts to the
         * index. */
        add_note(t, KEY_ALLOCATION, SPAN("{}"));
        while (value.p) {
            struct span index = span_cut(&value, ',');
            buf_printf(&uuids, "%sGPU-%.*s", uuids.n ? "," : "", SPAN_ARG(index));
        }
        add_note(t, KEY_CARD_UUID, buf_span(&uuids));
    } else if (value.p) {
        bool index = span_eq(key, SPAN("index")), count = span_eq(key, SPAN("count"));
        bool mirror = span_eq(key, SPAN("mirror"));
        ck_assert(index || count || mirror || span_eq(key, SPAN("placement")));
        add_note(t,
                 index    ? KEY_MEM_IDX
                 : count  ? KEY_GPU_COUNT
                 : mirror ? KEY_MIRROR
                          : KEY_PLACEMENT,
                 value);
    } else {
        struct span rest = word, name = span_cut(&rest, ':');
        if (!add_container_text(t, name, rest) && p)
            add_container(p, name);
    }
}

/* Its UID is uid-<name>. */
static void api(struct span name, struct span words, struct kubelet_pod *p)
{
    struct pod_text t = {.phase = "Pending"};
    while (words.p)
        add_word(&t, span_cut(&words, ' '), p);
    struct pod pod = object_pod(
        &rig.arena,
        quoted(&rig.arena,
               "{'metadata':{'name':'%.*s','namespace':'%s','uid':'uid-%.*s',"
               "'annotations':{%.*s}},'spec':{'nodeName':'n1','initContainers':[%.*s],"
               "'containers':[%.*s]},'status':{'phase':'%s'}}",
               SPAN_ARG(name), ns_of(copy(name).p), SPAN_ARG(name),
               SPAN_ARG(buf_span(&t.annotations)), SPAN_ARG(buf_span(&t.inits)),
               SPAN_ARG(buf_span(&t.apps)), t.phase));
    buf_fini(&t.annotations);
    buf_fini(&t.inits);
    buf_fini(&t.apps);
    FEED(.type = ALLOC_IN_POD, .pod = pod_allocation_new(&pod, 1024));
}

/* Commands */

static const char *request(enum alloc_request_type type, enum ids_resource resource,
                           int64_t size, struct span words)
{
    struct span ids[IDS], must[IDS];
    struct alloc_request req = {.type = type,
                                .resource = resource,
                                .token = ++rig.tokens,
                                .ids = ids,
                                .must = must,
                                .size = size};
    req.n_ids = read_ids(&words, "+", ids);
    req.n_must = read_ids(&words, "", must);
    rig.answered = false;
    strcpy(rig.answer, NOTHING);
    FEED(.type = ALLOC_IN_REQUEST, .request = req);
    return rig.answer;
}

static const char *prefer(struct span amount, struct span ids)
{
    int64_t n;
    enum ids_resource r = read_amount(amount, &n);
    if (!ids.n)
        ids = r == IDS_MEM ? SPAN(ALL_MEM) : SPAN("GPU-0 GPU-1");
    return request(ALLOC_REQUEST_PREFERRED, r, n, ids);
}

/* As the kubelet does, with the preferred ids. */
static const char *admit(struct span words)
{
    struct span pod = span_cut(&words, ' '), container = span_cut(&words, ' ');
    struct span amount = span_cut(&words, ' '), ids[IDS];
    int64_t n;
    enum ids_resource r = read_amount(amount, &n);
    struct span preferred = copy(span_of(prefer(amount, words))), rest = preferred;
    if (strcmp(request(ALLOC_REQUEST_ALLOCATE, r, 0, preferred), "allocated") == 0)
        show_ids(pod, container, ids, read_ids(&rest, "", ids));
    return rig.answer;
}

static void pass(int64_t ms)
{
    for (int64_t end = rig.now.mono_ms + ms; rig.now.mono_ms < end;) {
        int64_t due = state()->due_ms;
        if (due > rig.now.mono_ms)
            rig.now.mono_ms = due < end ? due : end;
        FEED(.type = ALLOC_IN_TICK);
    }
}

/* "GPU-0", or "GPU-0:lost". */
static void sample(struct span words, const int64_t *gib, struct driver_view *driver)
{
    struct card_seen seen[CARDS_MAX] = {0};
    size_t n = 0;
    for (; words.p; n++) {
        struct span lost = span_cut(&words, ' '), uuid = span_cut(&lost, ':');
        snprintf(seen[n].uuid, sizeof seen[n].uuid, "%.*s", SPAN_ARG(uuid));
        seen[n].index = (int32_t)n;
        seen[n].mib = gib[n] * 1024;
        seen[n].reading = lost.p ? CARD_HEALTH_FAILED : CARD_HEALTH_GOOD;
    }
    FEED(.type = ALLOC_IN_CARDS, .seen = seen, .n = n, .driver = driver);
}

/* How many ids of aliyun.com/gpu-core.percentage ListAndWatch sends. All are healthy. */
static int64_t count_core_ids(void)
{
    cleanup_buf struct buf out = {0};
    cleanup_arena struct arena a = {0};
    struct dp_devices list;
    struct err err;
    ck_assert_int_eq(response_list(&state()->cards, IDS_CORE, &out, &err), 0);
    ck_assert_int_eq(proto_decode(&dp_devices_type, buf_span(&out), &a, &list, &err), 0);
    for (size_t i = 0; i < list.n; i++)
        ck_assert_span_eq(list.items[i].health, "Healthy");
    return (int64_t)list.n;
}

static int64_t count_of(struct span name)
{
    const struct alloc_stats *s = &state()->stats;
    const struct {
        const char *name;
        int64_t n;
    } all[] = {
        {"lists", rig.lists},
        {"gets", rig.gets},
        {"saves", rig.saves},
        {"device-lists", rig.device_lists},
        {"allocations", (int64_t)state()->allocations.n},
        {"allocated", (int64_t)s->allocated[IDS_MEM]},
        {"ambiguous", (int64_t)s->rejected[REJECTED_AMBIGUOUS]},
        {"mismatches", (int64_t)s->mismatches},
        {"recovered", (int64_t)s->recovered},
        {"reconciled", (int64_t)s->reconciled},
        {"core-ids", count_core_ids()},
        {"failed", state()->podresources.failures > 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (span_eq(name, span_of(all[i].name)))
            return all[i].n;
    ck_abort_msg("no counter %.*s", SPAN_ARG(name));
}

static const int64_t two_sizes[] = {8, 16}, many_sizes[] = {8, 8, 8};

/* Runs a command. Returns the text to compare with what is expected. */
static const char *run(struct span line)
{
    struct span words = line, verb = span_cut(&words, ' ');
    struct span rest = words, first = span_cut(&rest, ' ');
#define IS(text) span_eq(verb, SPAN(text))
    if (IS("api"))
        api(first, rest, NULL);
    else if (IS("pod"))
        api(first, rest, add_pod(first));
    else if (IS("-api")) {
        cleanup_free char *uid = xasprintf("uid-%.*s", SPAN_ARG(first));
        FEED(.type = ALLOC_IN_POD_DELETED, .uid = span_of(uid));
    } else if (IS("kubelet")) {
        struct kubelet_pod *p = add_pod(first);
        while (rest.p)
            add_container(p, span_cut(&rest, ' '));
    } else if (IS("-kubelet")) {
        struct kubelet_pod *p = find_pod(first);
        *p = rig.pods[--rig.n_pods];
    } else if (IS("shows")) {
        struct span ids[IDS], container = span_cut(&rest, ' ');
        show_ids(first, container, ids, read_ids(&rest, "", ids));
    } else if (IS("prefer"))
        return prefer(first, rest);
    else if (IS("allocate"))
        return request(ALLOC_REQUEST_ALLOCATE,
                       span_eq(first, SPAN("mem")) ? IDS_MEM : IDS_COUNT, 0, rest);
    else if (IS("admit"))
        return admit(words);
    else if (IS("pass")) {
        int64_t ms;
        ck_assert(span_i64(first, &ms));
        pass(ms);
    } else if (IS("away") || IS("back"))
        rig.away = IS("away");
    else if (IS("no-get"))
        rig.no_get = true;
    else if (IS("restart"))
        FEED(.type = ALLOC_IN_KUBELET_STARTED);
    else if (IS("xid")) {
        struct gpu_event event = {.kind = GPU_EVENT_XID, .xid = 79, .index = -1};
        snprintf(event.uuid, sizeof event.uuid, "%.*s", SPAN_ARG(first));
        FEED(.type = ALLOC_IN_CARD_EVENT, .event = event);
    } else if (IS("node"))
        FEED(.type = ALLOC_IN_NODE, .cgpu_disable = first.n > 0);
    else if (IS("list") || IS("listed"))
        FEED(.type = IS("list") ? ALLOC_IN_LIST_STARTED : ALLOC_IN_LIST_ENDED);
    else if (IS("cards"))
        sample(words, many_sizes, NULL);
    else if (IS("env"))
        return rig.env.p ? rig.env.p : "";
    else if (IS("log") || IS("said")) {
        const struct buf *b = IS("log") ? &rig.log : &rig.said;
        return b->p ? b->p : "";
    } else if (IS("count")) {
        int64_t n;
        ck_assert(span_i64(rest, &n));
        ck_assert_msg(count_of(first) == n, "%.*s: %lld", SPAN_ARG(line),
                      (long long)count_of(first));
    } else
        ck_assert_msg(IS("answer"), "unknown command: %.*s", SPAN_ARG(line));
#undef IS
    return rig.answer;
}

static void play(const char *script)
{
    struct span rest = span_of(script);
    while (rest.p) {
        struct span line = span_cut(&rest, '\n');
        const char *text = copy(line).p, *equal = strstr(text, " => "),
                   *part = strstr(text, " ~> ");
        const char *end = equal ? equal : part;
        if (!line.n)
            continue;
        if (end)
            line.n = (size_t)(end - text);
        const char *is = run(line);
        if (equal)
            ck_assert_msg(strcmp(is, equal + 4) == 0, "%s\nand not\n%s", text, is);
        if (part)
            ck_assert_msg(strstr(is, part + 4) != NULL, "%s\nand not\n%s", text, is);
    }
}

/* Without cards, pods and the Node. */
static void begin_with(struct alloc_settings s)
{
    s.node = "n1";
    s.unit_mib = 1024;
    s.node_ms = 60000;
    alloc_free(rig.a);
    rig.a = alloc_new(&s);
    rig.n_pods = 0;
    rig.now = (struct step_time){1000000, 1700000000000000000};
}

/* Cards GPU-0 of 8 GiB and GPU-1 of 16; the pods are listed, and the Node is read. */
static void sync_all(void)
{
    sample(SPAN("GPU-0 GPU-1"), two_sizes, NULL);
    play("list\nlisted\nnode");
}

#define WITH(...)                                                                        \
    begin_with((struct alloc_settings){.wait_ms = 5000, __VA_ARGS__});                   \
    sync_all()

static void begin(void)
{
    WITH();
}

static void end(void)
{
    alloc_free(rig.a);
    step_outputs_fini(&rig.out);
    arena_fini(&rig.arena);
    buf_fini(&rig.log);
    buf_fini(&rig.said);
    buf_fini(&rig.env);
    memset(&rig, 0, sizeof rig);
}

#define SCRIPT(name, ...)                                                                \
    START_TEST(name)                                                                     \
    {                                                                                    \
        play(__VA_ARGS__);                                                               \
    }                                                                                    \
    END_TEST
