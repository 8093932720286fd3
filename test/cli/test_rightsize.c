/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/rightsize.h"

#include "lib/unit.h"

/* Two nodes; ' replaces ". */
static json_t *scvs_of(const char *first, const char *second)
{
    cleanup_buf struct buf text = {0};
    buf_printf(&text,
               "[{'status':{'workloadList':[%s]}},{'status':{'workloadList':[%s]}},"
               "{'status':{}},7]",
               first, second);
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] == '\'')
            text.p[i] = '"';
    json_t *j = json_loads(text.p, 0, NULL);
    ck_assert_ptr_nonnull(j);
    return j;
}

#define ROW(ns, name, promised, p95, max, age)                                           \
    "{'namespace':'" ns "','kind':'Deployment','name':'" name "','container':'c',"       \
    "'promisedMemory':" promised ",'p95Memory':" p95 ",'maxMemory':" max                 \
    ",'hours':3,'ageHours':" age "}"

static char *write_of(const char *first, const char *second, const char *ns,
                      enum show_format format)
{
    struct buf out = {0};
    json_t *scvs = scvs_of(first, second);
    struct rightsize *r = rightsize_new();
    rightsize_add(r, scvs, span_of(ns));
    json_decref(scvs); /* the rows do not need it */
    rightsize_write(r, format, 1024, false, &out);
    rightsize_free(r);
    return buf_take(&out);
}

static void ck_table(const char *first, const char *second, const char *ns,
                     const char *want)
{
    char *got = write_of(first, second, ns, SHOW_TABLE);
    ck_assert_str_eq(got, want);
    free(got);
}

#define HEAD "NAMESPACE  WORKLOAD        CONTAINER  PROMISED  P95  MAX  AGE   SUGGESTED\n"
#define FOOT "in units of 1024 MiB on one card; suggested: the maximum and 15 %\n"

START_TEST(the_suggestion_is_the_maximum_with_headroom)
{
    ck_table(ROW("a", "big", "16384", "2048", "3072", "50") "," ROW("a", "web", "4096",
                                                                    "4096", "8192", "5"),
             "", "",
             HEAD
             "a          Deployment/big  c          16        2    3    2d2h  4\n"
             "a          Deployment/web  c          4         4    8    5h    10\n" FOOT);
}

START_TEST(the_rows_of_several_nodes_become_one)
{
    char *got = write_of(ROW("a", "web", "4096", "1024", "3000", "5"),
                         ROW("a", "web", "2048", "2048", "2900", "30"), "", SHOW_JSON);
    json_t *all = json_loads(got, 0, NULL);
    const json_t *row = json_array_get(json_object_get(all, "workloads"), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(all, "workloads")), 1);
    static const struct {
        const char *key;
        json_int_t value;
    } wants[] = {{"promisedMib", 4096}, {"p95Mib", 2048}, {"maxMib", 3000},
                 {"ageHours", 30},      {"hours", 6},     {"nodes", 2},
                 {"suggestedUnits", 4}};
    for (size_t i = 0; i < sizeof wants / sizeof *wants; i++)
        ck_assert_msg(json_integer_value(json_object_get(row, wants[i].key)) ==
                          wants[i].value,
                      "%s in %s", wants[i].key, got);
    json_decref(all);
    free(got);
}

START_TEST(only_the_namespace_is_shown)
{
    ck_table(ROW("a", "big", "16384", "2048", "3072", "50") "," ROW("b", "web", "4096",
                                                                    "4096", "8192", "5"),
             "", "a",
             HEAD
             "a          Deployment/big  c          16        2    3    2d2h  4\n" FOOT);
}

START_TEST(malformed_items_are_left_out)
{
    ck_table("{'namespace':'a'},7,null,"
             "{'namespace':'a','kind':'Pod','name':'p','container':'c','p95Memory':-1,"
             "'maxMemory':1,'hours':1,'ageHours':1}",
             ROW("a", "p", "1", "1", "99999999999999999", "1"), "",
             "no workload has been measured\n");
}

UNIT_MAIN("rightsize", the_suggestion_is_the_maximum_with_headroom,
          the_rows_of_several_nodes_become_one, only_the_namespace_is_shown,
          malformed_items_are_left_out)
