/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/lib.h"

/*
 * gpushare-replay as people run it.
 */

#define SMALL "--nodes=test/replay/nodes.csv", "--pods=test/replay/pods.csv"

/* What it said, kept. */
static char *replay(int status, const char *const *options)
{
    return lib_output_of(status, "gpushare-replay", options);
}

/* Blanks the one figure that is not the same in every run. */
static void forget_speed(char *said)
{
    static const char key[] = "\"decisions_per_s\": ";
    for (char *at = strstr(said, key); at; at = strstr(at, key)) {
        at += strlen(key);
        size_t digits = strspn(at, "0123456789");
        memmove(at, at + digits, strlen(at + digits) + 1);
    }
}

TEST(the_small_trace_gives_the_same_results_everywhere)
{
    char *said = replay(0, ARGV(SMALL, "--seeds=3", "-o", "json"));
    forget_speed(said);
    ck_assert_str_eq(said, lib_file("test/replay/small.json"));
}

TEST(policies_are_chosen_by_name)
{
    const char *said =
        replay(0, ARGV(SMALL, "--policy=fgd", "--policy=spread", "--seeds=1"));
    ck_assert_contains(said, "\nspread ");
    ck_assert_contains(said, "\nfgd ");
    ck_assert(!strstr(said, "binpack") && !strstr(said, "scv"));
    ck_assert_lacks(said, "churn");
    ck_assert_contains(
        replay(0, ARGV(SMALL, "--policy=fgd", "--seeds=1", "--churn=80", "--cpu=off")),
        "churn rejects");
    const char *moved =
        replay(0, ARGV(SMALL, "--policy=spread", "--seeds=1", "--defrag=1"));
    const char *row = strstr(moved, "moves per card");
    double rejected, cards, fit, wide, won, moves;
    ck_assert_ptr_nonnull(row);
    row = strstr(row, "\nspread");
    ck_assert_ptr_nonnull(row);
    ck_assert_int_eq(sscanf(row, " spread %lf %lf %lf %lf %lf %lf", &rejected, &cards,
                            &fit, &wide, &won, &moves),
                     6);
    ck_assert(fit > 0 && fit < rejected && won > 0 && won < cards);
    ck_assert(moves > 0 && moves <= fit); /* one move per plan, at most */
}

TEST(rules_are_compared_on_linked_cards)
{
    const char *said = replay(0, ARGV("--links=test/replay/v100.csv", "--policy=fgd",
                                      "--policy=binpack", "--seeds=1", "--arrivals=300"));
    static const char *const rows[] = {"policy   rule ",     "\nfgd      gpushare ",
                                       "\nfgd      today ",  "\nfgd      hami ",
                                       "\nfgd      nvidia ", "\nbinpack  gpushare ",
                                       "\nbinpack  nvidia "};
    array_items(row, rows)
        ck_assert_contains(said, *row);
    ck_assert_lacks(said, "spread");
    ck_assert_lacks(said, "at 90 %");
}

TEST(invalid_options_and_files_are_refused)
{
    temp_write(lib_dir, "nodes.csv", "sn,cpu_milli,memory_mib,gpu,model\na,1,1,x,T4\n");
    const struct {
        const char *options[6], *want;
    } cases[] = {
        {{NULL}, "--nodes and --pods are required (try --help)"},
        {{"--nodes=test/replay/nodes.csv"}, "--nodes and --pods are required"},
        {{SMALL, "--policy=best"},
         "--policy: \"best\" is not one of binpack|spread|scv|fgd"},
        {{SMALL, "--seeds=0"}, "--seeds: \"0\" is not within 1..10000"},
        {{SMALL, "--churn=101"}, "--churn: \"101\" is not within 0..100"},
        {{SMALL, "-o", "xml"}, "--output: \"xml\" is not one of table|json"},
        {{SMALL, "-o"}, "-o needs a value"},
        {{"--nodes=/nonexistent.csv", "--pods=x"}, "/nonexistent.csv"},
        {{lib_fmt("--nodes=%s/nodes.csv", lib_dir), "--pods=test/replay/pods.csv"},
         "nodes.csv:2: column gpu: \"x\": expected a whole number from 0 to 64"},
        {{"--nodes=test/replay/nodes.csv", "--pods=test/replay/nodes.csv"},
         "nodes.csv:1: column name is missing"},
        {{"--links=test/replay/v100.csv", SMALL}, "--links takes no --nodes, --pods, "},
        {{"--links=test/replay/v100.csv", "-o", "json"}, "and --output=json"},
        {{"--links=/nonexistent.csv"}, "/nonexistent.csv"},
        {{"--links=test/replay/nodes.csv"}, "nodes.csv:1: column nodes is missing"},
        {{"--links=test/replay/v100.csv", "--arrivals=0"}, "is not within 1..10000000"},
    };
    array_items(c, cases) {
        const char *said = replay(1, c->options);
        ck_assert_contains(said, "gpushare-replay: ");
        ck_assert_contains(said, c->want);
    }
}

LIB_MAIN(120)
