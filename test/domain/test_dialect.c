/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/dialect.h"

#include "base/array.h"
#include "base/file.h"
#include "domain/objects.h"

/*
 * Requests in HAMi's words against HAMi's own answers, and the promises that it writes.
 *
 * test/data/hami.jsonl has a line for each question that was put to the running code of HAMi 2.10
 * (commit 4707fb02): `pod`, its `cards` (model and MiB of GPU-00, ...; only where they decide the
 * answer), `config` where it is not the default, and what HAMi answered. An answer is a text, which
 * the test also makes of ours:
 *
 *     admission   "refused" (by the API server or HAMi's webhook), or whose scheduler gets
 *                 the pod, which here the policies decide
 *     sets        the limits that the webhook adds to each container
 *     asks        each container with a card: cards x memory on each, percent of compute
 *     given       the same with the cards that HAMi has chosen, and MiB of percentages
 *     used        of a bound pod: what counts on each card; `later`: once its init containers ended
 *
 * `why` is the reason of a refusal, or of a pod that HAMi does not place. The variables of
 * containers that the webhook sets (CUDA_TASK_PRIORITY) are left out: we do not set them.
 */

static struct arena arena;

/* Where our answer is another one than HAMi's, and by design. `ours` is a part of it. */
#define OTHER_CARDS "all memory of a pod is on the same cards"
#define NO_CARD_HAS "the containers need more memory or compute than one card has"
#define UNREADABLE  "is not of this node and these containers"
static const struct difference {
    const char *line, *answer, *ours;
} differences[] = {
    /* Above 2147483647 MiB, HAMi counts the container as without a card, and places it anywhere. */
    {"mem-alone-2", "admission", "refused"},
    {"mem-5", "admission", "refused"},
    {"mem-8", "admission", "refused"},
    {"containers-13", "admission", "refused"},
    /* We read limits alone. Such pods do not exist: the API server refuses a request without a limit,
     * or another one. */
    {"requests-only-1", "admission", "accepted"},
    {"requests-only-2", "admission", "accepted"},
    {"requests-only-3", "admission", "accepted"},
    {"requests-only-4", "admission", "accepted"},
    {"request-differs-1", "admission", "accepted"},
    {"request-differs-2", "admission", "accepted"},
    {"request-differs-3", "admission", "accepted"},
    /* A quota is judged later, and not by the table. */
    {"quota-11", "admission", "accepted"},
    /* A pod that names its node is bound, and its limits count. */
    {"webhook-4", "admission", "accepted"},
    /* Our cards have one mode. HAMi has a card for the first, none for the second. */
    {"mode-1", "join", "annotation nvidia.com/vgpu-mode does not allow hami-core"},
    {"mode-4", "join", "does not allow hami-core"},
    /* HAMi places each container for itself. */
    {"containers-4", "join",
     "containers with 2 and 1 cards of nvidia.com/gpu: " OTHER_CARDS},
    {"init-7", "join", OTHER_CARDS},
    {"quota-10", "join", OTHER_CARDS},
    {"random-1", "join", OTHER_CARDS},
    {"random-3", "join", OTHER_CARDS},
    {"random-9", "join", OTHER_CARDS},
    {"random-10", "join", OTHER_CARDS},
    {"random-12", "join", OTHER_CARDS},
    {"random-14", "join", OTHER_CARDS},
    {"random-15", "join", OTHER_CARDS},
    {"random-18", "join", OTHER_CARDS},
    {"random-19", "join", OTHER_CARDS},
    {"containers-6", "join", NO_CARD_HAS},
    {"containers-7", "join", NO_CARD_HAS},
    {"containers-8", "join", NO_CARD_HAS},
    {"containers-9", "join", NO_CARD_HAS},
    {"containers-12", "join", NO_CARD_HAS},
    {"random-5", "join", NO_CARD_HAS},
    {"random-11", "join", NO_CARD_HAS},
    {"random-13", "join", NO_CARD_HAS},
    /* HAMi counts nothing for a pod with an annotation that it cannot read. */
    {"running-7", "used", UNREADABLE},
    {"running-8", "used", UNREADABLE},
    {"running-11", "used", UNREADABLE},
    {"running-13", "used", UNREADABLE},
    {"running-14", "used", UNREADABLE},
    {"running-17", "used", UNREADABLE},
    /* Here what the limits ask for counts if it is more: a tenant may have edited the annotation. */
    {"running-25", "used", "GPU-00 8000 MiB 30 %"},
    /* HAMi gives the share of init containers to others once they have ended; of the last two, even
     * that of the container that runs. */
    {"running-init-1", "later", "GPU-00 12000 MiB"},
    {"running-init-3", "later", "GPU-01 12000 MiB"},
    {"running-init-5", "later", "GPU-00 24576 MiB 100 %"},
    {"running-init-6", "later", "GPU-00 12000 MiB"},
    {"running-init-7", "later", "GPU-00 4000 MiB"},
    {"running-init-8", "later", "GPU-00 8000 MiB"},
    {"running-init-9", "later", "GPU-00 12000 MiB"},
};
static bool found[ARRAY_LEN(differences)];

struct line {
    struct span name, pod, admission, why;
    struct span sets, asks, given, used, later; /* .p NULL: the line has none */
    struct hami_card {
        struct span model;
        int64_t mib;
    } cards[16];
    size_t n_cards;
    struct dialect d;
};

static void read_card(struct jread *j, struct line *l)
{
    struct hami_card *c = &l->cards[l->n_cards++];
    ck_assert_uint_le(l->n_cards, ARRAY_LEN(l->cards));
    jread_array(j, "card");
    ck_assert(jread_item(j) && jread_text(j, "model", &arena, &c->model));
    ck_assert(jread_item(j) && jread_i64(j, "mib", &c->mib));
    ck_assert(!jread_item(j));
}

static void read_config(struct jread *j, struct dialect *d)
{
    struct jread_str key;
    jread_object(j, "config");
    while (jread_member(j, &key)) {
        bool cards = jread_key_is(key, "defaultGPUNum");
        ck_assert(cards || jread_key_is(key, "defaultMemory"));
        jread_i64(j, "config", &d->limits[cards ? DIALECT_CARDS : DIALECT_MEMORY].absent);
    }
}

static struct line read_line(struct span text)
{
    struct line l = {.d = dialect_hami};
    struct jread_str key;
    struct jread j;
    const struct {
        const char *key;
        struct span *to;
    } texts[] = {{"name", &l.name}, {"admission", &l.admission}, {"why", &l.why},
                 {"sets", &l.sets}, {"asks", &l.asks},           {"given", &l.given},
                 {"used", &l.used}, {"later", &l.later}};
    jread_init(&j, text.p, text.n);
    jread_object(&j, "line");
    while (jread_member(&j, &key)) {
        size_t i = 0;
        while (i < ARRAY_LEN(texts) && !jread_str_eq(key, span_of(texts[i].key)))
            i++;
        if (i < ARRAY_LEN(texts)) {
            jread_text(&j, "text", &arena, texts[i].to);
        } else if (jread_key_is(key, "pod")) {
            jread_raw(&j, &l.pod);
        } else if (jread_key_is(key, "config")) {
            read_config(&j, &l.d);
        } else {
            ck_assert(jread_key_is(key, "cards"));
            jread_array(&j, "cards");
            while (jread_item(&j))
                read_card(&j, &l);
        }
    }
    ck_assert_int_eq(jread_finish(&j, NULL), 0);
    return l;
}

static struct dialect_pod read_pod(const struct dialect *d, struct span json)
{
    struct dialect_pod pod;
    struct jread j;
    struct err err = {0};
    jread_init(&j, json.p, json.n);
    dialect_read(&j, &arena, d, &pod);
    ck_assert_done(jread_finish(&j, &err), err);
    return pod;
}

static const char *semicolon(const struct buf *b)
{
    return b->n ? "; " : "";
}

static bool mentions(struct span text, const char *word)
{
    return text.p && memmem(text.p, text.n, word, strlen(word));
}

/* Our answer in `ours` is HAMi's, or a difference by design. */
static void compare(const struct line *l, const char *answer, struct span hami,
                    struct buf *ours)
{
    buf_adds(ours, "");
    struct span own = buf_span(ours);
    const struct difference *d = differences, *end = d + ARRAY_LEN(differences);
    while (d < end &&
           (!span_eq(l->name, span_of(d->line)) || strcmp(answer, d->answer) != 0))
        d++;
    if (d == end) {
        ck_assert_msg(span_eq(own, hami), "%.*s, %s: %.*s, but HAMi: %.*s",
                      SPAN_ARG(l->name), answer, SPAN_ARG(own), SPAN_ARG(hami));
        return;
    }
    ck_assert_msg(!span_eq(own, hami), "%s: %s is the same", d->line, answer);
    ck_assert_msg(mentions(own, d->ours), "%s, %s: %s", d->line, answer, own.p);
    found[d - differences] = true;
}

/* HAMi lists init containers first. */
static void write_containers(const struct dialect_pod *pod, struct buf *asks,
                             struct buf *sets)
{
    static const char *const short_names[] = {"gpu", "gpumem", "gpumem-percentage",
                                              "gpucores"};
    for (int apps = 0; apps < 2; apps++) {
        for (const struct dialect_container *c = pod->containers; c; c = c->next) {
            if ((c->role == CONTAINER_APP) != apps)
                continue;
            if (c->cards)
                buf_printf(asks, "%s%.*s %u x %lld %s %u %%", semicolon(asks),
                           SPAN_ARG(c->name), c->cards, (long long)(c->mib ?: c->percent),
                           c->mib ? "MiB" : "%", c->cores);
            bool first = true;
            for (int k = 0; k < DIALECT_LIMITS; k++) {
                if (c->set[k] && first)
                    buf_printf(sets, "%s%.*s", semicolon(sets), SPAN_ARG(c->name));
                first &= !c->set[k];
                if (c->set[k])
                    buf_printf(sets, " %s=%lld", short_names[k], (long long)c->set[k]);
            }
        }
    }
}

/* Cards are named GPU-00 and so on. */
static size_t card_number(struct span uuid)
{
    int64_t n;
    ck_assert(span_starts(uuid, SPAN("GPU-")) &&
              span_i64((struct span){uuid.p + 4, uuid.n - 4}, &n));
    return (size_t)n;
}

/* What we would give on the cards that HAMi has chosen. The cards accept it. */
static void write_given(const struct line *l, const struct dialect_pod *pod,
                        struct buf *out)
{
    for (struct span rest = l->given; rest.n;) {
        struct span part = span_cut(&rest, ';');
        part = span_trim(part);
        struct span name = span_cut(&part, ' '), uuid = span_cut(&part, ' ');
        const struct hami_card *card = &l->cards[card_number(uuid)];
        ck_assert_msg(dialect_accepts(pod->notes, &card->model, &uuid), "%.*s: %.*s",
                      SPAN_ARG(l->name), SPAN_ARG(uuid));
        for (const struct dialect_container *c = pod->containers; c; c = c->next) {
            struct dialect_container copy = *c;
            const struct dialect_pod one = {.containers = &copy};
            copy.next = NULL;
            if (span_eq(c->name, name))
                buf_printf(out, "%s%.*s %.*s %lld MiB %u %%", semicolon(out),
                           SPAN_ARG(name), SPAN_ARG(uuid),
                           (long long)dialect_mib(&one, card->mib, card->mib), c->cores);
        }
    }
}

/* HAMi has not placed the pod because of its rules about cards: ours say the same of one. */
static void check_rules(const struct line *l, const struct dialect_pod *pod)
{
    size_t accepted = 0;
    if (!mentions(l->why, "wrong type") && !mentions(l->why, "wished"))
        return;
    for (size_t i = 0; i < l->n_cards; i++) {
        char uuid[16];
        snprintf(uuid, sizeof uuid, "GPU-%02zu", i);
        accepted += dialect_accepts(pod->notes, &l->cards[i].model,
                                    &(struct span){uuid, strlen(uuid)});
    }
    ck_assert_msg(accepted < l->n_cards || pod->notes[DIALECT_MODE].p, "%.*s",
                  SPAN_ARG(l->name));
}

static void check_request(const struct line *l)
{
    struct dialect_pod pod = read_pod(&l->d, l->pod);
    cleanup_buf struct buf admission = {0}, sets = {0}, asks = {0}, given = {0},
                           join = {0};
    struct err err = {0};
    int bad = dialect_request(&pod, &err);
    bool refused = span_eq(l->admission, SPAN("refused"));
    buf_add_span(&admission, bad       ? SPAN("refused")
                             : refused ? SPAN("accepted")
                                       : l->admission);
    compare(l, "admission", l->admission, &admission);
    if (bad || !l->asks.p) {
        ck_assert(!bad || err.msg[0]);
        return;
    }
    write_containers(&pod, &asks, &sets);
    compare(l, "asks", l->asks, &asks);
    compare(l, "sets", l->sets, &sets);
    if (l->given.p) {
        write_given(l, &pod, &given);
        compare(l, "given", l->given, &given);
    }
    check_rules(l, &pod);
    if (dialect_join(&pod, &err))
        buf_adds(&join, err.msg);
    compare(l, "join", SPAN(""), &join);
}

static void check_used(const struct line *l)
{
    struct dialect_pod pod = read_pod(&l->d, l->pod);
    const struct pod object = object_pod(&arena, l->pod);
    struct dialect_promise promise = {0};
    cleanup_buf struct buf used = {0};
    struct err err = {0};
    ck_assert_done(dialect_request(&pod, &err), err);
    if (!pod_is_terminal(&object) && dialect_promise(&pod, object.node, &promise, &err))
        buf_adds(&used, err.msg);
    for (int i = 0; i < 2; i++) { /* the node has two cards */
        char uuid[16];
        snprintf(uuid, sizeof uuid, "GPU-%02d", i);
        ARRAY_EACH_ITEM(const struct dialect_share, s, promise.shares, promise.n)
        if (span_eq(s->uuid, span_of(uuid)))
            buf_printf(&used, "%s%s %lld MiB %lld %%", semicolon(&used), uuid,
                       (long long)s->mib, (long long)s->cores);
    }
    compare(l, "used", l->used, &used);
    if (l->later.p)
        compare(l, "later", l->later, &used);
}

TEST(hami_answers_the_same)
{
    cleanup_buf struct buf data = {0};
    struct err err = {0};
    size_t requests = 0, bound = 0;
    ck_assert_done(file_read("test/data/hami.jsonl", 1 << 20, &data, &err), err);
    for (struct span rest = buf_span(&data); rest.n;) {
        struct line l = read_line(span_cut(&rest, '\n'));
        if (l.used.p)
            check_used(&l);
        else
            check_request(&l);
        *(l.used.p ? &bound : &requests) += 1;
    }
    ck_assert_uint_eq(requests, 249);
    ck_assert_uint_eq(bound, 34);
    array_indices(i, found)
        ck_assert_msg(found[i], "no line %s", differences[i].line);
}

/* -- beyond the data -- */

/* A pod with these annotations, and its spec. JSON with ' for ". */
static struct dialect_pod pod_of(const struct dialect *d, const char *annotations,
                                 const char *spec)
{
    return read_pod(d, quoted(&arena,
                              "{'metadata':{'name':'p','annotations':{%s}},'spec':{%s}}",
                              annotations, spec));
}

#define MAIN(limits) "'containers':[{'name':'main','resources':{'limits':{" limits "}}}]"
#define GPU(n)       "'nvidia.com/gpu':'" n "'"
#define MEM(n)       "'nvidia.com/gpumem':'" n "'"
#define PERCENT(n)   "'nvidia.com/gpumem-percentage':'" n "'"
#define CORES(n)     "'nvidia.com/gpucores':'" n "'"
#define TWO(a, b)                                                                        \
    "'containers':[{'name':'a','resources':{'limits':{" a "}}},{'name':'b','resources':" \
    "{'limits':{" b "}}}]"

static struct dialect_pod joined(const struct dialect *d, const char *annotations,
                                 const char *spec)
{
    struct dialect_pod pod = pod_of(d, annotations, spec);
    struct err err = {0};
    ck_assert_done(dialect_request(&pod, &err), err);
    ck_assert_done(dialect_join(&pod, &err), err);
    return pod;
}

TEST(requests_are_written_in_both_languages)
{
    static const struct {
        const char *spec;
        int64_t usable, total;
        const char *text;
    } cases[] = {
        {MAIN(GPU("1") "," MEM("3k")), 0, 0,
         "nvidia.com/gpumem 3000 on 1 card = 3000 MiB"},
        {MAIN(MEM("3000")), 15000, 15360, "nvidia.com/gpumem 3000 on 1 card = 3000 MiB"},
        {MAIN(GPU("2") "," PERCENT("50")), 15001, 15360,
         "nvidia.com/gpumem-percentage 50 on 2 cards = 7500 MiB each"},
        {MAIN(PERCENT("50")), 0, 0, "nvidia.com/gpumem-percentage 50 on 1 card"},
        {MAIN(GPU("1")), 15000, 15360,
         "nvidia.com/gpu 1 on 1 card = 15000 MiB, 100 percent of nvidia.com/gpucores"},
        {TWO(MEM("3000"), PERCENT("10") "," CORES("30")), 15000, 15360,
         "nvidia.com/gpumem 3000, nvidia.com/gpumem-percentage 10 on 1 card = 4500 MiB, "
         "30 "
         "percent of nvidia.com/gpucores"},
        /* What the driver keeps: all of the card, but not more. */
        {MAIN(MEM("15001")), 15000, 15360,
         "nvidia.com/gpumem 15001 on 1 card = 15000 MiB"},
        {MAIN(MEM("15360")), 15000, 15360,
         "nvidia.com/gpumem 15360 on 1 card = 15000 MiB"},
        {MAIN(MEM("15361")), 15000, 15360,
         "nvidia.com/gpumem 15361 on 1 card = 15361 MiB"},
    };
    array_items(c, cases) {
        struct dialect_pod pod = joined(&dialect_hami, "", c->spec);
        cleanup_buf struct buf text = {0};
        dialect_write(&text, &pod, c->usable, c->total);
        ck_assert_str_eq(text.p, c->text);
    }
}

TEST(containers_add_up_as_in_kubernetes)
{
    struct dialect_pod pod = joined(
        &dialect_hami, "",
        TWO(MEM("1000"), MEM("2000") "," CORES(
                             "20")) ",'initContainers':[{'name':"
                                    "'s','restartPolicy':'Always','resources':{'limits':"
                                    "{" MEM("100") "," CORES(
                                        "5") "}}},{'name':'i','resources':{'limits':"
                                             "{" PERCENT("50") "}}},{'name':'none'}]");
    ck_assert_uint_eq(pod.cards, 1);
    ck_assert_uint_eq(pod.cores, 25);
    ck_assert(!pod.alone);
    ck_assert_int_eq(dialect_mib(&pod, 4000, 4000), 3100); /* the app containers */
    ck_assert_int_eq(dialect_mib(&pod, 8000, 8000), 4100); /* the init container */
    ck_assert(joined(&dialect_hami, "", TWO(MEM("1"), MEM("1") "," CORES("100"))).alone);
    ck_assert(joined(&dialect_hami, "", TWO(MEM("1") "," CORES("100"), MEM("1"))).alone);
    ck_assert_uint_eq(joined(&dialect_hami, "", MAIN(GPU("0"))).cards, 0);
}

TEST(annotations_choose_the_placement)
{
    static const struct {
        const char *annotation;
        enum request_placement placement;
        bool one_numa;
    } cases[] = {
        {"", PLACE_SPREAD, false},
        {"'hami.io/gpu-scheduler-policy':'numa,binpack'", PLACE_BINPACK, false},
        {"'hami.io/gpu-scheduler-policy':'Binpack'", PLACE_SPREAD, false},
        {"'nvidia.com/numa-bind':'TRUE'", PLACE_SPREAD, true},
        {"'nvidia.com/numa-bind':'yes'", PLACE_SPREAD, false},
    };
    array_items(c, cases) {
        struct dialect_pod pod = joined(&dialect_hami, c->annotation, MAIN(GPU("2")));
        ck_assert_int_eq(pod.placement, c->placement);
        ck_assert_int_eq(pod.one_numa, c->one_numa);
    }
}

/* HAMi writes NVIDIA- before a name, and its rules match that, too. */
TEST(rules_of_cards)
{
    static const struct {
        const char *annotation, *model, *uuid;
        bool accepts;
    } cases[] = {
        {"'nvidia.com/use-gputype':'nvidia-tesla'", "Tesla T4", "", true},
        {"'nvidia.com/use-gputype':'NVIDIA-'", "NVIDIA A100", "", false},
        {"'nvidia.com/use-gputype':'NVIDIA A100-SXM4-40GB'", "A100", "", false},
        {"'nvidia.com/use-gputype':','", "Tesla T4", "", false},
        {"'nvidia.com/use-gputype':' '", "", "", true},
        {"'nvidia.com/nouse-gputype':'A100'", "", "", false}, /* unknown */
        {"'nvidia.com/use-gpuuuid':'GPU-a,GPU-b'", "", "GPU-b", true},
        {"'nvidia.com/use-gpuuuid':'GPU-A'", "", "GPU-a", false},
        {"'nvidia.com/nouse-gpuuuid':'GPU-a'", "", "GPU-a", false},
        {"'nvidia.com/use-gputype':'T4','nvidia.com/nouse-gpuuuid':'x'", "T4", "y", true},
    };
    array_items(c, cases) {
        struct dialect_pod pod = pod_of(&dialect_hami, c->annotation, MAIN(GPU("1")));
        struct span model = span_of(c->model), uuid = span_of(c->uuid);
        ck_assert_msg(dialect_accepts(pod.notes, &model, &uuid) == c->accepts,
                      "%s: %s %s", c->annotation, c->model, c->uuid);
    }
}

/* It would be searched for each card. */
TEST(a_long_list_accepts_no_card)
{
    cleanup_buf struct buf note = {0};
    buf_adds(&note, "'nvidia.com/nouse-gpuuuid':'");
    for (int i = 0; i < 2048; i++)
        buf_adds(&note, "x,");
    for (int more = 0; more < 2; more++) {
        const char *text = arena_printf(&arena, "%s%s'", note.p, more ? "x" : "");
        struct dialect_pod pod = pod_of(&dialect_hami, text, MAIN(GPU("1")));
        ck_assert_int_eq(dialect_accepts(pod.notes, &SPAN("T4"), &SPAN("GPU-a")), !more);
    }
}

/* The names and options are fields of the table, and so is what another system does. */
TEST(the_table_decides)
{
    struct dialect d = dialect_hami;
    struct err err = {0};
    d.limits[DIALECT_MEMORY].key = SPAN("example.com/memory");
    d.limits[DIALECT_MEMORY].factor = 256;
    d.limits[DIALECT_CORES].absent = 10;
    struct dialect_pod pod = pod_of(
        &d, "", MAIN(MEM("5") ",'example.com/memory':'8'," PERCENT("50") "," GPU("1")));
    ck_assert_done(dialect_request(&pod, &err), err);
    ck_assert_int_eq(pod.containers->mib, 2048);
    ck_assert_uint_eq(pod.containers->cores, 10);
    pod = pod_of(&d, "", MAIN("'example.com/memory':'8388608'"));
    ck_assert_int_eq(dialect_request(&pod, &err), -1);
    ck_assert_str_eq(err.msg, "container main: limit example.com/memory: 8388608 exceeds "
                              "8388607");
    d.percent_wins = true;
    d.alone_by_default = false;
    pod = pod_of(&d, "", MAIN("'example.com/memory':'8'," PERCENT("50")));
    ck_assert_done(dialect_request(&pod, &err), err);
    ck_assert_int_eq(pod.containers->mib, 0);
    ck_assert_uint_eq(pod.containers->percent, 50);
    ck_assert_int_eq(pod.containers->set[DIALECT_CARDS], 1);
}

TEST(pods_are_certainly_hamis)
{
    ck_assert(!pod_of(&dialect_hami, "", MAIN(GPU("1"))).certain);
    ck_assert(pod_of(&dialect_hami, "", MAIN(GPU("1") "," CORES("0"))).certain);
    ck_assert(pod_of(&dialect_hami, "'hami.io/vgpu-devices-allocated':''", MAIN(GPU("1")))
                  .certain);
}

/* The cards of a promise as "uuid mib cores, ...", or the error. */
static const char *promised(const char *allocated, const char *spec)
{
    struct dialect_pod pod = pod_of(
        &dialect_hami,
        quoted(&arena, "'hami.io/vgpu-node':'n1','hami.io/vgpu-devices-allocated':'%s'",
               allocated)
            .p,
        spec);
    struct dialect_promise p;
    cleanup_buf struct buf b = {0};
    struct err err = {0};
    ck_assert_done(dialect_request(&pod, &err), err);
    if (dialect_promise(&pod, SPAN("n1"), &p, &err)) {
        ck_assert_uint_eq(p.n, 0);
        return "unreadable";
    }
    ck_assert_int_eq(dialect_promise(&pod, SPAN("n2"), &p, NULL), -1);
    ck_assert_done(dialect_promise(&pod, SPAN("n1"), &p, &err), err);
    buf_adds(&b, "");
    ARRAY_EACH_ITEM(const struct dialect_share, s, p.shares, p.n)
    buf_printf(&b, "%s%.*s %lld %lld", semicolon(&b), SPAN_ARG(s->uuid),
               (long long)s->mib, (long long)s->cores);
    return arena_copy(&arena, buf_span(&b)).p;
}

TEST(promises_are_of_the_containers_with_a_card)
{
    static const char one[] = MAIN(GPU("1") "," MEM("1"));
    static const char two[] = TWO(GPU("2") "," MEM("1"), GPU("1") "," MEM("1"));
    static const char init[] =
        TWO("'cpu':'1'", MEM("1")) ",'initContainers':[{'name':'i',"
                                   "'resources':{'limits':{" MEM("1") "}}},{'name':'j'}]";
    ck_assert_str_eq(promised("a,NVIDIA,7,0:;", one), "a 7 0");
    ck_assert_str_eq(promised(";a,NVIDIA,7,0:;;", one), "a 7 0");
    ck_assert_str_eq(promised("a,T,7,10:b,T,7,10:;b,T,2,0", two), "a 7 10; b 9 10");
    ck_assert_str_eq(promised("a,T,7,30:;b,T,2,0:;", init), "a 7 30; b 2 0");
    ck_assert_str_eq(promised("a,T,7,30:;a,T,2,40:;", init), "a 7 40");
    ck_assert_str_eq(promised("", MAIN(GPU("0"))), "");
    static const char
        *const
            damaged
                [] =
                    {
                        "a,T,7,0:;b,T,7,0:;", /* another container's */
                        "a,T,7,0:b,T,7,0:;",  /* more cards than the container has */
                        "a,T,7,0::;",
                        "a,T,7",
                        ",T,7,0:;",
                        "a,T,0,0:;", /* no limit in the container */
                        "a,T,2147483648,0:;",
                        "a,T,7,101:;",
                        "a,T,7,-1:;",
                        ":",
                        "a",
                    };
    array_items(d, damaged)
        ck_assert_msg(!strcmp(promised(*d, one), "unreadable"), "%s", *d);
    cleanup_buf struct buf many = {0};
    for (int i = 0; i <= REQUEST_MAX_CARDS; i++)
        buf_printf(&many, "%d,T,7,0:", i);
    ck_assert_str_eq(promised(many.p, one), "unreadable");
}
