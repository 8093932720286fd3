/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The allocator with a kubelet and an API server that the test plays, from a script: one
 * command a line, with the expected answer behind "=>" (equal), "~>" (contained) or "!>"
 * (not contained).
 *
 *     with NAME, fresh NAME      another allocator, with settings[]; with cards (GPU-0 of 8
 *                                GiB, GPU-1 of 16), the list of pods and the Node, or without
 *     api NAME WORD...           the API server has the pod; see add_word
 *     kubelet NAME CONTAINER...  podresources has the pod
 *     pod NAME WORD...           both: the kubelet admits the pod
 *     -api NAME, -kubelet NAME   it has the pod no more
 *     shows NAME CONTAINER ID... podresources shows these ids of the container
 *     prefer mem3 [ID...] [+ ID...]   GetPreferredAllocation of 3 ids, from these (default:
 *                                all), which must include those behind the "+"
 *     allocate mem|cards|slots|gpus ID...   Allocate
 *     admit NAME CONTAINER mem3 [ID...]   prefer, allocate what is preferred, and show it
 *     cancel                     the kubelet cancels the last request
 *     pass MS                    time passes
 *     tick                       the same, and the outputs wait for the next command
 *     away, back, no-get         podresources fails; answers again; does not implement Get
 *     restart                    the kubelet restarts
 *     plugin                     the next process of the plugin has the state file
 *     xid UUID                   an XID of the card
 *     node [disable], node RUNTIME KUBELET, no-node   the Node is read, with the label that
 *                                disables cGPU or these versions; it cannot be read
 *     dialect WORD               the Node is read, with this label gpushare/dialect; a list of the pods
 *                                must follow
 *     cdi KIND [WHY...]          a specification has CDI names of this kind; "-": none has. WHY the
 *                                driver has no limits of memory
 *     list, listed               a list of the pods begins, ends
 *     cards UUID[:lost]...       a sample; each card has 8 GiB
 *     answer, env, log, said     the last answer; what the container got; patches and
 *                                events; lines of the log
 *     others                     ids of another plugin in the list of slots
 *     limits, slots              the driver's limits, and MiB of slots, that the allocations
 *                                recorded
 *     count NAME N, least NAME N a counter is N, or at least N; see count_of
 *     mark                       calls of podresources count from 0
 *
 * An ID is "GPU-1/3" (unit 3), "GPU-1/s3" (slot 3), "GPU-1/g3" (slot 3 of nvidia.com/gpu),
 * "GPU-1/0-3" (four units), "GPU-1" (the whole card), an id of the Go plugin, or "other:ID" of
 * another plugin, of slots or (dialect) of nvidia.com/gpu; "nvidia:ID" is of nvidia.com/gpu always.
 */

#include "kube/deviceplugin.h"
#include "node/allocation.h"
#include "node/response.h"
#include "node/rig.h"

enum { PODS = 64, CONTAINERS = 4, IDS = 256 };

#define NOTHING "(nothing yet)"
static const char *const all_ids[IDS_CARD_RESOURCES] = {
    "GPU-0/0-7 GPU-1/0-15", "GPU-0 GPU-1", "GPU-0/s0-31 GPU-1/s0-31",
    "GPU-0/g0-31 GPU-1/g0-31"};

static const struct {
    const char *name;
    struct alloc_settings s;
} settings[] = {
    {"defaults", {0}},
    {"reconcile", {.reconcile_interval_ms = 60000}},
    {"unpromised", {.allow_unpromised = true}},
    {"strict", {.strict_env = true}},
    {"hami", {.dialect = "hami"}},
    {"auto", {.response.strategy = DRIVER_AUTO}},
    {"volume-mounts", {.response.strategy = DRIVER_VOLUME_MOUNTS}},
    {"cdi-annotations", {.response.strategy = DRIVER_CDI_ANNOTATIONS}},
    {"limit", {.response = {.isolation = ISOLATION_LIMIT, .limit_dir = "/l"}}},
    {"driver", {.response = {.strategy = DRIVER_CDI_CRI, .isolation = ISOLATION_DRIVER}}},
    {"isolation-auto", {.response = {.isolation = ISOLATION_AUTO}}},
    {"by-index", {.response.by_index = true}},
    {"mps",
     {.response = {.strategy = DRIVER_CDI_CRI,
                   .isolation = ISOLATION_MPS,
                   .mps_dir = "/run/mps"}}},
};
static const int64_t two_sizes[] = {8, 16}, many_sizes[] = {8, 8, 8};

/* The kubelet's pods; ids are strings. */
struct kubelet_pod {
    struct podres_pod pod;
    struct podres_container containers[CONTAINERS];
    struct podres_devices devices[CONTAINERS][IDS_CARD_RESOURCES];
    struct span ids[CONTAINERS][IDS_CARD_RESOURCES][IDS];
};

static struct kubelet_pod *pods[PODS];
static size_t n_pods;
static bool away, no_get, answered;
static uint64_t tokens;
static int64_t lists, gets, outputs[ALLOC_DEVICES + 1];
static char last[4096]; /* the answer */
static struct buf said, events, env;

static struct span copy(struct span s)
{
    return arena_copy(&rig.arena, s);
}

/* Ids */

/* The ids of the words up to `end`, which is cut off. */
static size_t read_ids(struct span *words, const char *end, struct span *ids)
{
    size_t n = 0;
    while (words->p) {
        struct span word = span_cut(words, ' '), range = word;
        struct span card = span_cut(&range, '/');
        int64_t from = -1, to = -1;
        if (span_eq(word, span_of(end)))
            break;
        if (!word.n)
            continue;
        if (span_starts(word, SPAN("other:"))) {
            ids[n++] = copy((struct span){word.p + 6, word.n - 6});
            continue;
        }
        if (strstr(copy(word).p, "-_-") || span_starts(word, SPAN("nvidia:"))) {
            ids[n++] = copy(word);
            continue;
        }
        const char mark = range.n > 0 ? range.p[0] : 0;
        const enum ids_resource r = mark == 's'   ? IDS_SHARE
                                    : mark == 'g' ? IDS_DIALECT
                                                  : IDS_MEM;
        if (r != IDS_MEM)
            range = (struct span){range.p + 1, range.n - 1};
        if (range.p)
            ck_assert(span_i64(span_cut(&range, '-'), &from));
        if (!range.p || !span_i64(range, &to))
            to = from;
        for (; from <= to; from++)
            ids[n++] = id_of(&rig.arena, r, card, from);
        ck_assert_uint_lt(n, IDS);
    }
    return n;
}

/* Of which resource is it? */
static enum ids_resource read_id(struct span text, struct ids_id *id)
{
    int r = 0;
    while (!ids_read((enum ids_resource)r, text, id))
        ck_assert_int_lt(++r, IDS_CARD_RESOURCES);
    return (enum ids_resource)r;
}

/* The reverse, for one id. */
static void name_id(struct span text, struct buf *out)
{
    struct ids_id id;
    const enum ids_resource r = read_id(text, &id);
    const struct plugin_card *c = cards_by_tag(&state()->cards, &id.tag);
    ck_assert_ptr_nonnull(c);
    buf_adds(out, c->uuid);
    if (id.unit >= 0)
        buf_printf(out, "/%s%lld",
                   r == IDS_SHARE     ? "s"
                   : r == IDS_DIALECT ? "g"
                                      : "",
                   (long long)id.unit);
}

/* The kubelet */

static struct kubelet_pod **find_pod(struct span name)
{
    for (size_t i = 0; i < n_pods; i++)
        if (span_eq(pods[i]->pod.name, name))
            return &pods[i];
    ck_abort_msg("the kubelet has no pod %.*s", SPAN_ARG(name));
}

static struct kubelet_pod *add_pod(struct span name)
{
    struct kubelet_pod *p = arena_zalloc(&rig.arena, sizeof *p);
    bool other = span_starts(name, SPAN("other"));
    ck_assert_uint_lt(n_pods, PODS);
    pods[n_pods++] = p;
    p->pod.name = copy(name);
    p->pod.ns = other ? SPAN("other") : SPAN("default");
    p->pod.containers = p->containers;
    return p;
}

static void add_container(struct kubelet_pod *p, struct span name)
{
    size_t k = p->pod.n_containers++;
    ck_assert_uint_lt(k, CONTAINERS);
    for (int r = 0; r < IDS_CARD_RESOURCES; r++)
        p->devices[k][r] = (struct podres_devices){
            .resource = span_of(ids_resource_name((enum ids_resource)r)),
            .ids = p->ids[k][r]};
    p->containers[k] =
        (struct podres_container){copy(name), p->devices[k], IDS_CARD_RESOURCES};
}

/* What the plugin before served. */
static enum ids_resource other_resource(void)
{
    return rig.dialect ? IDS_DIALECT : IDS_SHARE;
}

static void show_ids(struct span pod, struct span container, const struct span *ids,
                     size_t n)
{
    struct kubelet_pod *p = *find_pod(pod);
    for (size_t k = 0; k < p->pod.n_containers; k++)
        for (size_t i = 0; i < n && span_eq(p->containers[k].name, container); i++) {
            struct ids_id id;
            int r = ids_name_no_card(ids[i])            ? IDS_MEM
                    : span_starts(ids[i], SPAN("GPU-")) ? other_resource()
                    : span_starts(ids[i], SPAN("nvi"))  ? IDS_DIALECT
                                                        : read_id(ids[i], &id);
            p->ids[k][r][p->devices[k][r].n_ids++] = ids[i];
        }
}

static void answer_query(const struct alloc_output *o)
{
    static const struct err err = {.code = ERR_UNAVAILABLE, .msg = "away"};
    struct podres_pod shown[PODS];
    struct alloc_kubelet_view view = {.query = o->query, .pods = shown};
    bool get = o->name != NULL;
    gets += get;
    lists += !get;
    view.unsupported = get && no_get && !away;
    if (away || view.unsupported)
        view.err = &err;
    for (size_t i = 0; i < n_pods && !view.err; i++)
        if (!get || span_eq(pods[i]->pod.name, span_of(o->name)))
            shown[view.n_pods++] = pods[i]->pod;
    alloc_step(rig.a, rig.now,
               &(struct alloc_input){.type = ALLOC_IN_PODRESOURCES, .view = view},
               &rig.out);
}

/* Outputs */

static void set_answer(const char *text)
{
    ck_assert_msg(!answered, "two answers");
    snprintf(last, sizeof last, "%s", text);
    answered = true;
}

static void write_env(const struct response *r)
{
    buf_set(&env, SPAN(""));
    for (size_t i = 0; i < r->dp.n_envs; i++)
        buf_printf(&env, "%s=%s\n", r->dp.envs[i].key.p, r->dp.envs[i].value.p);
    for (size_t i = 0; i < r->dp.n_mounts; i++)
        buf_printf(&env, "mount %s=%s\n", r->dp.mounts[i].container_path.p,
                   r->dp.mounts[i].host_path.p);
    for (size_t i = 0; i < r->dp.n_cdi; i++)
        buf_printf(&env, "cdi %s\n", r->dp.cdi[i].p);
}

static void carry_out(const struct alloc_output *o)
{
    cleanup_buf struct buf b = {0};
    outputs[o->type]++;
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
        buf_printf(&b, "%s: %s", rejection_name(o->rejection), o->text);
        set_answer(b.p);
        break;
    case ALLOC_PATCH:
        buf_printf(&events, "patch %s %s %s\n", o->name, o->uid, o->text);
        break;
    case ALLOC_EVENT:
        buf_printf(&events, "event %s %s %s\n", o->name, o->reason, o->text);
        break;
    default:
        break;
    }
}

/* Commands */

static const char *request(enum alloc_request_type type, enum ids_resource resource,
                           int64_t size, struct span words)
{
    struct span ids[IDS], must[IDS];
    struct alloc_request req = {.type = type,
                                .resource = resource,
                                .token = ++tokens,
                                .ids = ids,
                                .must = must,
                                .size = size};
    req.n_ids = read_ids(&words, "+", ids);
    req.n_must = read_ids(&words, "", must);
    answered = false;
    strcpy(last, NOTHING);
    FEED(.type = ALLOC_IN_REQUEST, .request = req);
    return last;
}

static const char *prefer(struct span amount, struct span ids)
{
    int64_t n;
    enum ids_resource r = read_amount(amount, &n);
    if (!ids.n)
        ids = span_of(all_ids[r]);
    return request(ALLOC_REQUEST_PREFERRED, r, n, ids);
}

/* As the kubelet does, with the preferred ids. */
static void admit(struct span words)
{
    struct span pod = span_cut(&words, ' '), container = span_cut(&words, ' ');
    struct span amount = span_cut(&words, ' '), ids[IDS];
    int64_t n;
    enum ids_resource r = read_amount(amount, &n);
    struct span preferred = copy(span_of(prefer(amount, words))), rest = preferred;
    if (strcmp(request(ALLOC_REQUEST_ALLOCATE, r, 0, preferred), "allocated") == 0)
        show_ids(pod, container, ids, read_ids(&rest, "", ids));
}

static void pass(int64_t ms)
{
    for (int64_t to = rig.now.mono_ms + ms; rig.now.mono_ms < to;) {
        int64_t due = state()->due_ms;
        if (due > rig.now.mono_ms)
            rig.now.mono_ms = due < to ? due : to;
        FEED(.type = ALLOC_IN_TICK);
    }
}

static void sync_all(void)
{
    sample(SPAN("GPU-0 GPU-1"), two_sizes, NULL);
    FEED(.type = ALLOC_IN_LIST_STARTED);
    FEED(.type = ALLOC_IN_LIST_ENDED);
    FEED(.type = ALLOC_IN_NODE);
    FEED(.type = ALLOC_IN_LIST_ENDED); /* those of the node's dialect */
    int64_t before[ARRAY_LEN(outputs)];
    memcpy(before, outputs, sizeof before);
    FEED(.type = ALLOC_IN_TICK); /* which lists what containers hold */
    memcpy(outputs, before, sizeof before);
    lists = 0;
}

static void start_with(struct span name)
{
    size_t i = 0;
    while (!span_eq(span_of(settings[i].name), name))
        ck_assert_uint_lt(++i, ARRAY_LEN(settings));
    struct alloc_settings s = settings[i].s;
    s.wait_ms = 5000;
    start_alloc(s);
    n_pods = 0;
    away = no_get = false;
    lists = gets = 0;
    memset(outputs, 0, sizeof outputs);
    buf_clear(&said);
    buf_clear(&events);
    rig.now = (struct step_time){1000000, 1700000000000000000};
}

/* The next process has the allocations of the state file. */
static void restart_plugin(void)
{
    cleanup_buf struct buf text = {0};
    struct allocation_set set = {0};
    struct err err = {0};
    allocation_set_write(&text, &state()->allocations, SPAN("n1"));
    ck_assert_done(allocation_set_read(&set, buf_span(&text), SPAN("n1"), &err), err);
    struct alloc_settings again = state()->settings;
    again.response.view = NULL;
    start_alloc(again);
    FEED(.type = ALLOC_IN_RESTORE, .set = &set);
}

static void use_cdi_kind(struct span kind, struct span no_limit)
{
    struct driver_view *view = xcalloc(1, sizeof *view);
    snprintf(view->no_limit, sizeof view->no_limit, "%.*s", SPAN_ARG(no_limit));
    view->refuses_limit = no_limit.n > 0;
    view->cdi_kind = span_eq(kind, SPAN("-")) ? NULL : copy(kind).p;
    sample(SPAN("GPU-0 GPU-1"), two_sizes, view);
}

static const char *write_limits(bool slots)
{
    cleanup_buf struct buf text = {0};
    buf_adds(&text, "");
    for (size_t i = 0; i < state()->allocations.n; i++) {
        const struct allocation *al = state()->allocations.items[i];
        buf_printf(&text, "%s%.*s %.*s %lld%s", i ? ", " : "", SPAN_ARG(al->name),
                   SPAN_ARG(al->container),
                   (long long)(slots ? al->slot_mib : al->driver_limit_mib),
                   al->limit_device && !slots ? " device" : "");
    }
    return arena_copy(&rig.arena, buf_span(&text)).p;
}

static void read_node(struct span runtime, struct span kubelet, bool found)
{
    static const struct err err = {.code = ERR_NOT_FOUND, .msg = "no Node"};
    struct driver_node node = {0};
    snprintf(node.runtime, sizeof node.runtime, "%.*s", SPAN_ARG(runtime));
    snprintf(node.kubelet, sizeof node.kubelet, "%.*s", SPAN_ARG(kubelet));
    FEED(.type = ALLOC_IN_NODE, .cgpu_disable = span_eq(runtime, SPAN("disable")),
         .node = node, .err = found ? NULL : &err);
}

/* What ListAndWatch sends. */
static struct dp_devices devices_of(enum ids_resource r)
{
    cleanup_buf struct buf out = {0};
    struct dp_devices list;
    struct err err;
    ck_assert_int_eq(response_list(&state()->cards, &state()->allocations, r, &out, &err),
                     0);
    ck_assert_int_eq(
        proto_decode(&dp_devices_type, buf_span(&out), &rig.arena, &list, &err), 0);
    return list;
}

static const char *write_others(void)
{
    cleanup_buf struct buf text = {0};
    const struct dp_devices list = devices_of(other_resource());
    struct ids_id id;
    buf_adds(&text, "");
    for (size_t i = 0; i < list.n; i++)
        if (!ids_read(other_resource(), list.items[i].id, &id)) {
            ck_assert_span_eq(list.items[i].health, "Healthy");
            buf_printf(&text, "%s%.*s", text.n ? " " : "", SPAN_ARG(list.items[i].id));
        }
    return arena_copy(&rig.arena, buf_span(&text)).p;
}

/* How many ids of aliyun.com/gpu-core.percentage there are. All are healthy. */
static int64_t count_core_ids(void)
{
    const struct dp_devices list = devices_of(IDS_CORE);
    for (size_t i = 0; i < list.n; i++)
        ck_assert_span_eq(list.items[i].health, "Healthy");
    return (int64_t)list.n;
}

static int64_t count_pods(void)
{
    int64_t n = 0;
    LIST_EACH(const struct local_pod, p, &state()->pods, link)
    n++;
    return n;
}

static int64_t count_of(struct span name)
{
    const struct alloc_stats *s = &state()->stats;
    const struct step_failure *failure = &state()->podresources;
    const struct {
        const char *name;
        int64_t n;
    } all[] = {
        {"lists", lists},
        {"gets", gets},
        {"calls", lists + gets},
        {"saves", outputs[ALLOC_SAVE]},
        {"patches", outputs[ALLOC_PATCH]},
        {"device-lists", outputs[ALLOC_DEVICES]},
        {"limit-devices", outputs[ALLOC_LIMIT_DEVICES]},
        {"node-reads", outputs[ALLOC_READ_NODE]},
        {"allocations", (int64_t)state()->allocations.n},
        {"pods", count_pods()},
        {"allocated", (int64_t)s->allocated[IDS_MEM]},
        {"ambiguous", (int64_t)s->rejected[REJECTED_AMBIGUOUS]},
        {"unpromised", (int64_t)s->rejected[REJECTED_NO_PROMISE]},
        {"mismatches", (int64_t)s->mismatches},
        {"recovered", (int64_t)s->recovered},
        {"reconciled", (int64_t)s->reconciled},
        {"not-isolated", (int64_t)s->not_isolated},
        {"core-ids", count_core_ids()},
        {"relists", outputs[ALLOC_RELIST]},
        {"dialect", state()->cards.settings.dialect && rig.dialect},
        {"failed", failure->failures > 0},
        {"failed-ms", failure->failures ? rig.now.mono_ms - failure->since_ms : 0},
        {"surveyed", state()->surveyed},
        {"node-failed", state()->node.failures > 0},
    };
    array_items(a, all)
        if (span_eq(name, span_of(a->name)))
            return a->n;
    ck_abort_msg("no counter %.*s", SPAN_ARG(name));
}

/* Runs a command. Returns the text to compare with what is expected. */
static const char *run(struct span line)
{
    struct span words = line, verb = span_cut(&words, ' ');
    struct span rest = words, first = span_cut(&rest, ' '), ids[IDS];
    cleanup_free char *uid = xasprintf("uid-%.*s", SPAN_ARG(first));
    int64_t n = 0;
    bool known = false;
#define IS(text) (span_eq(verb, SPAN(text)) && (known = true))
    if (IS("with") || IS("fresh"))
        start_with(first);
    if (IS("with"))
        sync_all();
    if (IS("kubelet") || IS("pod")) {
        struct kubelet_pod *p = add_pod(first);
        for (struct span left = rest; left.p;) {
            struct span role = span_cut(&left, ' '), name = span_cut(&role, ':');
            if (IS("kubelet") || (role.p && !span_starts(role, SPAN("init:"))))
                add_container(p, name);
        }
    }
    if (IS("api") || IS("pod"))
        api(first, span_of(uid), rest);
    if (IS("-api"))
        FEED(.type = ALLOC_IN_POD_DELETED, .uid = span_of(uid));
    if (IS("-kubelet")) {
        struct kubelet_pod **p = find_pod(first);
        *p = pods[--n_pods];
    }
    if (IS("shows")) {
        struct span container = span_cut(&rest, ' ');
        show_ids(first, container, ids, read_ids(&rest, "", ids));
    }
    if (IS("prefer"))
        prefer(first, rest);
    if (IS("allocate"))
        request(ALLOC_REQUEST_ALLOCATE, read_amount(first, &n), 0, rest);
    if (IS("admit"))
        admit(words);
    if (IS("cancel"))
        FEED(.type = ALLOC_IN_CANCEL, .request.token = tokens);
    if (IS("pass") && span_i64(first, &n))
        pass(n);
    if (IS("away") || IS("back"))
        away = IS("away");
    no_get |= IS("no-get");
    if (IS("tick"))
        alloc_step(rig.a, rig.now, &(struct alloc_input){.type = ALLOC_IN_TICK},
                   &rig.out);
    if (IS("mark"))
        lists = gets = 0;
    if (IS("restart"))
        FEED(.type = ALLOC_IN_KUBELET_STARTED);
    if (IS("plugin"))
        restart_plugin();
    if (IS("xid")) {
        for (size_t i = 0; i < rig.n_seen; i++)
            if (span_eq(first, span_of(rig.seen[i].uuid)))
                rig.seen[i].health = (struct card_health){.reason = "XID 79"};
        FEED(.type = ALLOC_IN_CARDS, .seen = rig.seen, .n = rig.n_seen);
    }
    if (IS("node") || IS("no-node"))
        read_node(first, rest, IS("node"));
    if (IS("dialect"))
        FEED(.type = ALLOC_IN_NODE, .node = state()->driver_node, .dialect = first);
    if (IS("cdi"))
        use_cdi_kind(first, rest);
    if (IS("list") || IS("listed"))
        FEED(.type = IS("list") ? ALLOC_IN_LIST_STARTED : ALLOC_IN_LIST_ENDED);
    if (IS("cards"))
        sample(words, many_sizes, NULL);
    if (IS("count") || IS("least")) {
        int64_t is = count_of(first);
        ck_assert(span_i64(rest, &n));
        ck_assert_msg(IS("count") ? is == n : is >= n, "%.*s: %lld", SPAN_ARG(line),
                      (long long)is);
    }
    const struct buf *b = IS("env")    ? &env
                          : IS("log")  ? &events
                          : IS("said") ? &said
                                       : NULL;
    if (IS("others"))
        return write_others();
    if (IS("limits") || IS("slots"))
        return write_limits(IS("slots"));
    ck_assert_msg(known || IS("answer"), "unknown command: %.*s", SPAN_ARG(line));
#undef IS
    return !b ? last : b->p ? b->p : "";
}

static void play(const char *script)
{
    struct span rest = span_of(script);
    while (rest.p) {
        struct span line = span_cut(&rest, '\n');
        const char *text = copy(line).p, *mark = strstr(text, "> ");
        if (!line.n)
            continue;
        if (mark)
            line.n = (size_t)(mark - text) - 2;
        const char *is = run(line);
        bool contained = mark && strstr(is, mark + 2) != NULL;
        if (mark)
            ck_assert_msg(mark[-1] == '='   ? strcmp(is, mark + 2) == 0
                          : mark[-1] == '~' ? contained
                                            : !contained,
                          "%s\nand not\n%s", text, is);
    }
}

static void begin(void)
{
    rig.carry_out = carry_out;
    rig.said = &said;
    play("with defaults");
}

static void end(void)
{
    end_alloc();
    buf_fini(&said);
    buf_fini(&events);
    buf_fini(&env);
}

#define SCRIPT(name, ...)                                                                \
    TEST(name)                                                                           \
    {                                                                                    \
        play(__VA_ARGS__);                                                               \
    }
