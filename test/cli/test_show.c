/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/show.h"

#include "cli/cli.h"
#include "cli/rig.h"
#include "support/program.h"

#define TWO_CARDS                                                                        \
    CARD_OF("0", "Healthy", "Tesla T4", "15360", "5120")                                 \
    "," CARD_OF("1", "Bad", "Tesla T4", "15360", "0")

static struct world *small(void)
{
    return rig_world(&(struct lists){
        .nodes = NODE("n1", "30", "2") "," NODE("cpu", "0", "0"),
        .scvs = SCV_OF("n1", TWO_CARDS),
        .pods = POD_OF("a", "n1", "2", IDX("0")) "," POD_OF("w", "", "20", "")});
}

static char *table_of(const struct world *w, struct show show)
{
    cleanup_buf struct buf out = {0};
    show.now_s = 1767225600 + 30; /* half a minute after the sample */
    ck_assert(show_write(&out, w, &show));
    return buf_take(&out);
}

START_TEST(a_card_a_line)
{
    struct world *w = small();
    cleanup_free char *plain = table_of(w, (struct show){0});
    /* 5120 MiB are in use, 1024 are tolerated, and the pod does not run yet. */
    ck_assert_str_eq(
        plain,
        "NODE  GPU  MODEL     HEALTH     PROMISED/TOTAL(GiB)  USED  FREE  PODS\n"
        "n1    0    Tesla T4  Healthy    2/15                 5     9     1\n"
        "n1    1    Tesla T4  Unhealthy  0/15                 0     0     0\n"
        "\n"
        "2 of 30 GiB promised (6%), 9 free, 5 measured in use; 2 cards (1 healthy) on 1 "
        "node; 1 pod waits\n");
    cleanup_free char *wide = table_of(w, (struct show){.form = SHOW_WIDE});
    ck_assert_says(wide,
                   "n1    0    Tesla T4  Healthy    2/15                 5     9   "
                   "  1     4        37%   41C   10.0.0.1  scv     30s       GPU-0");
    cleanup_free char *details = table_of(w, (struct show){.details = true});
    ck_assert_says(details, "n1    0    ns         a    2         bound\n");
    ck_assert_says(details, "ns       w    20 GiB    0\n");
    ck_assert_ptr_null(strstr(details, "\033"));
    cleanup_free char *colours = table_of(w, (struct show){.colours = true});
    ck_assert_says(colours, "\033[31mUnhealthy\033[0m  0/15");
    world_free(w);
}
END_TEST

START_TEST(programs_get_the_same)
{
    struct world *w = small();
    cleanup_free char *text = table_of(w, (struct show){.form = SHOW_JSON});
    json_error_t error;
    json_t *j = json_loads(text, 0, &error);
    ck_assert_msg(j != NULL, "%s", error.text);
    json_t *node = json_array_get(json_object_get(j, "nodes"), 0);
    json_t *card = json_array_get(json_object_get(node, "cards"), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(j, "nodes")), 1);
    ck_assert_int_eq(json_integer_value(json_object_get(card, "promisedMiB")), 2048);
    ck_assert_int_eq(json_integer_value(json_object_get(card, "usedMiB")), 5120);
    ck_assert_int_eq(json_integer_value(json_object_get(card, "outsideMiB")), 4096);
    ck_assert_int_eq(json_integer_value(json_object_get(card, "freeMiB")), 9216);
    ck_assert_uint_eq(json_array_size(json_object_get(card, "pods")), 1);
    ck_assert_uint_eq(json_array_size(json_object_get(j, "pendingPods")), 1);
    json_decref(j);
    cleanup_free char *yaml = table_of(w, (struct show){.form = SHOW_YAML});
    ck_assert_says(yaml, "unit: \"GiB\"\nunitMiB: 1024\nnodes:\n- name: \"n1\"\n"
                         "  address: \"10.0.0.1\"\n");
    ck_assert_says(yaml, "  cards:\n  - index: 0\n    uuid: \"GPU-0\"\n");
    ck_assert_says(yaml, "    pods: []\n");
    world_free(w);
}
END_TEST

START_TEST(a_cordoned_node_is_marked)
{
    static const char cordoned[] =
        "{\"metadata\":{\"name\":\"n2\"},\"spec\":{\"unschedulable\":true}}";
    char *nodes = xasprintf("%s,%s", NODE("n1", "30", "2"), cordoned);
    struct lists lists = {.nodes = nodes,
                          .scvs = SCV_OF("n1", TWO_CARDS) "," SCV_OF(
                              "n2", CARD_OF("0", "Healthy", "T4", "15360", "0")),
                          .pods = POD_OF("a", "n2", "2", IDX("0"))};
    struct world *w = rig_world(&lists);
    cleanup_free char *plain = table_of(w, (struct show){0});
    ck_assert_str_eq(
        plain,
        "NODE  GPU  MODEL     HEALTH                      PROMISED/TOTAL(GiB)  USED  "
        "FREE  PODS\n"
        "n1    0    Tesla T4  Healthy                     0/15                 5     "
        "11    0\n"
        "n1    1    Tesla T4  Unhealthy                   0/15                 0     "
        "0     0\n"
        "n2    0    T4        Healthy,SchedulingDisabled  2/15                 0     "
        "13    1\n"
        "\n"
        "2 of 45 GiB promised (4%), 24 free (13 of it on cordoned nodes), 5 measured in "
        "use; 3 cards (2 healthy) on 2 nodes\n");
    cleanup_free char *wide = table_of(w, (struct show){.form = SHOW_WIDE});
    ck_assert_says(wide, "n2    0    T4        Healthy,SchedulingDisabled  2/15");
    cleanup_free char *colours = table_of(w, (struct show){.colours = true});
    ck_assert_says(colours, "\033[33mHealthy,SchedulingDisabled\033[0m");
    cleanup_free char *json = table_of(w, (struct show){.form = SHOW_JSON});
    json_t *j = json_loads(json, 0, NULL), *list = json_object_get(j, "nodes");
    ck_assert_ptr_null(json_object_get(json_array_get(list, 0), "schedulingDisabled"));
    ck_assert(
        json_is_true(json_object_get(json_array_get(list, 1), "schedulingDisabled")));
    json_decref(j);
    cleanup_free char *yaml = table_of(w, (struct show){.form = SHOW_YAML});
    ck_assert_says(yaml, "- name: \"n2\"\n  source: \"scv\"\n"
                         "  schedulingDisabled: true\n");
    world_free(w);
    lists.scvs = NULL; /* no card to say it of */
    lists.nodes = cordoned;
    w = rig_world(&lists);
    cleanup_free char *bare = table_of(w, (struct show){0});
    ck_assert_says(bare, "! n2 (SchedulingDisabled): the node has no GPU memory");
    world_free(w);
    free(nodes);
}
END_TEST

START_TEST(a_node_alone_or_none)
{
    struct world *w = small();
    cleanup_buf struct buf out = {0};
    struct show show = {.node = SPAN("nope")};
    ck_assert(!show_write(&out, w, &show));
    show.form = SHOW_JSON;
    ck_assert(!show_write(&out, w, &show));
    ck_assert_uint_eq(out.n, 0);
    show = (struct show){.node = SPAN("cpu")};
    ck_assert(show_write(&out, w, &show));
    ck_assert_says(out.p, "! cpu: the node has no GPU memory");
    world_free(w);
}
END_TEST

/* What objects say cannot steer a terminal, nor break JSON or YAML. */
START_TEST(hostile_objects)
{
    struct world *w = rig_world(&(struct lists){
        .nodes = NODE("n1", "15", "1"),
        .scvs = SCV_OF("n1", CARD_OF("0", "Healthy", "T4\\u001b[2J\\n: \\u0085\\u0000",
                                     "15360", "0")) ",{\"metadata\":7}",
        .pods = POD_OF("a", "n1", "99999999",
                       IDX("0")) ",{\"metadata\":{\"name\":\"b\","
                                 "\"namespace\":\"ns\",\"uid\":\"u-b\"},\"spec\":[]}"});
    cleanup_free char *table = table_of(w, (struct show){.form = SHOW_WIDE});
    ck_assert_ptr_null(strchr(table, '\033'));
    ck_assert_says(table, "T4?[2J?: ??");
    ck_assert_says(table, "99999999/15!");
    cleanup_free char *json = table_of(w, (struct show){.form = SHOW_JSON});
    json_t *j = json_loads(json, JSON_ALLOW_NUL, NULL);
    ck_assert_ptr_nonnull(j);
    json_decref(j);
    cleanup_free char *yaml = table_of(w, (struct show){.form = SHOW_YAML});
    ck_assert_says(yaml, "model: \"T4\\u001b[2J\\u000a: \\u0085\\u0000\"\n");
    ck_assert_uint_ge(world_faults(w), 1);
    world_free(w);
}
END_TEST

START_TEST(columns_end_where_a_line_has_none)
{
    cleanup_table struct table t = {0};
    cleanup_buf struct buf out = {0};
    table_cell(&t, PLAIN, "a");
    table_cell(&t, PLAIN, "%s", "");
    table_end(&t, PLAIN, "x");
    table_cell(&t, PLAIN, "b\xc3\xa9");
    table_end(&t, PLAIN, "y");
    table_end(&t, PLAIN, "%s", "");
    table_cell(&t, PLAIN, "long cell");
    table_end(&t, PLAIN, "z");
    table_write(&t, &out);
    ck_assert_str_eq(out.p, "a     x\nb\xc3\xa9  y\n\nlong cell  z\n");
}
END_TEST

static void names(void *ctx, const struct cli_config *config, bool pods,
                  struct span begun, struct buf *out)
{
    (void)ctx;
    (void)begun;
    ck_assert_str_eq(config->context ? config->context : "", "dev");
    buf_adds(out, pods ? "ns/a\nns/b\n" : "n1\nn2\n");
}

static char *completed(const char *a, const char *b, const char *c, const char *d)
{
    cleanup_buf struct buf out = {0};
    const char *argv[] = {"__complete", "--context=dev", a, b, c, d};
    int argc = 3 + (b != NULL) + (c != NULL) + (d != NULL);
    complete_words(argc, (char *const *)argv, NULL, names, NULL, &out);
    return buf_take(&out);
}

START_TEST(words_are_completed)
{
    const struct {
        const char *words[4], *want;
    } cases[] = {
        {{""}, "explain\ncompletion\nn1\nn2\n:4\n"},
        {{"n"}, "n1\nn2\n:4\n"},
        {{"explain", ""}, "pod\n:4\n"},
        {{"explain", "pod", "ns/b"}, "ns/b\n:4\n"},
        {{"-o", "y"}, "yaml\n:4\n"},
        {{"--memory-unit", ""}, "auto\nGiB\nMiB\n:4\n"},
        {{"--wa"}, "--watch\n:4\n"},
        {{"-w", "n2"}, "n2\n:4\n"},
        {{"completion", "z"}, "zsh\n:4\n"},
        {{"n1", ""}, ":4\n"},
        {{"--bad", ""}, ":4\n"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *const *w = cases[i].words;
        cleanup_free char *got = completed(w[0], w[1], w[2], w[3]);
        ck_assert_str_eq(got, cases[i].want);
    }
    cleanup_buf struct buf script = {0};
    struct err err = {0};
    ck_assert_int_eq(complete_script("tcsh", &script, &err), -1);
    ck_assert_done(complete_script("bash", &script, &err), err);
}
END_TEST

UNIT_MAIN("show", a_card_a_line, programs_get_the_same, a_cordoned_node_is_marked,
          a_node_alone_or_none, hostile_objects, columns_end_where_a_line_has_none,
          words_are_completed)
