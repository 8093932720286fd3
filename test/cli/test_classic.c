/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>

#include "base/file.h"
#include "cli/classic.h"
#include "cli/lib.h"

/*
 * --classic by golden folders: test/golden/classic/<case>/ has the lists nodes.json and
 * pods.json, and the Go plugin's output for them: summary.txt, and details.txt for -d.
 */

#define DIR_OF_CASES "test/golden/classic"
enum { FILE_MAX_BYTES = 1 << 20 };

static void load(const char *dir, const char *name, struct buf *text)
{
    cleanup_free char *path = xasprintf(DIR_OF_CASES "/%s/%s", dir, name);
    struct err err = {0};
    ck_assert_done(file_read(path, FILE_MAX_BYTES, text, &err), err);
}

static void compare(const char *dir, const char *name, bool details)
{
    cleanup_buf struct buf want = {0}, got = {0};
    load(dir, name, &want);
    ck_assert(classic_write(&got, cs, (struct span){0}, details));
    ck_assert_msg(span_eq(buf_span(&want), buf_span(&got)), "%s/%s is not:\n%s", dir,
                  name, got.p);
}

static void run_case(const char *dir)
{
    cleanup_buf struct buf nodes = {0}, pods = {0};
    const struct cluster_state_config config = {
        .core = {.ledger = {.unit_mib = 1024}, .only_pods = true},
        .request = lib_request};
    cluster_state_free(cs);
    cs = cluster_state_new(&config);
    load(dir, "nodes.json", &nodes);
    load(dir, "pods.json", &pods);
    lib_fill(cs, &(struct lists){.nodes = nodes.p, .pods = pods.p});
    compare(dir, "summary.txt", false);
    compare(dir, "details.txt", true);
}

TEST(every_case_byte_for_byte)
{
    DIR *dir = opendir(DIR_OF_CASES);
    int cases = 0;
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.')
            continue;
        run_case(entry->d_name);
        cases++;
    }
    closedir(dir);
    ck_assert_int_ge(cases, 5);
}

TEST(a_single_node_and_an_unknown_node)
{
    cleanup_buf struct buf out = {0};
    CLUSTER(.nodes = NODE("a", "10", "1") "," NODE("b", "20", "2"));
    ck_assert(classic_write(&out, cs, SPAN("b"), false));
    ck_assert_str_eq(
        out.p,
        "NAME  IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU "
        "Memory(GiB)\nb     10.0.0.1   0/10                   0/10              "
        "     0/20\n----------------------------------------------\nAllocated/Total "
        "GPU Memory In Cluster:\n0/20 (0%)  \n");
    buf_clear(&out);
    ck_assert(!classic_write(&out, cs, SPAN("nope"), false));
    ck_assert_str_eq(out.p, "Failed due to nodes \"nope\" not found");
}

TEST(numbers_out_of_range)
{
    cleanup_buf struct buf out = {0};
    CLUSTER(.nodes = NODE("a", "1000000", "100000"),
            .pods = POD_OF("p", "a", "2", IDX("-9223372036854775808")) "," POD_OF(
                "q", "a", "2", IDX("9223372036854775807")));
    ck_assert(classic_write(&out, cs, (struct span){0}, true));
    ck_assert(classic_write(&out, cs, (struct span){0}, false));
}
