/* SPDX-License-Identifier: Apache-2.0 */
#include "node/usage.h"

#include "lib/unit.h"

/*
 * The input, one item a line:
 *
 *     use CARD PID MIB SM          NVML has the process; "+" behind MIB: one byte more
 *     in PID UID ID                it runs in this container
 *     out PID NAME                 it runs outside Kubernetes
 *     name ID POD CONTAINER        the kubelet's name of a container, in namespace "team"
 *     cut BEGIN POD CONTAINER UID  the same, with the begin of the ID and the UID of the pod
 *     limit PID UUID MIB CONTEXT   a process of a pod with a limit; with a slot of that card
 *     promise POD CONTAINER UUID MIB
 *     listed POD CONTAINER         the kubelet lists it
 *     init UID POD CONTAINER UUID MIB BESIDE
 *     driver POD CONTAINER UID ID UUID LIMIT USED   what the driver says in MIB; -1: no limit, no use
 *     reads UUID                   the driver has limits on the card
 *     library POD CONTAINER        the pod has its files
 *     node WORD                    what the node can enforce; nothing: "none"
 */

enum { MIB = 1 << 20, MOST = 8 };

static struct gpu_card cards[2];
static struct gpu_process processes[2][MOST];
static struct gpu_sample sample;
static struct usage_place places[MOST];
static struct usage_name names[MOST];
static struct usage_promise promises[MOST];
static struct usage_listed listed[MOST];
static struct usage_init_promise inits[MOST];
static struct usage_limit limits[MOST];
static struct usage_listed library[MOST];
static struct span readable[MOST];
static struct usage_input in;
static struct usage u;

static void begin(void)
{
    for (int i = 0; i < 2; i++) {
        cards[i] = (struct gpu_card){.index = i,
                                     .known = UINT32_C(1) << GPU_MEM_TOTAL |
                                              UINT32_C(1) << GPU_MEM_FREE,
                                     .value[GPU_MEM_TOTAL] = INT64_C(16384) * MIB,
                                     .value[GPU_MEM_FREE] = INT64_C(4096) * MIB,
                                     .processes_known = true,
                                     .processes = processes[i]};
        snprintf(cards[i].uuid, sizeof cards[i].uuid, "GPU-%d", i);
    }
    sample = (struct gpu_sample){.cards = cards, .n_cards = 2};
    in = (struct usage_input){.taken_ms = 7,
                              .sample = &sample,
                              .promises_known = true,
                              .places = places,
                              .names = names,
                              .promises = promises,
                              .listed = listed,
                              .inits = inits,
                              .limits = limits,
                              .library = library,
                              .readable = readable};
}

static struct span word(struct span *line)
{
    return span_cut(line, ' ');
}

static int64_t number(struct span *line)
{
    return atoll(word(line).p);
}

static void add_process(struct span *line)
{
    int64_t card = number(line), pid = number(line);
    struct span mib = word(line);
    int64_t bytes = atoll(mib.p) * MIB + (mib.p[mib.n - 1] == '+');
    processes[card][cards[card].n_processes++] =
        (struct gpu_process){pid, bytes < 0 ? -1 : bytes, (int32_t)number(line)};
}

static void add(struct span line)
{
    const struct span team = SPAN("team"), verb = word(&line);
#define IS(text) span_eq(verb, SPAN(text))
    if (IS("use")) {
        add_process(&line);
    } else if (IS("in") || IS("out")) {
        struct usage_place *p = &places[in.n_places++];
        int64_t pid = number(&line);
        *p = (struct usage_place){.pid = {pid, 1000 + (uint64_t)pid},
                                  .kind = IS("in") ? USAGE_CONTAINER : USAGE_OUTSIDE};
        *(IS("in") ? &p->pod_uid : &p->name) = word(&line);
        p->container_id = word(&line);
    } else if (IS("name")) {
        struct span id = word(&line), pod = word(&line);
        names[in.n_names++] = (struct usage_name){id, team, pod, word(&line), {0}};
    } else if (IS("cut")) {
        struct span begin = word(&line), pod = word(&line), container = word(&line);
        names[in.n_names++] =
            (struct usage_name){begin, team, pod, container, word(&line)};
    } else if (IS("limit")) {
        static struct usage_slot slots[MOST];
        struct usage_place *p = places;
        for (int64_t pid = number(&line); p->pid.pid != pid;)
            p++;
        bool any = line.p != NULL;
        p->slots = &slots[p - places];
        p->slots->uuid = word(&line);
        p->slots->used = any ? number(&line) * MIB : -1;
        p->slots->context = any ? number(&line) * MIB : 0;
        p->n_slots = 1;
    } else if (IS("promise")) {
        struct span pod = word(&line), container = word(&line), uuid = word(&line);
        promises[in.n_promises++] =
            (struct usage_promise){team, pod, container, uuid, number(&line)};
    } else if (IS("listed")) {
        struct span pod = word(&line);
        listed[in.n_listed++] = (struct usage_listed){team, pod, word(&line)};
    } else if (IS("driver")) {
        struct span pod = word(&line), container = word(&line), uid = word(&line),
                    id = word(&line), uuid = word(&line);
        int64_t hard = number(&line), used = number(&line);
        limits[in.n_limits++] =
            (struct usage_limit){team,
                                 pod,
                                 container,
                                 uid,
                                 id,
                                 uuid,
                                 0,
                                 0,
                                 hard < 0 ? GPU_NO_LIMIT : (uint64_t)hard * MIB,
                                 used < 0 ? -1 : used * MIB,
                                 0,
                                 false};
    } else if (IS("reads")) {
        readable[in.n_readable++] = word(&line);
    } else if (IS("library")) {
        struct span pod = word(&line);
        library[in.n_library++] = (struct usage_listed){team, pod, word(&line)};
    } else if (IS("node")) {
        in.isolation = SCV_ISOLATION_KNOWN |
                       (span_eq(word(&line), SPAN("mps")) ? SCV_ISOLATION_MPS : 0);
    } else {
        struct span uid = word(&line), pod = word(&line), container = word(&line);
        struct span uuid = word(&line);
        int64_t mib = number(&line);
        inits[in.n_inits++] = (struct usage_init_promise){
            uid, team, pod, container, uuid, mib, number(&line), 0};
    }
#undef IS
}

/* "card pod/name uid id used sm promised pids" of every container; "?" if its promise is not
 * clear. */
static const char *text(void)
{
    static char out[4096];
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < u.n_containers; i++) {
        const struct usage_container *c = &u.containers[i];
        n += (size_t)snprintf(
            out + n, sizeof out - n, "%zu %.*s/%.*s %.*s %.*s %lld %lld %lld%s", c->card,
            SPAN_ARG(c->pod), SPAN_ARG(c->name), SPAN_ARG(c->pod_uid),
            SPAN_ARG(c->container_id), (long long)c->used_mib, (long long)c->sm_percent,
            (long long)c->promised_mib, c->promise_unclear ? "?" : "");
        for (size_t k = 0; k < c->n_pids; k++)
            n += (size_t)snprintf(out + n, sizeof out - n, " %lld@%llu",
                                  (long long)c->pids[k].pid,
                                  (unsigned long long)c->pids[k].started);
        n += (size_t)snprintf(out + n, sizeof out - n, "\n");
    }
    return out;
}

static const char *build(const char *script)
{
    for (struct span rest = span_of(script); rest.n;)
        add(span_cut(&rest, '\n'));
    usage_build(&in, &u);
    return text();
}

static const struct {
    const char *script, *text;
    bool incomplete; /* card 0 */
} examples[] = {
    /* Promised and used. */
    {"use 0 10 1000+ 30\n"
     "use 0 11 500+ 80\n"
     "use 0 20 8000 5\n"
     "use 1 10 1 0\n"
     "in 10 u1 c1\n"
     "in 11 u1 c1\n"
     "in 20 u2 c2\n"
     "name c2 train main\n"
     "name c1 serve main\n"
     "listed serve main\n"
     "promise serve main GPU-0 1024\n"
     "promise serve main GPU-0 1024\n"
     "promise idle main GPU-1 4096\n"
     "promise gone main GPU-9 4096",
     "0 serve/main u1 c1 1501 100 2048 10@1010 11@1011\n"
     "0 train/main u2 c2 8000 5 -1? 20@1020\n"
     "1 idle/main   0 0 4096\n"
     "1 serve/main u1 c1 1 0 0 10@1010\n",
     false},
    /* It is not known where the process runs, which may be in the container that has the
     * promise. */
    {"use 0 10 1 1\n"
     "promise idle main GPU-0 4096",
     "0 idle/main   -1 -1 4096\n", true},
    {"use 0 10 1 1\n"
     "in 10",
     "", true},
    /* Unknown memory is neither 0 nor huge. */
    {"use 0 10 -1 -1\n"
     "use 0 11 1 4\n"
     "in 10 u1 c1\n"
     "in 11 u1 c1\n"
     "name c1 serve main\n"
     "listed serve main\n"
     "promise serve main GPU-0 1",
     "0 serve/main u1 c1 -1 -1 1 10@1010 11@1011\n", true},
    /* A container without a name. */
    {"use 0 10 1 1\n"
     "in 10 u1 c1\n"
     "promise idle main GPU-0 4096\n"
     "promise idle main GPU-1 4096",
     "0 / u1 c1 1 1 -1? 10@1010\n"
     "0 idle/main   -1 -1 4096\n"
     "1 idle/main   0 0 4096\n",
     false},
    /* The order of the input does not matter. */
    {"use 0 10 1 1\n"
     "use 0 11 1 2\n"
     "use 0 12 1 3\n"
     "in 10 u2 c2\n"
     "in 11 u1 c1\n"
     "in 12 u1 c0\n"
     "name c2 q x\n"
     "name c0 p y\n"
     "name c1 p x",
     "0 p/x u1 c1 1 2 -1? 11@1011\n"
     "0 p/y u1 c0 1 3 -1? 12@1012\n"
     "0 q/x u2 c2 1 1 -1? 10@1010\n",
     false},
};

TEST(containers_of_a_sample)
{
    array_items(example, examples) {
        begin();
        ck_assert_str_eq(build(example->script), example->text);
        ck_assert(u.cards[0].complete == !example->incomplete);
        ck_assert(u.cards[1].complete);
        ck_assert_int_eq(u.taken_ms, 7);
        ck_assert_int_eq(u.cards[1].total_mib, 16384);
        ck_assert_int_eq(u.cards[1].free_mib, 4096);
    }
}

TEST(outside_kubernetes)
{
    build("use 0 10 1 1\n"
          "use 0 30 300 2\n"
          "use 0 31 1 1\n"
          "in 10 u1 c1\n"
          "out 30 Xorg\xff");
    ck_assert(!u.cards[0].complete);
    ck_assert_uint_eq(u.n_outside, 2);
    ck_assert_int_eq(u.outside[0].pid.pid, 30);
    ck_assert_uint_eq(u.outside[0].pid.started, 1030);
    ck_assert_str_eq(u.outside[0].name, "Xorg?");
    ck_assert_int_eq(u.outside[0].used_mib, 300);
    ck_assert_int_eq(u.outside[0].sm_percent, 2);
    ck_assert(!u.outside[0].unmapped && u.outside[1].unmapped);
}

TEST(places_that_are_not_mapped)
{
    places[0] = (struct usage_place){.pid = {10, 1}, .kind = USAGE_UNMAPPED};
    in.n_places = 1;
    ck_assert_str_eq(build("use 0 10 1 1"), "");
    ck_assert(!u.cards[0].complete && u.outside[0].unmapped);
    places[0].kind = USAGE_ENDED;
    ck_assert_str_eq(build(""), "");
    ck_assert(u.cards[0].complete && !u.n_outside);
    cards[0].processes_known = false;
    build("");
    ck_assert(!u.cards[0].complete && u.cards[1].complete);
    in.sample = NULL;
    build("");
    ck_assert(!u.n_cards);
    ck_assert_int_eq(u.taken_ms, 7);
}

TEST(promises_that_are_not_clear)
{
    ck_assert_str_eq(build("use 0 10 1 1\n"
                           "use 0 11 1 1\n"
                           "use 0 12 1 1\n"
                           "use 1 11 1 1\n"
                           "in 10 u1 c1\n"
                           "in 11 u1 c2\n"
                           "in 12 u1 c3\n"
                           "name c1 serve init\n"
                           "name c2 serve main\n"
                           "name c3 serve side\n"
                           "listed serve main\n"
                           "listed serve side\n"
                           "promise serve main GPU-0 1024\n"
                           "promise serve main GPU-1 -1\n"
                           "promise idle main GPU-1 -1"),
                     "0 serve/init u1 c1 1 1 -1? 10@1010\n"
                     "0 serve/main u1 c2 1 1 1024 11@1011\n"
                     "0 serve/side u1 c3 1 1 -1 12@1012\n"
                     "1 idle/main   0 0 -1?\n"
                     "1 serve/main u1 c2 1 1 -1? 11@1011\n");
    /* The promises on a card without a UUID are not known. */
    cards[0].uuid[0] = '\0';
    ck_assert_str_eq(build(""), "0 serve/init u1 c1 1 1 -1? 10@1010\n"
                                "0 serve/main u1 c2 1 1 0? 11@1011\n"
                                "0 serve/side u1 c3 1 1 -1? 12@1012\n"
                                "1 idle/main   0 0 -1?\n"
                                "1 serve/main u1 c2 1 1 -1? 11@1011\n");
    in.promises_known = false;
    cards[0].uuid[0] = 'G';
    ck_assert_str_eq(build(""), "0 serve/init u1 c1 1 1 -1? 10@1010\n"
                                "0 serve/main u1 c2 1 1 -1? 11@1011\n"
                                "0 serve/side u1 c3 1 1 -1? 12@1012\n"
                                "1 serve/main u1 c2 1 1 -1? 11@1011\n");
}

TEST(cards_in_mig_mode_are_left_out)
{
    cards[0].state = GPU_MIG;
    ck_assert_str_eq(build("use 0 10 1 1\n"
                           "use 1 11 1 1\n"
                           "in 10 u1 c1\n"
                           "in 11 u2 c2"),
                     "0 / u2 c2 1 1 -1? 11@1011\n");
    ck_assert_uint_eq(u.n_cards, 1);
    ck_assert_int_eq(u.cards[0].index, 1);
}

TEST(an_instance_has_processes_and_promises_of_its_own)
{
    cards[0].state = GPU_MIG;
    strcpy(cards[1].uuid, "MIG-1");
    cards[1].index = 64;
    ck_assert_str_eq(build("use 0 10 1 1\n"
                           "use 1 11 1 1\n"
                           "in 10 u1 c1\n"
                           "in 11 u2 c2\n"
                           "name c2 p main\n"
                           "init u2 p main MIG-1 2048 1024\n"
                           "init u2 p main GPU-0 1024 1024"),
                     "0 p/main u2 c2 1 1 2048 11@1011\n");
}

/* What the kubelet does not list comes from the device plugin, by UID. */
TEST(promises_of_init_containers)
{
    ck_assert_str_eq(build("use 0 10 1 1\n"
                           "use 0 11 1 1\n"
                           "use 0 12 1 1\n"
                           "use 1 10 1 1\n"
                           "in 10 u1 c1\n"
                           "in 11 u2 c2\n"
                           "in 12 u1 c3\n"
                           "name c1 p init\n"
                           "name c2 p init\n"
                           "name c3 p debug\n"
                           "init u1 p init GPU-0 2048 1024\n"
                           "init u1 p done GPU-0 -1 0\n"
                           "init u1 p done GPU-9 1 0"),
                     "0 p/debug u1 c3 1 1 -1? 12@1012\n"
                     "0 p/init u1 c1 1 1 2048 10@1010\n"
                     "0 p/init u2 c2 1 1 -1? 11@1011\n" /* another UID */
                     "1 p/init u1 c1 1 1 0 10@1010\n");
    ck_assert(u.containers[1].init && !u.containers[2].init && u.containers[3].init);
    ck_assert_uint_eq(u.n_inits, 2);
    ck_assert_int_eq(u.inits[0].mib, 2048);
    ck_assert_int_eq(u.inits[0].beside_mib, 1024);
    ck_assert_int_eq(u.inits[1].mib, -1);
    in.promises_known = false;
    build("");
    ck_assert_uint_eq(u.n_inits, 0);
    ck_assert(!u.containers[1].init && u.containers[1].promise_unclear);
}

/* Of plain init containers, the plugin knows all promises; others have none. */
TEST(containers_that_are_not_listed)
{
    in.inits_known = true;
    ck_assert_str_eq(build("use 0 10 1 1\n"
                           "use 0 11 1 1\n"
                           "use 0 12 1 1\n"
                           "in 10 u1 c1\n"
                           "in 11 u2 c2\n"
                           "in 12 u1 c3\n"
                           "name c1 p debug\n"
                           "name c2 q debug\n"
                           "name c3 p init\n"
                           "listed p main\n"
                           "init u1 p init GPU-0 2048 0\n"
                           "promise p main GPU-0 1024"),
                     "0 p/debug u1 c1 1 1 -1 10@1010\n"
                     "0 p/init u1 c3 1 1 2048 12@1012\n"
                     "0 p/main   0 0 1024\n"
                     "0 q/debug u2 c2 1 1 -1? 11@1011\n"); /* its pod is not listed yet */
    in.promises_known = in.inits_known = false;
    build("");
    ck_assert(u.containers[0].promise_unclear);
}

TEST(names_with_a_part_of_the_id)
{
    ck_assert_str_eq(build("use 0 10 1 1\n"
                           "use 0 11 1 1\n"
                           "use 0 12 1 1\n"
                           "in 10 u1 c1\n"
                           "in 11 u2 c1\n"
                           "in 12 u3 d1\n"
                           "cut c p main u1\n"
                           "cut  q init u2\n"
                           "cut  q main u2\n"
                           "cut  q side u2\n"
                           "cut c r main u3\n"
                           "listed p main\n"
                           "listed q side\n"
                           "listed q main"),
                     "0 / u3 d1 1 1 -1? 12@1012\n"
                     "0 p/main u1 c1 1 1 -1 10@1010\n"
                     "0 q/main u2 c1 1 1 -1 11@1011\n");
}

TEST(processes_without_their_limit)
{
    build("use 0 10 3 1\n"
          "use 0 11 4 1\n"
          "use 0 12 5+ 1\n"
          "use 1 11 6 1\n"
          "use 0 13 7 1\n"
          "in 10 u1 c1\n"
          "in 11 u1 c1\n"
          "in 12 u1 c1\n"
          "in 13 u2 c2\n"
          "limit 10  3 1\n" /* any card */
          "limit 11 GPU-0 3 2\n"
          "limit 12");
    ck_assert_uint_eq(u.n_containers, 3);
    ck_assert_int_eq(u.containers[0].used_mib, 13);
    ck_assert_int_eq(u.containers[0].unlimited_mib, 6);
    ck_assert_int_eq(u.containers[0].n_slots, 2);
    ck_assert_int_eq(u.containers[0].context_mib, 1 + 3); /* 3 - (3 - 1), 4 - (3 - 2) */
    ck_assert_int_eq(u.containers[1].unlimited_mib, 0);   /* its pod has no limit */
    ck_assert_int_eq(u.containers[2].unlimited_mib, 6);
}

/* Managed memory is only in the sum of the processes; a process that NVML does not list only in
 * what the driver measures. */
TEST(the_driver_measures_containers_with_a_limit)
{
    ck_assert_str_eq(build("use 0 10 100 1\n"
                           "use 0 11 4000 1\n"
                           "use 0 12 -1 1\n"
                           "use 0 13 50 1\n"
                           "in 10 u1 c1\n"
                           "in 11 u2 c2\n"
                           "in 12 u3 c3\n"
                           "in 13 u5 c5\n"
                           "name c1 p main\n"
                           "name c4 idle main\n"
                           "promise p main GPU-0 4096\n"
                           "promise idle main GPU-0 1024\n"
                           "listed p main\n"
                           "listed idle main\n"
                           "driver p main u1 c1 GPU-0 4096 700\n"
                           "driver q main u2 c2 GPU-0 4096 600\n"
                           "driver r main u3 c3 GPU-0 4096 300\n"
                           "driver idle main u4 c4 GPU-0 1024 0\n"
                           "driver s main u5 c5 GPU-0 -1 -1\n"
                           "driver s main u5 c5 GPU-7 1024 900"),
                     "0 / u2 c2 4000 1 -1? 11@1011\n"
                     "0 / u3 c3 300 1 -1? 12@1012\n"
                     "0 / u5 c5 50 1 -1? 13@1013\n"
                     "0 idle/main u4 c4 0 0 1024\n"
                     "0 p/main u1 c1 700 1 4096 10@1010\n");
    ck_assert(u.containers[0].by_driver && !u.containers[2].by_driver);
    ck_assert(!u.cards[0].complete); /* managed memory of a process is not known */
}

TEST(what_enforces_the_promise_of_a_container)
{
    enum { KNOWN = SCV_ISOLATION_KNOWN, DRIVER = SCV_ISOLATION_DRIVER };
    enum { LIBRARY = SCV_ISOLATION_LIBRARY, MPS = SCV_ISOLATION_MPS };
#define IDLE "promise p main GPU-0 1024\n"
#define BUSY IDLE "listed p main\nname c1 p main\nin 10 u1 c1\nuse 0 10 5 1\n"
    static const struct {
        const char *script;
        uint8_t bits;
    } cases[] = {
        {IDLE, 0}, /* of a node program of another version, nothing is known */
        {BUSY "node none", KNOWN},
        {BUSY "node mps", KNOWN | MPS},
        {BUSY "node none\nreads GPU-0", 0}, /* and was not read */
        {BUSY "node none\nreads GPU-1", KNOWN},
        {BUSY "node mps\nreads GPU-0", KNOWN | MPS},
        {BUSY "node none\nreads GPU-0\ndriver p main u1 c1 GPU-0 1024 7", KNOWN | DRIVER},
        {BUSY "node none\nreads GPU-0\ndriver p main u1 c1 GPU-0 512 7", KNOWN | DRIVER},
        {BUSY "node none\nreads GPU-0\ndriver p main u1 c1 GPU-0 1025 7", KNOWN},
        {BUSY "node none\nreads GPU-0\ndriver p main u1 c1 GPU-0 -1 -1", KNOWN},
        {BUSY "node none\nreads GPU-0\ndriver p main u1 c1 GPU-1 1024 7", 0},
        {BUSY "node none\nreads GPU-0\ndriver p main u1 c2 GPU-0 1024 -1", 0},
        {BUSY "reads GPU-0\ndriver p main u1 c1 GPU-0 1024 7", KNOWN | DRIVER},
        {BUSY "reads GPU-0\ndriver p main u1 c1 GPU-0 -1 -1", 0},
        {IDLE "name c1 p main\nnode none\nreads GPU-0\ndriver p main u1 c1 GPU-0 1024 0",
         KNOWN | DRIVER},
        {IDLE "node none\nlibrary p main", KNOWN | LIBRARY},
        {IDLE "node none\nlibrary p other", KNOWN},
        {BUSY "node none\nlibrary p main",
         KNOWN}, /* its process is older than the files */
        {BUSY "node none\nlimit 10 GPU-0 5 1", KNOWN | LIBRARY},
        {BUSY "node none\nlimit 10", KNOWN}, /* it runs without the library */
        {BUSY "node none\nlimit 10 GPU-0 5 1\nreads GPU-0\n"
              "driver p main u1 c1 GPU-0 1024 7",
         KNOWN | DRIVER | LIBRARY},
        {"promise p main GPU-0 16384\nnode mps", 0}, /* a whole card */
        {"promise p main GPU-0 -1\nnode mps", 0},
    };
    array_indices(i, cases) {
        begin();
        build(cases[i].script);
        ck_assert(u.n_containers && u.containers[0].card == 0);
        ck_assert_msg(u.containers[0].enforced_by == cases[i].bits, "case %zu: %d", i,
                      u.containers[0].enforced_by);
    }
}

UNIT_MAIN_AROUND(begin, NULL)
