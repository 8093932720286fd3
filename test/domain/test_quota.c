/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/quota.h"

#include "domain/objects.h"

/*
 * ResourceQuotas of HAMi's resources: which members count, what is used, and the reason.
 */

static struct arena arena;
static struct quotas q;

static void begin(void)
{
    quotas_init(&q, &dialect_hami, 1);
}

static void end(void)
{
    quotas_fini(&q);
    arena_fini(&arena);
}

static struct quota read_quota(const char *ns, const char *name, const char *spec)
{
    struct quota quota;
    struct jread j;
    struct err err = {0};
    struct span json =
        quoted(&arena, "{'metadata':{'namespace':'%s','name':'%s'},'spec':{%s}}", ns,
               name, spec);
    jread_init(&j, json.p, json.n);
    quota_read(&j, &arena, &quota);
    ck_assert_msg(jread_finish(&j, &err) == 0, "%s", err.msg);
    return quota;
}

static void see(const char *ns, const char *name, const char *hard)
{
    char spec[200];
    snprintf(spec, sizeof spec, "'hard':{%s}", hard);
    struct quota quota = read_quota(ns, name, spec);
    quotas_seen(&q, &quota, 1);
}

static void gone(const char *ns, const char *name)
{
    struct quota quota = read_quota(ns, name, "");
    quotas_seen(&q, &quota, 1);
}

static void use(const char *ns, int64_t mib, int64_t cores, int sign)
{
    quotas_use(&q, span_of(ns), (struct quota_amounts){{mib, cores}}, sign);
}

/* The reason why a pod cannot have so much; "": it can. */
static const char *ask_own(const char *ns, int64_t mib, int64_t cores, int64_t own_mib)
{
    cleanup_buf struct buf why = {0};
    bool allowed = quotas_allow(&q, span_of(ns), (struct quota_amounts){{mib, cores}},
                                (struct quota_amounts){{own_mib, 0}}, &why);
    ck_assert(allowed == !why.n);
    return arena_copy(&arena, buf_span(&why)).p ?: "";
}

static const char *ask(const char *ns, int64_t mib, int64_t cores)
{
    return ask_own(ns, mib, cores, 0);
}

#define GPUMEM   "'limits.nvidia.com/gpumem':"
#define GPUCORES "'limits.nvidia.com/gpucores':"

TEST(what_is_used_and_asked_for_must_be_within_the_limit)
{
    ck_assert_str_eq(ask("a", 1 << 20, 100), "");
    see("a", "q", GPUMEM "'10k'");
    ck_assert_str_eq(ask("a", 10000, 100), "");
    ck_assert_str_eq(
        ask("a", 10001, 100),
        "exceeded quota: q, requested: limits.nvidia.com/gpumem=10001, "
        "used: limits.nvidia.com/gpumem=0, limited: limits.nvidia.com/gpumem=10000");
    use("a", 8000, 30, 1);
    ck_assert_str_eq(ask("a", 2000, 100), "");
    ck_assert_str_eq(
        ask("a", 3000, 100),
        "exceeded quota: q, requested: limits.nvidia.com/gpumem=3000, "
        "used: limits.nvidia.com/gpumem=8000, limited: limits.nvidia.com/gpumem=10000");
    ck_assert_str_eq(ask("b", 3000, 100), "");
    use("a", 8000, 30, -1);
    ck_assert_str_eq(ask("a", 10000, 100), "");
}

TEST(the_resource_that_is_exceeded_is_named)
{
    see("a", "q", GPUMEM "'100'," GPUCORES "50");
    ck_assert_str_eq(ask("a", 100, 51),
                     "exceeded quota: q, requested: limits.nvidia.com/gpucores=51, "
                     "used: limits.nvidia.com/gpucores=0, "
                     "limited: limits.nvidia.com/gpucores=50");
    ck_assert_ptr_nonnull(
        strstr(ask("a", 101, 50), "requested: limits.nvidia.com/gpumem=101"));
}

/* What the pod has, such as a reservation, does not count twice. */
TEST(the_own_use_of_a_pod_does_not_count)
{
    see("a", "q", GPUMEM "'100'");
    use("a", 90, 0, 1);
    ck_assert_str_ne(ask("a", 90, 0), "");
    ck_assert_str_eq(ask_own("a", 90, 0, 90), "");
    ck_assert_str_eq(ask_own("a", 100, 0, 90), "");
    ck_assert_str_ne(ask_own("a", 101, 0, 90), "");
}

TEST(zero_blocks_only_what_is_asked_for)
{
    see("a", "q", GPUMEM "'0'," GPUCORES "'0'");
    ck_assert_str_ne(ask("a", 1, 0), "");
    ck_assert_str_ne(ask("a", 0, 1), "");
    ck_assert_str_eq(ask("a", 0, 0), "");
    /* A quota below what is used stops only those who ask for that. */
    see("a", "q", GPUMEM "'5'");
    use("a", 10, 0, 1);
    ck_assert_str_eq(ask("a", 0, 100), "");
    ck_assert_str_ne(ask("a", 1, 0), "");
}

TEST(each_quota_of_the_namespace_holds)
{
    see("a", "wide", GPUMEM "'100'");
    see("a", "narrow", GPUMEM "'10'");
    ck_assert_ptr_nonnull(strstr(ask("a", 11, 0), "exceeded quota: narrow, "));
    gone("a", "narrow");
    gone("a", "unknown");
    gone("c", "unknown");
    ck_assert_str_eq(ask("a", 11, 0), "");
    ck_assert_ptr_nonnull(strstr(ask("a", 101, 0), "exceeded quota: wide, "));
    see("a", "wide", GPUMEM "'200'"); /* replaces it */
    ck_assert_str_eq(ask("a", 101, 0), "");
    see("a", "wide", "'pods':'3'");
    ck_assert_str_eq(ask("a", 1 << 30, 0), "");
}

TEST(a_list_deletes_what_it_lacks)
{
    struct quota kept = read_quota("a", "kept", "'hard':{" GPUMEM "'10'}");
    see("a", "lost", GPUMEM "'5'");
    see("b", "lost", GPUMEM "'5'");
    quotas_seen(&q, &kept, 2);
    quotas_sweep(&q, 2);
    ck_assert_str_eq(ask("b", 50, 0), "");
    ck_assert_str_eq(ask("a", 10, 0), "");
    ck_assert_str_ne(ask("a", 11, 0), "");
}

/* The lines of `quota` in test/data/hami.jsonl have these. */
TEST(other_members_and_scopes_mean_nothing)
{
    see("a", "q",
        "'limits.nvidia.com/gpu':'0','nvidia.com/gpumem':'0',"
        "'requests.nvidia.com/gpumem':'0','limits.cpu':'0','limits.':'0'");
    ck_assert_str_eq(ask("a", 1 << 30, 1 << 30), "");
    struct quota scoped = read_quota(
        "a", "q", "'scopes':['BestEffort'],'hard':{" GPUMEM "'10'},'scopeSelector':{}");
    quotas_seen(&q, &scoped, 1);
    ck_assert_str_ne(ask("a", 11, 0), "");
    struct quota none = read_quota("a", "q", "'hard':null");
    quotas_seen(&q, &none, 1);
    ck_assert_str_eq(ask("a", 11, 0), "");
}

TEST(amounts_beyond_all_numbers_limit_nothing)
{
    see("a", "q", GPUMEM "'100E'," GPUCORES "'9223372036854775807'");
    use("a", (int64_t)1 << 40, 1 << 30, 1);
    ck_assert_str_eq(ask("a", (int64_t)1 << 40, 1 << 30), "");
}

TEST(what_cannot_be_read_allows_nothing)
{
    struct quota quota = read_quota("a", "q", "'hard':{" GPUMEM "'10'}");
    quota.hard = SPAN("");
    quotas_seen(&q, &quota, 1);
    ck_assert_str_ne(ask("a", 1, 0), "");
    ck_assert_str_ne(ask("a", 0, 1), "");
    see("a", "q", GPUMEM "{}");
    ck_assert_str_ne(ask("a", 1, 0), "");
    see("a", "q", "'limits.nvidia.com\\/gpumem':'10'"); /* in another way to write it */
    ck_assert_str_eq(ask("a", 10, 0), "");
    ck_assert_str_ne(ask("a", 11, 0), "");
}

TEST(names_and_the_factor_are_of_the_dialect)
{
    struct dialect other = dialect_hami;
    other.limits[DIALECT_MEMORY].factor = 1000;
    other.limits[DIALECT_CORES].key = SPAN("example.com/cores");
    quotas_fini(&q);
    quotas_init(&q, &other, 1);
    see("a", "q", GPUMEM "'10'," GPUCORES "'0','limits.example.com/cores':'30'");
    use("a", 8000, 0, 1);
    ck_assert_str_eq(ask("a", 2000, 30), "");
    ck_assert_str_eq(
        ask("a", 2001, 0),
        "exceeded quota: q, requested: limits.nvidia.com/gpumem=3, "
        "used: limits.nvidia.com/gpumem=8, limited: limits.nvidia.com/gpumem=10");
    ck_assert_ptr_nonnull(
        strstr(ask("a", 0, 31), "requested: limits.example.com/cores=31"));
}

/* Pods that were rejected are tried again then, and not for each change of a status. */
TEST(freed_says_that_more_may_be_left)
{
    see("b", "q", GPUMEM "'10'");
    ck_assert(q.freed);
    q.freed = false;
    see("b", "q", GPUMEM "'10'");
    use("a", 10, 0, 1);
    use("a", 10, 0, -1); /* no quota is there */
    use("b", 10, 0, 1);
    ck_assert(!q.freed);
    use("b", 10, 0, -1);
    ck_assert(q.freed);
    q.freed = false;
    gone("b", "q");
    ck_assert(q.freed);
    ck_assert_uint_eq(q.by_name.n, 0); /* nothing remains of empty ones */
    ck_assert(list_is_empty(&q.namespaces));
}

TEST(only_requests_in_another_systems_words_count)
{
    const struct request own = {.kind = REQUEST_MEMORY, .slots = 1, .cards = 1},
                         part = {.kind = REQUEST_MEMORY,
                                 .dialect = SCV_DIALECT_HAMI,
                                 .cards = 2,
                                 .compute_percent = 30},
                         whole = {.kind = REQUEST_CARDS,
                                  .dialect = SCV_DIALECT_HAMI,
                                  .cards = 2};
    ck_assert_int_eq(quota_amounts(&own, 1, 5).of[QUOTA_MEMORY], 0);
    ck_assert_int_eq(quota_amounts(&part, 2, 10).of[QUOTA_MEMORY], 10);
    ck_assert_int_eq(quota_amounts(&part, 2, 10).of[QUOTA_CORES], 60);
    ck_assert_int_eq(quota_amounts(&whole, 2, 48000).of[QUOTA_MEMORY], 48000);
    ck_assert_int_eq(quota_amounts(&whole, 2, 48000).of[QUOTA_CORES], 200);
}

UNIT_MAIN_AROUND(begin, end)
