/* SPDX-License-Identifier: Apache-2.0 */
#include "apisync/apisync.h"

#include "base/mem.h"
#include "domain/keys.h"
#include "lib/unit.h"

/* The inputs that the core would get, one line each. */
static struct buf seen;
static unsigned faults;

static void add_err(const struct core_input *in)
{
    buf_printf(&seen, " %s", in->err ? err_code_name(in->err->code) : "ok");
    if (in->err && in->retry_after_ms >= 0)
        buf_printf(&seen, " after %lld", (long long)in->retry_after_ms);
}

static void on_input(void *ctx, const struct core_input *in)
{
    (void)ctx;
    ck_assert_uint_eq(in->run, 7);
    switch (in->type) {
    case CORE_OBJECT:
        buf_printf(&seen, "%s %.*s", in->deleted ? "gone" : "seen",
                   SPAN_ARG(in->kind == CORE_PODS   ? in->pod->meta.name
                            : in->kind == CORE_SCVS ? in->scv->meta.name
                                                    : in->node->meta.name));
        if ((in->kind == CORE_SCVS && in->scv->damaged) ||
            (in->kind == CORE_NODES && in->node->damaged))
            buf_adds(&seen, " damaged");
        if (in->invalid)
            buf_adds(&seen, " faulty");
        break;
    case CORE_LIST_ENDED:
        buf_adds(&seen, "list ended");
        break;
    case CORE_LIST_FAILED:
        buf_adds(&seen, "list failed");
        add_err(in);
        break;
    case CORE_WATCH_PROGRESS:
        buf_adds(&seen, "alive");
        break;
    case CORE_WATCH_ENDED:
        buf_adds(&seen, "watch ended");
        add_err(in);
        break;
    default:
        ck_abort_msg("an unexpected input");
    }
    if (in->version.n)
        buf_printf(&seen, " @%.*s", SPAN_ARG(in->version));
    buf_addc(&seen, '\n');
}

static void on_fault(void *ctx, const struct err *err)
{
    (void)ctx;
    (void)err;
    faults++;
}

static const struct apisync_sink sink = {.input = on_input, .fault = on_fault};

static void start(struct apisync *f, enum core_kind kind, bool watch)
{
    buf_clear(&seen);
    buf_adds(&seen, "");
    faults = 0;
    apisync_start(f, kind, watch, 7, watch ? SPAN("42") : (struct span){0}, &sink, NULL);
}

static bool answer(struct apisync *f, unsigned status, const char *body,
                   const struct err *why)
{
    apisync_begin(f, status, status == 429 ? 3 : -1);
    apisync_data(f, body, strlen(body));
    return apisync_end(f, why);
}

static const char *path_of(const struct apisync *f)
{
    static struct arena a;
    struct kube_request r;
    apisync_request(f, true, &a, &r);
    ck_assert_str_eq(r.method, "GET");
    ck_assert(r.gzip == !f->watch);
    return r.path;
}

START_TEST(a_list_is_read_page_by_page)
{
    struct apisync f;
    start(&f, CORE_NODES, false);
    ck_assert_str_eq(path_of(&f), "/api/v1/nodes?limit=500");
    ck_assert(answer(&f, 200,
                     "{\"metadata\":{\"resourceVersion\":\"9\",\"continue\":\"a+/b=\"},"
                     "\"items\":[{\"metadata\":{\"name\":\"n1\"}}]}",
                     NULL));
    ck_assert_str_eq(path_of(&f), "/api/v1/nodes?limit=500&continue=a%2B%2Fb%3D");
    ck_assert(!answer(&f, 200,
                      "{\"items\":[{\"metadata\":{\"name\":\"n2\"}}],\"metadata\":{"
                      "\"resourceVersion\":\"9\"}}",
                      NULL));
    ck_assert_str_eq(seen.p, "seen n1\nseen n2\nlist ended @9\n");
    apisync_fini(&f);
}
END_TEST

START_TEST(a_list_without_paging_is_one_page)
{
    struct apisync f;
    start(&f, CORE_PODS, false);
    ck_assert_ptr_nonnull(strstr(path_of(&f),
                                 "fieldSelector=status.phase%21%3DSucceeded%2C"
                                 "status.phase%21%3DFailed&limit=500"));
    ck_assert(!answer(&f, 200,
                      "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"3\"},"
                      "\"items\":null}",
                      NULL));
    ck_assert_str_eq(seen.p, "list ended @3\n");
    apisync_fini(&f);
}
END_TEST

START_TEST(a_failed_list_reports_the_error)
{
    static const struct {
        unsigned status;
        const char *body;
        bool broken;
        const char *want;
    } cases[] = {
        {403, "{\"kind\":\"Status\",\"message\":\"no list of nodes for you\"}", false,
         "list failed forbidden\n"},
        {429, "", false, "list failed unavailable after 3000\n"},
        {410, "{}", false, "list failed gone\n"},
        {204, "", false, "list failed internal\n"}, /* not an empty list */
        {200, "{\"items\":[", true, "list failed timeout\n"},
        {200, "{\"items\":[", false, "list failed invalid\n"},
        {200, "<html>", false, "list failed invalid\n"},
        {200, "", false, "list failed invalid\n"},
        {0, "", true, "list failed timeout\n"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct apisync f;
        struct err why = {.code = ERR_TIMEOUT, .msg = "silence"};
        start(&f, CORE_NODES, false);
        if (cases[i].status)
            ck_assert(!answer(&f, cases[i].status, cases[i].body,
                              cases[i].broken ? &why : NULL));
        else
            ck_assert(!apisync_end(&f, &why));
        ck_assert_str_eq(seen.p, cases[i].want);
        apisync_fini(&f);
    }
}
END_TEST

START_TEST(the_error_of_a_forbidden_list_names_the_permission)
{
    struct apisync f;
    start(&f, CORE_NODES, false);
    answer(&f, 403,
           "{\"kind\":\"Status\",\"message\":\"nodes is forbidden: cannot list\"}", NULL);
    ck_assert_ptr_nonnull(strstr(f.in.err.msg, "nodes is forbidden: cannot list"));
    apisync_fini(&f);
}
END_TEST

START_TEST(an_invalid_object_does_not_stop_the_list)
{
    struct apisync f;
    start(&f, CORE_PODS, false);
    answer(&f, 200,
           "{\"metadata\":{\"resourceVersion\":\"3\"},\"items\":["
           "{\"metadata\":{\"name\":\"a\",\"labels\":{\"" KEY_GPU_COUNT "\":1}}},"
           "{\"metadata\":{\"name\":\"b\"}},7,{\"metadata\":{\"name\":\"c\"}},"
           "{\"metadata\":{\"name\":\"d\",\"uid\":\"u\"},\"spec\":7}]}",
           NULL);
    ck_assert_str_eq(seen.p, "seen b\nseen c\nseen d faulty\nlist ended @3\n");
    ck_assert_uint_eq(faults, 3);
    apisync_fini(&f);
}
END_TEST

START_TEST(an_invalid_scv_is_passed_on_as_damaged)
{
    struct apisync f;
    start(&f, CORE_SCVS, false);
    answer(&f, 200,
           "{\"metadata\":{\"resourceVersion\":\"3\"},\"items\":[{\"metadata\":{"
           "\"name\":\"n1\"},\"status\":{\"cardList\":[{\"id\":-1}]}}]}",
           NULL);
    ck_assert_str_eq(seen.p, "seen n1 damaged\nlist ended @3\n");
    ck_assert_uint_eq(faults, 1);
    apisync_fini(&f);
}
END_TEST

/* Not swept: the Node exists. */
START_TEST(an_invalid_node_is_passed_on_as_damaged)
{
    struct apisync f;
    start(&f, CORE_NODES, false);
    answer(&f, 200,
           "{\"metadata\":{\"resourceVersion\":\"3\"},\"items\":[{\"metadata\":{"
           "\"name\":\"n1\"},\"status\":{\"capacity\":7}},{\"metadata\":{"
           "\"name\":\"n/2\"}},{\"metadata\":{\"name\":\"n3\"}}]}",
           NULL);
    ck_assert_str_eq(seen.p, "seen n1 damaged\nseen n3\nlist ended @3\n");
    ck_assert_uint_eq(faults, 2);
    apisync_fini(&f);
}
END_TEST

START_TEST(a_watch_delivers_events)
{
    struct apisync f;
    start(&f, CORE_NODES, true);
    ck_assert_ptr_nonnull(
        strstr(path_of(&f), "watch=1&allowWatchBookmarks=true&timeout"));
    ck_assert_ptr_nonnull(strstr(path_of(&f), "&resourceVersion=42"));
    answer(
        &f, 200,
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"n1\","
        "\"resourceVersion\":\"43\"}}}\n"
        "{\"object\":{\"metadata\":{\"name\":\"n2\",\"resourceVersion\":\"44\"}},"
        "\"type\":\"MODIFIED\"}\n"
        "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"50\"}}}\n"
        "{\"type\":\"DELETED\",\"object\":{\"metadata\":{\"name\":\"n1\","
        "\"resourceVersion\":\"51\"}}}\n{\"type\":\"NEWS\",\"object\":{}}\n",
        NULL);
    ck_assert_str_eq(seen.p, "alive\nseen n1 @43\nseen n2 @44\nalive @50\ngone n1 @51\n"
                             "watch ended ok\n");
    apisync_fini(&f);
}
END_TEST

START_TEST(an_error_event_ends_the_watch)
{
    struct apisync f;
    start(&f, CORE_NODES, true);
    answer(&f, 200,
           "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"reason\":"
           "\"Expired\",\"message\":\"too old resource version\"}}\n"
           "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"n1\"}}}\n",
           NULL);
    ck_assert_str_eq(seen.p, "alive\nwatch ended gone\n");
    ck_assert_ptr_nonnull(strstr(f.in.err.msg, "too old resource version"));
    apisync_fini(&f);
}
END_TEST

START_TEST(the_end_of_a_watch_reports_the_error)
{
    static const struct {
        unsigned status;
        const char *body;
        bool broken;
        const char *want;
    } cases[] = {
        {410, "{}", false, "watch ended gone\n"},
        {401, "", false, "watch ended unauthorized\n"},
        {206, "", false, "watch ended internal\n"},
        {200, "{\"type\":\"ADD", false, "alive\nwatch ended ok\n"},
        {200, "{\"type\":\"ADD", true, "alive\nwatch ended timeout\n"},
        {200, "nonsense\n", false, "alive\nwatch ended invalid\n"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct apisync f;
        struct err why = {.code = ERR_TIMEOUT, .msg = "silence"};
        start(&f, CORE_NODES, true);
        answer(&f, cases[i].status, cases[i].body, cases[i].broken ? &why : NULL);
        ck_assert_str_eq(seen.p, cases[i].want);
        apisync_fini(&f);
    }
}
END_TEST

UNIT_MAIN("apisync", a_list_is_read_page_by_page, a_list_without_paging_is_one_page,
          a_failed_list_reports_the_error,
          the_error_of_a_forbidden_list_names_the_permission,
          an_invalid_object_does_not_stop_the_list,
          an_invalid_scv_is_passed_on_as_damaged, an_invalid_node_is_passed_on_as_damaged,
          a_watch_delivers_events, an_error_event_ends_the_watch,
          the_end_of_a_watch_reports_the_error)
