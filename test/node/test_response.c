/* SPDX-License-Identifier: Apache-2.0 */
#include "node/response.h"

#include "base/file.h"
#include "domain/objects.h"
#include "lib/temp.h"
#include "lib/yamlfile.h"
#include "placement/links_fixture.h"

/*
 * The answer to Allocate, and manifests/samples/frameworks: what the scripts of these pods
 * compute from its variables. The frameworks are stubs that print the limit that they are
 * given. It must not exceed what the pod was promised on any card, and not be much less.
 */

#define PAGE "docs/user-guide.md"

static struct arena arena;
static struct cards cards;
static char *dir;

static void begin(void)
{
    dir = temp_dir();
}

static void end(void)
{
    temp_dir_remove(dir);
    free(dir);
    arena_fini(&arena);
}

/* Cards GPU-0 and GPU-1; 0: there is none. */
static void see_cards(int64_t unit_mib, int64_t first_mib, int64_t second_mib)
{
    struct card_seen seen[] = {
        {.uuid = "GPU-0", .mib = first_mib, .present = true, .health.healthy = true},
        {.uuid = "GPU-1", .mib = second_mib, .present = true, .health.healthy = true}};
    seen[1].index = 1;
    struct err err;
    cards_init(&cards, &(struct cards_settings){.unit_mib = unit_mib});
    ck_assert(cards_take(&cards, 1, seen, second_mib ? 2 : 1, NULL, &err));
}

/* The pod "p" of UID "u-1" with these annotations and containers. */
static struct pod_allocation *pod_of(const char *annotations, const char *containers)
{
    struct pod pod = object_pod(
        &arena,
        quoted(&arena,
               "{'metadata':{'name':'p','namespace':'ns','uid':'u-1','annotations':{%s}},"
               "'spec':{'nodeName':'n1',%s},'status':{'phase':'Pending'}}",
               annotations, containers));
    return pod_allocation_new(&pod, cards.settings.unit_mib, cards.settings.dialect);
}

/* The answer for the first container of the pod, which gets so many units of each of these
 * cards, or a slot of as many MiB; 0: whole cards. Frees the pod. */
static const struct response *respond(struct response_settings settings,
                                      struct pod_allocation *pod, const char *first,
                                      const char *second, int64_t units, struct err *err)
{
    const char *const uuids[] = {first, second};
    const bool slots = pod->containers->resource == IDS_SHARE;
    struct allocation *al =
        allocation_new(SPAN("u-1"), SPAN("ns"), SPAN("p"), SPAN("a"), CONTAINER_APP,
                       slots   ? IDS_SHARE
                       : units ? IDS_MEM
                               : IDS_COUNT);
    al->slot_mib = slots ? units : 0;
    units = slots ? 1 : units;
    settings.mps_dir = "/run/mps";
    settings.limit_dir = "/l";
    settings.unit_mib = cards.settings.unit_mib;
    for (int i = 0; i < 2 && uuids[i]; i++)
        for (int64_t k = units ? 0 : -1; k < units; k++)
            allocation_add(al, span_of(uuids[i]), i, k);
    const struct response *r =
        response_of(&settings, &cards, pod, pod->containers, al, &arena, err);
    allocation_free(al);
    pod_allocation_free(pod);
    return r;
}

#define OF(units) "'resources':{'limits':{'" KEY_GPU_MEM "':'" #units "'}}"

static const char *env(const struct response *r, const char *key)
{
    for (size_t i = 0; i < r->dp.n_envs; i++)
        if (strcmp(r->dp.envs[i].key.p, key) == 0)
            return r->dp.envs[i].value.p;
    return "";
}

static const char *mount_at(const struct response *r, const char *at)
{
    for (size_t i = 0; i < r->dp.n_mounts; i++)
        if (strcmp(r->dp.mounts[i].container_path.p, at) == 0)
            return r->dp.mounts[i].host_path.p;
    return "";
}

/* A response without one of the cards would start the container on fewer cards than promised. */
TEST(each_card_has_its_own_share)
{
    static const char *const uuids[][2] = {
        {"GPU-1", "GPU-0"}, {"GPU-9", "GPU-1"}, {"GPU-1", "GPU-9"}};
    const struct response *r[3];
    struct err err;
    see_cards(1024, 8192, 16384);
    for (int i = 0; i < 3; i++)
        r[i] = respond((struct response_settings){.isolation = ISOLATION_MPS},
                       pod_of("'" KEY_GPU_COUNT "':'2','" KEY_MEM_IDX "':'0,1'",
                              "'containers':[{'name':'a'," OF(8) "}]"),
                       uuids[i][0], uuids[i][1], 4, &err);
    ck_assert(r[0] && !r[1] && !r[2]);
    ck_assert_str_eq(err.msg, "the allocated card GPU-9 is not on this node");
    ck_assert_int_eq(err.code, ERR_NOT_FOUND);
    ck_assert_str_eq(env(r[0], KEY_VISIBLE_DEVICES), "GPU-1,GPU-0");
    ck_assert_str_eq(env(r[0], "ALIYUN_COM_GPU_MEM_CONTAINER"), "8");
    ck_assert_str_eq(env(r[0], KEY_MEM_DEV), "16,8");
    ck_assert_str_eq(env(r[0], "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "0=4096M,1=4096M");
    ck_assert_str_eq(env(r[0], "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "25");
}

/* An instance has a UUID, also where cards are named by index, and no MPS. */
TEST(an_instance_is_named_by_its_uuid_and_has_no_mps)
{
    struct err err;
    see_cards(1024, 8192, 16384);
    strcpy(cards.items[1].parent, "GPU-m");
    for (int i = 0; i < 2; i++) {
        const struct response *r = respond(
            (struct response_settings){.isolation = ISOLATION_MPS, .by_index = true},
            pod_of(i ? "'gpushare/isolation':'limit','" KEY_MEM_IDX "':'1'"
                     : "'" KEY_MEM_IDX "':'1'",
                   "'containers':[{'name':'a'," OF(4) "}]"),
            "GPU-1", NULL, 4, &err);
        ck_assert_ptr_nonnull(r);
        ck_assert_str_eq(env(r, KEY_VISIBLE_DEVICES), "GPU-1");
        ck_assert_str_eq(env(r, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "");
        ck_assert(i ? r->limit && !r->not_isolated
                    : strstr(r->not_isolated, "has no MPS daemon") != NULL);
    }
}

/* -- what connects the cards -- */

/* The cards GPU-0 and so on of a machine. `wrong`: the width of a pair, -1: none is wrong. */
static void see_machine(const struct machine *m, int wrong)
{
    struct card_seen seen[CARDS_MAX] = {0};
    struct span words = span_of(m->rows);
    struct err err;
    for (unsigned i = 0; i < m->n; i++) {
        snprintf(seen[i].uuid, sizeof seen[i].uuid, "GPU-%u", i);
        seen[i].index = (int32_t)i;
        seen[i].mib = 8192;
        seen[i].present = seen[i].health.healthy = true;
        seen[i].near.at = (uint8_t)i;
        seen[i].near.numa_node = m->numa[i] == '-' ? -1 : m->numa[i] - '0';
        for (unsigned k = 0; k < m->n; k++)
            seen[i].near.width[k] = link_width(span_cut(&words, ' '));
    }
    if (wrong >= 0)
        seen[0].near.width[1] = seen[1].near.width[0] = (uint8_t)wrong;
    cards_init(&cards, &(struct cards_settings){.unit_mib = 1024});
    ck_assert(cards_take(&cards, 1, seen, m->n, NULL, &err));
}

/* The answer for a container of whole cards, with these indexes. */
static const struct response *respond_of_machine(struct response_settings settings,
                                                 const char *indexes)
{
    struct allocation *al = allocation_new(SPAN("u-1"), SPAN("ns"), SPAN("p"), SPAN("a"),
                                           CONTAINER_APP, IDS_COUNT);
    struct err err;
    int n = 0;
    for (struct span rest = span_of(indexes); rest.p; n++) {
        struct span index = span_cut(&rest, ',');
        cleanup_free char *uuid = xasprintf("GPU-%.*s", SPAN_ARG(index));
        allocation_add(al, span_of(uuid), atoi(index.p), -1);
    }
    cleanup_free char *annotation = xasprintf("'" KEY_MEM_IDX "':'%s'", indexes);
    cleanup_free char *containers = xasprintf(
        "'containers':[{'name':'a','resources':{'limits':{'" KEY_GPU_COUNT "':'%d'}}}]",
        n);
    struct pod_allocation *pod = pod_of(annotation, containers);
    settings.unit_mib = 1024;
    const struct response *r =
        response_of(&settings, &cards, pod, pod->containers, al, &arena, &err);
    ck_assert_msg(r != NULL, "%s", err.msg);
    allocation_free(al);
    pod_allocation_free(pod);
    return r;
}

/* The indexes of the names in the order of a list, each behind "GPU-". */
static const char *indexes_in(const char *names)
{
    char *out = arena_zalloc(&arena, strlen(names) + 1);
    for (const char *p = names; (p = strstr(p, "GPU-")); p += 4)
        sprintf(out + strlen(out), "%s%d", *out ? "," : "", atoi(p + 4));
    return out;
}

static void check_names(const char *promise, const char *want)
{
    static const struct driver_view view = {.cdi_kind = "nvidia.com/gpu"};
    const struct response *r = respond_of_machine((struct response_settings){0}, promise);
    ck_assert_str_eq(indexes_in(env(r, KEY_VISIBLE_DEVICES)), want);
    ck_assert_str_eq(env(r, KEY_MEM_IDX), promise);
    r = respond_of_machine((struct response_settings){.by_index = true}, promise);
    ck_assert_str_eq(env(r, KEY_VISIBLE_DEVICES), want);
    r = respond_of_machine(
        (struct response_settings){.strategy = DRIVER_CDI_ANNOTATIONS, .view = &view},
        promise);
    ck_assert_str_eq(indexes_in(r->dp.annotations[0].value.p), want);
    r = respond_of_machine(
        (struct response_settings){.strategy = DRIVER_CDI_CRI, .view = &view}, promise);
    cleanup_buf struct buf names = {0};
    for (size_t i = 0; i < r->dp.n_cdi; i++)
        buf_adds(&names, r->dp.cdi[i].p);
    ck_assert_str_eq(indexes_in(names.p), want);
}

TEST(cards_are_named_in_the_order_of_their_best_ring)
{
    enum { V100, V100_4, A100, A40, T4 };
    static const struct {
        int machine;
        const char *promise, *ring;
    } cases[] = {
        {V100, "0,1,2,3,4,5,6,7", "0,3,2,1,5,6,7,4"}, /* NV2 all around */
        {V100, "0,1,4,5", "0,1,5,4"},
        {V100, "5,1,4,0", "5,1,0,4"}, /* it begins as the promise */
        {V100, "0,1,2,3", "0,1,2,3"},
        {V100, "7,3", "7,3"},
        {V100, "6", "6"},
        {A40, "0,2,1,4", "0,2,1,4"}, /* SYS in any order */
        {A40, "2,4,3", "2,4,3"},
        /* All pairs are alike. */
        {A100, "0,1,2,3,4,5,6,7", "0,1,2,3,4,5,6,7"},
        {A100, "3,1,2", "3,1,2"},
    };
    array_items(c, cases) {
        see_machine(&machines[c->machine], -1);
        check_names(c->promise, c->ring);
    }
}

TEST(cards_of_unknown_connections_are_named_as_promised)
{
    static const uint8_t widths[] = {LINK_UNKNOWN, LINK_MAX}; /* no word, and X */
    array_items(width, widths) {
        see_machine(&machines[0], *width);
        check_names("0,1", "0,1");
        check_names("0,1,4,5", "0,1,4,5");
        check_names("1,4,5,0", "1,4,5,0");
        check_names("2,3,6,7", "2,3,7,6"); /* none of these is unknown */
    }
}

TEST(the_numa_node_of_all_cards_is_named)
{
    static const char *const cases[][2] = {{"0", "0"},       {"4", "1"},
                                           {"0,1,2,3", "0"}, {"7,4", "1"},
                                           {"3,4", ""},      {"0,1,2,3,4,5,6,7", ""}};
    array_indices(i, cases) {
        see_machine(&machines[0], -1);
        ck_assert_str_eq(
            env(respond_of_machine((struct response_settings){0}, cases[i][0]),
                KEY_NUMA_NODE),
            cases[i][1]);
        see_machine(&machines[ARRAY_LEN(machines) - 1], -1); /* unknown */
        ck_assert_str_eq(
            env(respond_of_machine((struct response_settings){0}, cases[i][0]),
                KEY_NUMA_NODE),
            "");
    }
}

/* -- isolation -- */

/* What a pod asks for, what its node gives by default, and what it gets: more isolation and not
 * less. An image can have its own preload file, or its own variable. */
TEST(a_pod_says_how_it_is_isolated)
{
    enum { NO, MPS = 1, FILE_ = 2, VARIABLE = 4, BOTH = FILE_ | VARIABLE };
    static const char own[] = "'env':[{'name':'LD_PRELOAD','value':'x'}],";
    static const struct {
        const char *asks;
        enum isolation node;
        bool less;
        const char *env;
        int gets;
        const char *why;
    } cases[] = {
        {"", ISOLATION_NONE, false, "", NO, NULL},
        {"none", ISOLATION_NONE, false, "", NO, NULL},
        {"limit", ISOLATION_NONE, false, "", BOTH, NULL},
        {"mps", ISOLATION_NONE, false, "", NO, "this node has no MPS daemon"},
        {"x", ISOLATION_NONE, false, "", NO, "expected driver, limit"},
        {"", ISOLATION_MPS, false, "", MPS, NULL},
        {"mps", ISOLATION_MPS, false, "", MPS, NULL},
        {"limit", ISOLATION_MPS, false, "", MPS | BOTH, NULL},
        {"none", ISOLATION_MPS, false, "", MPS, "this node allows no less than its own"},
        {"none", ISOLATION_MPS, true, "", NO, NULL},
        {"", ISOLATION_LIMIT, false, "", BOTH, NULL},
        {"none", ISOLATION_LIMIT, false, "", BOTH, "this node allows no less"},
        {"none", ISOLATION_LIMIT, true, "", NO, NULL},
        {"mps", ISOLATION_LIMIT, true, "", BOTH, "this node has no MPS daemon"},
        {"limit-env", ISOLATION_NONE, false, "", VARIABLE, NULL},
        {"limit-file", ISOLATION_MPS, false, "", MPS | FILE_, NULL},
        {"limit-env", ISOLATION_LIMIT, false, "", BOTH, "this node allows no less"},
        {"limit-file", ISOLATION_LIMIT, false, "", BOTH, "this node allows no less"},
        {"limit-env", ISOLATION_LIMIT, true, "", VARIABLE, NULL},
        {"limit", ISOLATION_NONE, false, own, BOTH, NULL},
        {"limit-file", ISOLATION_NONE, false, own, FILE_, NULL},
        {"limit-env", ISOLATION_NONE, false, own, VARIABLE,
         "container a sets LD_PRELOAD itself"},
    };
    see_cards(1024, 8192, 16384);
    array_indices(i, cases) {
        cleanup_free char *asks =
            xasprintf("'gpushare/isolation':'%s','" KEY_MEM_IDX "':'1'", cases[i].asks);
        cleanup_free char *containers =
            xasprintf("'containers':[{'name':'a',%s" OF(4) "}]", cases[i].env);
        struct err err;
        const struct response *r =
            respond((struct response_settings){.isolation = cases[i].node,
                                               .less_isolation = cases[i].less},
                    pod_of(asks, containers), "GPU-1", NULL, 4, &err);
        ck_assert_ptr_nonnull(r);
        int gets = (env(r, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT")[0] ? MPS : NO) |
                   (mount_at(r, "/etc/ld.so.preload")[0] ? FILE_ : NO) |
                   (env(r, "LD_PRELOAD")[0] ? VARIABLE : NO);
        ck_assert_msg(gets == cases[i].gets, "case %zu: %d", i, gets);
        ck_assert_msg(!r->not_isolated == !cases[i].why &&
                          (!cases[i].why || strstr(r->not_isolated, cases[i].why)),
                      "case %zu: %s", i, r->not_isolated ? r->not_isolated : "");
        ck_assert_uint_eq(r->n_limit_mounts, !r->limit ? 0 : gets & FILE_ ? 4 : 3);
        ck_assert_uint_eq(r->n_limit_envs, (gets & VARIABLE) != 0);
        ck_assert_str_eq(mount_at(r, "/usr/local/gpushare/limit"),
                         r->limit ? "/l/pods/u-1/limit" : "");
    }
}

/* The same where the driver can limit memory: what a pod gets, or why it cannot start. */
TEST(a_pod_gets_the_drivers_limit_as_it_says)
{
    enum { NO, DRIVER = 1, LIBRARY = 2, BOTH = DRIVER | LIBRARY, REJECTED = -1 };
    static const struct {
        const char *asks;
        enum isolation node;
        bool less;
        int gets, without; /* ... the driver, that is */
        const char *why;
    } cases[] = {
        {"", ISOLATION_NONE, false, NO, NO, NULL},
        {"none", ISOLATION_NONE, false, NO, NO, NULL},
        {"driver", ISOLATION_NONE, false, DRIVER, REJECTED, NULL},
        {"limit", ISOLATION_NONE, false, BOTH, LIBRARY, NULL},
        {"limit-env", ISOLATION_NONE, false, BOTH, LIBRARY, NULL},
        {"", ISOLATION_AUTO, false, DRIVER, NO, NULL},
        {"none", ISOLATION_AUTO, true, NO, NO, NULL},
        {"none", ISOLATION_AUTO, false, DRIVER, NO,
         "this node allows no less than its own; its containers have driver"},
        {"driver", ISOLATION_AUTO, false, DRIVER, REJECTED, NULL},
        {"limit", ISOLATION_AUTO, false, BOTH, LIBRARY, NULL},
        {"limit-file", ISOLATION_AUTO, false, BOTH, LIBRARY, NULL},
        {"mps", ISOLATION_AUTO, false, DRIVER, NO, "this node has no MPS daemon"},
        {"x", ISOLATION_AUTO, false, DRIVER, NO, "expected driver, limit"},
        {"", ISOLATION_LIMIT, false, BOTH, LIBRARY, NULL},
        {"limit", ISOLATION_LIMIT, false, BOTH, LIBRARY, NULL},
        {"driver", ISOLATION_LIMIT, false, BOTH, REJECTED, NULL},
        {"driver", ISOLATION_LIMIT, true, DRIVER, REJECTED, NULL},
        {"none", ISOLATION_LIMIT, true, NO, NO, NULL},
        {"none", ISOLATION_LIMIT, false, BOTH, LIBRARY,
         "this node allows no less than its own; its containers have limit"},
        {"limit-env", ISOLATION_LIMIT, true, BOTH, LIBRARY, NULL},
        {"", ISOLATION_DRIVER, false, DRIVER, REJECTED, NULL},
        {"limit", ISOLATION_DRIVER, false, BOTH, REJECTED, NULL},
        {"driver", ISOLATION_DRIVER, false, DRIVER, REJECTED, NULL},
        {"none", ISOLATION_DRIVER, true, NO, NO, NULL},
        {"none", ISOLATION_DRIVER, false, DRIVER, REJECTED, "allows no less"},
        {"driver", ISOLATION_MPS, false, REJECTED, REJECTED, NULL},
    };
    see_cards(1024, 8192, 16384);
    for (size_t k = 0; k < 2 * ARRAY_LEN(cases); k++) {
        const size_t i = k / 2;
        struct driver_view view = {.cdi_kind = "nvidia.com/gpu"};
        const int want = k % 2 ? cases[i].without : cases[i].gets;
        cleanup_free char *asks =
            xasprintf("'gpushare/isolation':'%s','" KEY_MEM_IDX "':'1'", cases[i].asks);
        struct err err = {0};
        if (k % 2)
            strcpy(view.no_limit, "cgroup v1");
        const struct response *r =
            respond((struct response_settings){.strategy = DRIVER_CDI_CRI,
                                               .view = &view,
                                               .isolation = cases[i].node,
                                               .less_isolation = cases[i].less},
                    pod_of(asks, "'containers':[{'name':'a'," OF(4) "}]"), "GPU-1", NULL,
                    4, &err);
        if (want == REJECTED) {
            ck_assert_msg(!r, "case %zu", k);
            ck_assert_int_eq(err.code, ERR_FORBIDDEN);
            ck_assert_contains(err.msg, "container a may not start without the driver's "
                                        "limit of memory: ");
            ck_assert_contains(err.msg, cases[i].node == ISOLATION_MPS ? "clients of MPS"
                                                                       : "cgroup v1");
            continue;
        }
        ck_assert_msg(r != NULL, "case %zu: %s", k, err.msg);
        int gets = (r->limit_device ? DRIVER : NO) | (r->limit ? LIBRARY : NO);
        ck_assert_msg(gets == want, "case %zu: %d", k, gets);
        ck_assert_int_eq(r->driver_limit_mib, want & DRIVER ? 4096 : 0);
        ck_assert_uint_eq(r->dp.n_cdi, want & DRIVER ? 2 : 1);
        if (want & DRIVER)
            ck_assert_span_eq(r->dp.cdi[1], "gpushare.io/limit=u-1-a");
        ck_assert_str_eq(env(r, "NVIDIA_GPU_MEMORY_LIMIT"), "");
        /* Where nobody is asked for less, a node that cannot says nothing. */
        bool why = cases[i].why && (want || strcmp(cases[i].asks, "none"));
        ck_assert_msg(!r->not_isolated == !why &&
                          (!why || k % 2 || strstr(r->not_isolated, cases[i].why)),
                      "case %zu: %s", k, r->not_isolated ? r->not_isolated : "");
    }
}

/* Where it cannot be given, the answer is the one of release 1.0, byte for byte. */
TEST(without_the_driver_the_answer_is_that_of_1_0)
{
    static const struct {
        enum driver_strategy strategy;
        bool limit_env, has_hook;
        const char *no_limit, *no_hook;
    } cases[] = {
        {DRIVER_CDI_CRI, true, true, "driver 580: needs 615", ""},
        {DRIVER_CDI_CRI, true, true, "", "no hook"},
        {DRIVER_CDI_ANNOTATIONS, true, true, "", "no hook"},
        {DRIVER_ENVVAR, false, true, "", ""},
        {DRIVER_ENVVAR, true, false, "", ""},
        {DRIVER_ENVVAR, true, true, "cgroup v1", ""},
        {DRIVER_VOLUME_MOUNTS, false, true, "", ""},
        {DRIVER_AUTO, false, true, "", ""},
    };
    see_cards(1024, 8192, 16384);
    array_items(c, cases) {
        cleanup_buf struct buf plain = {0}, text = {0};
        struct driver_view view = {.cdi_kind = "nvidia.com/gpu",
                                   .files.hook_limits = c->has_hook};
        struct err err;
        strcpy(view.no_limit, c->no_limit);
        strcpy(view.no_hook, c->no_hook);
        for (int i = 0; i < 2; i++) {
            const struct response *r = respond(
                (struct response_settings){.strategy = c->strategy,
                                           .view = &view,
                                           .limit_env = c->limit_env,
                                           .isolation =
                                               i ? ISOLATION_AUTO : ISOLATION_NONE},
                pod_of("'" KEY_MEM_IDX "':'1'", "'containers':[{'name':'a'," OF(4) "}]"),
                "GPU-1", NULL, 4, &err);
            const struct dp_allocations all = {.items = &r->dp, .n = 1};
            ck_assert_done(proto_encode(&dp_allocations_type, &all, DP_MESSAGE_MAX,
                                        i ? &text : &plain, &err),
                           err);
            ck_assert(!r->not_isolated && !r->driver_limit_mib);
        }
        ck_assert_uint_gt(plain.n, 0);
        ck_assert(span_eq(buf_span(&plain), buf_span(&text)));
    }
}

/* Beside the CDI names of the cards, or as variables where the operator says so. */
TEST(the_drivers_limit_is_given_as_the_cards_are)
{
    struct driver_view view = {.cdi_kind = "nvidia.com/gpu", .files.hook_limits = true};
    struct response_settings settings = {
        .view = &view, .isolation = ISOLATION_AUTO, .strategy = DRIVER_CDI_ANNOTATIONS};
    static const char two_cards[] = "'" KEY_GPU_COUNT "':'2','" KEY_MEM_IDX "':'0,1'";
    static const char containers[] = "'containers':[{'name':'a'," OF(8) "}]";
    struct err err = {0};
    see_cards(1024, 8192, 16384);
    const struct response *r =
        respond(settings, pod_of(two_cards, containers), "GPU-0", "GPU-1", 4, &err);
    ck_assert_uint_eq(r->dp.n_annotations, 1);
    ck_assert_str_eq(r->dp.annotations[0].value.p, "nvidia.com/gpu=GPU-0,nvidia.com/"
                                                   "gpu=GPU-1,gpushare.io/limit=u-1-a");
    ck_assert_int_eq(r->driver_limit_mib, 4096);
    ck_assert(r->limit_device);

    settings.strategy = DRIVER_ENVVAR;
    settings.limit_env = true;
    r = respond(settings, pod_of(two_cards, containers), "GPU-0", "GPU-1", 4, &err);
    ck_assert_str_eq(env(r, "NVIDIA_GPU_MEMORY_LIMIT"), "4096");
    ck_assert_str_eq(env(r, "NVIDIA_GPU_MEMORY_REQUEST"), "0");
    ck_assert_int_eq(r->driver_limit_mib, 4096);
    ck_assert(!r->limit_device && !r->dp.n_cdi && !r->dp.n_annotations);

    /* A program that sets limits itself needs neither. */
    settings.limit_env = false;
    view.sets_limits = true;
    r = respond(settings, pod_of(two_cards, containers), "GPU-0", "GPU-1", 4, &err);
    ck_assert_str_eq(env(r, "NVIDIA_GPU_MEMORY_LIMIT"), "");
    ck_assert_int_eq(r->driver_limit_mib, 4096);
    ck_assert(!r->limit_device && !r->dp.n_cdi && !r->dp.n_annotations);
    settings.strategy = DRIVER_CDI_CRI;
    strcpy(view.no_hook, "no hook");
    r = respond(settings, pod_of(two_cards, containers), "GPU-0", "GPU-1", 4, &err);
    ck_assert_int_eq(r->driver_limit_mib, 4096);
    ck_assert(!r->limit_device && r->dp.n_cdi == 2);
    strcpy(view.no_hook, "");
    r = respond(settings, pod_of(two_cards, containers), "GPU-0", "GPU-1", 4, &err);
    ck_assert(r->limit_device && r->dp.n_cdi == 3);
    view.sets_limits = false;

    /* Whole cards have no limit, whatever is asked for. */
    settings.strategy = DRIVER_CDI_CRI;
    settings.isolation = ISOLATION_DRIVER;
    r = respond(settings,
                pod_of("'" KEY_MEM_IDX "':'0'",
                       "'containers':[{'name':'a','resources':{'limits':{'" KEY_GPU_COUNT
                       "':'1'}}}]"),
                "GPU-0", NULL, 0, &err);
    ck_assert(r && !r->limit_device && !r->not_isolated && r->dp.n_cdi == 1);

    /* A promise with unequal parts, which the hook's one value cannot say. */
    static const char unequal[] =
        "'" KEY_MEM_IDX "':'0,1','" KEY_GPU_COUNT "':'2','" KEY_ALLOCATION
        "':'{\\'0\\':{\\'0\\':3,\\'1\\':5}}'";
    ck_assert(!respond(settings, pod_of(unequal, containers), "GPU-0", "GPU-1", 4, &err));
    ck_assert_contains(err.msg, "the same on each card");
    settings.isolation = ISOLATION_AUTO;
    r = respond(settings, pod_of(unequal, containers), "GPU-0", "GPU-1", 4, &err);
    ck_assert(!r->limit_device && !r->driver_limit_mib);
    ck_assert_contains(r->not_isolated, "the same on each card");
}

/* The containers share the limit: app containers and sidecars add up, and an init
 * container runs before them. */
TEST(the_limit_is_that_of_the_pod)
{
    static const struct {
        const char *containers;
        int64_t mib;
    } cases[] = {
        {"'containers':[{'name':'a'," OF(4) "},{'name':'b'," OF(2) "}]", 6144},
        {"'initContainers':[{'name':'i'," OF(9) "}],'containers':[{'name':'a'," OF(
             4) "}]",
         9216},
        {"'initContainers':[{'name':'s','restartPolicy':'Always'," OF(
             3) "}],'containers':[{'name':'a'," OF(4) "}]",
         7168},
        /* beside the sidecar that started before it, as the ledger counts */
        {"'initContainers':[{'name':'s','restartPolicy':'Always'," OF(
             3) "},{'name':'i'," OF(6) "},{'name':'t','restartPolicy':'Always'"
                                       "," OF(1) "}],'containers':[{'name':'a'"
                                                 "," OF(4) "}]",
         9216},
    };
    const struct response_settings settings = {
        .isolation = ISOLATION_LIMIT, .limit_dir = "/l", .unit_mib = 1024};
    see_cards(1024, 8192, 16384);
    array_items(c, cases) {
        struct pod_allocation *pod = pod_of("'" KEY_MEM_IDX "':'1'", c->containers);
        const struct response *r = response_changed_limit(&settings, &cards, pod, &arena);
        ck_assert_ptr_nonnull(r->limit);
        ck_assert_str_eq(r->limit->uid, "u-1");
        ck_assert_uint_eq(r->limit->n, 1);
        ck_assert_str_eq(r->limit->cards[0].uuid, "GPU-1");
        ck_assert_int_eq(r->limit->cards[0].mib, c->mib);
        pod_allocation_free(pod);
    }
}

/* The samples */

struct frame {
    const char *name;
    int64_t unit_mib;
    int64_t card_mib[2]; /* 0: no second card */
    enum ids_resource resource;
    int64_t mine,
        others; /* limits of this container and of the other, of slots MiB; 0: none */
    enum isolation isolation; /* of the node */
};

static const struct frame frames[] = {
    {"GiB", 1024, {16276}, IDS_MEM, 4, 0, ISOLATION_NONE},
    {"GiB, a large card", 1024, {81559}, IDS_MEM, 8, 0, ISOLATION_NONE},
    {"GiB, the units of the card", 1024, {15360}, IDS_MEM, 14, 0, ISOLATION_NONE},
    {"GiB, a small card", 1024, {4095}, IDS_MEM, 1, 0, ISOLATION_NONE},
    {"MiB", 1, {16276}, IDS_MEM, 8138, 0, ISOLATION_NONE},
    {"MiB, a small part", 1, {81559}, IDS_MEM, 1024, 0, ISOLATION_NONE},
    {"256 MiB", 256, {16276}, IDS_MEM, 21, 0, ISOLATION_NONE},
    {"two containers", 1024, {16276}, IDS_MEM, 4, 6, ISOLATION_NONE},
    {"two cards", 1024, {16276, 16276}, IDS_MEM, 16, 0, ISOLATION_NONE},
    {"two cards, MiB", 1, {16276, 16276}, IDS_MEM, 16276, 0, ISOLATION_NONE},
    {"two different cards", 1024, {16384, 24576}, IDS_MEM, 8, 0, ISOLATION_NONE},
    {"a whole card", 1024, {16276}, IDS_COUNT, 1, 0, ISOLATION_NONE},
    {"two whole cards, MiB", 1, {16276, 24576}, IDS_COUNT, 2, 0, ISOLATION_NONE},
    {"MPS", 1024, {16276}, IDS_MEM, 4, 0, ISOLATION_MPS},
    {"limit", 1024, {16276}, IDS_MEM, 4, 0, ISOLATION_LIMIT},
    {"limit, MiB, two containers", 1, {16276}, IDS_MEM, 4000, 6000, ISOLATION_LIMIT},
    {"limit, two cards", 1024, {16276, 16276}, IDS_MEM, 16, 0, ISOLATION_LIMIT},
    {"slots", 1024, {16276}, IDS_SHARE, 6000, 0, ISOLATION_NONE},
    {"slots, two cards", 1024, {16276, 16276}, IDS_SHARE, 12000, 0, ISOLATION_NONE},
    {"slots, two containers, limit",
     1024,
     {16276},
     IDS_SHARE,
     5000,
     5000,
     ISOLATION_LIMIT},
    {"slots, MPS", 256, {16276}, IDS_SHARE, 4000, 0, ISOLATION_MPS},
};

static bool by_driver; /* the driver limits the containers, too, but for whole cards */

static int n_cards(const struct frame *f)
{
    return f->card_mib[1] ? 2 : 1;
}

static bool is_whole(const struct frame *f)
{
    return f->resource == IDS_COUNT;
}

static bool is_limited(const struct frame *f)
{
    return f->isolation == ISOLATION_LIMIT;
}

static bool has_slots(const struct frame *f)
{
    return f->resource == IDS_SHARE;
}

static int64_t unit_of(const struct frame *f)
{
    return has_slots(f) ? 1 : f->unit_mib;
}

/* What the container was promised on card i. */
static double promised_mib(const struct frame *f, int i)
{
    return is_whole(f) ? (double)f->card_mib[i]
                       : (double)(f->mine * unit_of(f)) / n_cards(f);
}

/* The size of card i as a program in the container sees it; with both limits the library
 * answers. */
static double seen_mib(const struct frame *f, int i)
{
    if (!is_limited(f))
        return by_driver ? promised_mib(f, i) : (double)f->card_mib[i];
    return (double)((f->mine + f->others) * unit_of(f)) / n_cards(f);
}

static const struct response *respond_to(const struct frame *f)
{
    const char *resource = ids_resource_name(f->resource);
    bool two = n_cards(f) == 2;
    long long mine = has_slots(f) ? n_cards(f) : f->mine,
              others = has_slots(f) ? n_cards(f) : f->others;
    cleanup_free char *other =
        f->others ? xasprintf(",{'name':'b','resources':{'limits':{'%s':'%lld'}}}",
                              resource, others)
                  : xstrdup("");
    cleanup_free char *containers =
        xasprintf("'containers':[{'name':'a','resources':{'limits':{'%s':'%lld'}}}%s]",
                  resource, mine, other);
    cleanup_free char *annotations =
        xasprintf("%s'" KEY_MEM_IDX "':'%s','" KEY_MEMORY "':'1Gi','" KEY_CARD_MEMORY
                  "':'%lld u-1'",
                  two && !is_whole(f) ? "'" KEY_GPU_COUNT "':'2'," : "",
                  two ? "0,1" : "0", (long long)(f->mine + f->others) / n_cards(f));
    struct err err;
    see_cards(f->unit_mib, f->card_mib[0], f->card_mib[1]);
    const struct response *r = respond(
        (struct response_settings){.isolation = f->isolation, .cgpu_disable = true},
        pod_of(annotations, containers), "GPU-0", two ? "GPU-1" : NULL,
        is_whole(f) ? 0 : f->mine / n_cards(f), &err);
    ck_assert_msg(r != NULL, "%s: %s", f->name, err.msg);
    return r;
}

/* The script of a sample; kept. */
static const char *text_of(const char *sample)
{
    const char *path = lib_fmt("manifests/samples/frameworks/%s.yaml", sample);
    const char *text = lib_str(yamlfile_one(path), "spec.containers.0.args.0");
    ck_assert_msg(text[0] != '\0', "%s has no script", path);
    return text;
}

/* The same with the path of the limit in `dir`. */
static const char *script_of(const char *sample)
{
    static const char at[] = "/usr/local/gpushare/limit";
    const char *text = text_of(sample);
    const char *found = strstr(text, at);
    ck_assert_ptr_nonnull(found);
    return lib_fmt("%.*s%s/limit%s", (int)(found - text), text, dir,
                   found + sizeof at - 1);
}

/* `mib` is what the framework takes of card i at most. */
static void check(const struct frame *f, int i, double mib)
{
    double least = is_whole(f) ? 0.895 : 0.7; /* a whole card loses no unit to rounding */
    ck_assert_msg(mib <= promised_mib(f, i), "%s: %.0f MiB of GPU%d exceed %.0f", f->name,
                  mib, i, promised_mib(f, i));
    if (f->card_mib[1] == 0 || f->card_mib[1] == f->card_mib[0])
        ck_assert_msg(mib >= least * promised_mib(f, i), "%s: only %.0f MiB of %.0f",
                      f->name, mib, promised_mib(f, i));
}

/* The last number that a stub prints when the script runs in the container of the frame. */
static double run(const struct frame *f, const char *program)
{
    const struct response *r = respond_to(f);
    cleanup_buf struct buf command = {0}, sizes = {0};
    char line[256];
    double last = -1;
    for (int i = 0; i < n_cards(f); i++)
        buf_printf(&sizes, "%.0f\n", seen_mib(f, i));
    temp_write_bytes(dir, "sizes", buf_span(&sizes));
    temp_write_bytes(dir, "limit", SPAN(""));
    if (!is_limited(f))
        temp_remove(dir, "limit");
    buf_printf(&command, "env -i PATH=%s:\"$PATH\" HOME=%s PYTHONPATH=%s", dir, dir, dir);
    for (size_t i = 0; i < r->dp.n_envs; i++)
        if (strcmp(r->dp.envs[i].key.p, "LD_PRELOAD") != 0) /* it is not installed here */
            buf_printf(&command, " %s='%s'", r->dp.envs[i].key.p, r->dp.envs[i].value.p);
    if (by_driver && !is_whole(f))
        buf_printf(&command, " NVIDIA_GPU_MEMORY_LIMIT=%.0f", promised_mib(f, 0));
    buf_printf(&command, " %s %s/script 2>&1", program, dir);
    FILE *out = popen(command.p, "re");
    ck_assert_ptr_nonnull(out);
    while (fgets(line, sizeof line, out))
        if (sscanf(line, "limit %lf", &last) != 1)
            ck_abort_msg("%s: %s", f->name, line);
    ck_assert_msg(pclose(out) == 0 && last > 0, "%s: no limit", f->name);
    return last;
}

static void each_frame(const char *sample, const char *program, bool in_mib)
{
    const char *script = script_of(sample);
    temp_write(dir, "script", script);
    array_items(c, frames) {
        const struct frame *f = c;
        double limit = run(f, program);
        for (int i = 0; i < n_cards(f); i++)
            check(f, i, in_mib ? limit : limit * seen_mib(f, i));
    }
}

/* The interpreter itself: python3 in the path may be a script that takes half a second to find
 * it. Kept. */
static const char *python(void)
{
    char line[256] = "";
    FILE *out = popen("python3 -c 'import sys; print(sys.executable)'", "re");
    ck_assert(out && fgets(line, sizeof line, out) && pclose(out) == 0);
    return lib_fmt("%.*s -S", (int)strcspn(line, "\n"), line);
}

static void each(const char *sample, const char *program, bool in_mib)
{
    by_driver = false;
    each_frame(sample, program, in_mib);
    by_driver = true;
    each_frame(sample, program, in_mib);
}

TEST(vllm_takes_no_more_than_its_pod_requested)
{
    temp_script(dir, "vllm",
                "while [ \"$1\" != --gpu-memory-utilization ]; do shift; done\n"
                "echo limit \"$2\"\n");
    each("vllm", "sh", false);
}

TEST(pytorch_takes_no_more_than_its_pod_requested)
{
    temp_write(dir, "torch.py",
               "class cuda:\n"
               "    device_count = lambda: 2\n"
               "    set_per_process_memory_fraction = lambda part, card: "
               "print('limit', part)\n"
               "def rand(*shape, device):\n"
               "    raise SystemExit\n");
    each("pytorch", python(), false);
}

/* The text from `first` to `last`. */
static char *part_of(const char *sample, const char *first, const char *last)
{
    const char *text = text_of(sample);
    char *from = strstr(text, first), *to = from ? strstr(from, last) : NULL;
    ck_assert_ptr_nonnull(to);
    return xasprintf("%.*s", (int)(to - from), from);
}

TEST(tensorflow_takes_no_more_than_its_pod_requested)
{
    cleanup_free char *mine = part_of("tensorflow", "def share", "\n\n");
    cleanup_free char *other = part_of("pytorch", "def share", "\n\n");
    ck_assert_str_eq(mine, other);
    temp_write(dir, "tensorflow.py",
               "class config:\n"
               "    list_physical_devices = lambda kind: ['GPU:0', 'GPU:1']\n"
               "    LogicalDeviceConfiguration = lambda memory_limit: memory_limit\n"
               "    set_logical_device_configuration = lambda card, limits: "
               "print('limit', limits[0])\n"
               "class random:\n"
               "    def uniform(shape):\n"
               "        raise SystemExit\n");
    cleanup_free char *sizes = xasprintf("cat %s/sizes\n", dir);
    temp_script(dir, "nvidia-smi", sizes);
    each("tensorflow", python(), true);
}

TEST(the_page_has_a_row_for_each_variable)
{
    cleanup_buf struct buf page = {0};
    struct err err;
    ck_assert_done(file_read(PAGE, 1 << 20, &page, &err), err);
    size_t n = 0;
    array_items(frame, frames) {
        const struct response *r = respond_to(frame);
        for (size_t i = 0; i < r->dp.n_envs; i++, n++) {
            cleanup_free char *cell = xasprintf("\n| `%s`", r->dp.envs[i].key.p);
            ck_assert_msg(strstr(page.p, cell) != NULL, PAGE " has no row for %s",
                          r->dp.envs[i].key.p);
        }
    }
    ck_assert_uint_gt(n, 100);
}

UNIT_MAIN_AROUND(begin, end)
