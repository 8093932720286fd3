/* SPDX-License-Identifier: Apache-2.0 */
#include "node/limit_cdi.h"

#include <sys/stat.h>

#include "base/str.h"
#include "lib/temp.h"
#include "lib/unit.h"

#define UID "0f3a5c1e-1111-2222-3333-444455556666"

static char *dir;

static void begin(void)
{
    dir = temp_dir();
}

static void end(void)
{
    temp_dir_remove(dir);
    free(dir);
}

static int write_pod(const char *uid, int64_t a, int64_t b, struct err *err)
{
    const struct limit_cdi_container containers[] = {{SPAN("a"), a},
                                                     {SPAN("side-car"), b}};
    return limit_cdi_write(dir, span_of(uid), containers, 2, err);
}

static bool exists(const char *name)
{
    cleanup_free char *path = temp_path(dir, name);
    struct stat st;
    return lstat(path, &st) == 0;
}

TEST(a_device_holds_the_variables_of_the_hook)
{
    struct err err;
    ck_assert_done(write_pod(UID, 3072, 1024, &err), err);
    cleanup_free char *text = temp_read(dir, "gpushare.io-limit-" UID ".json");
    ck_assert_str_eq(
        text, "{\"cdiVersion\":\"0.5.0\",\"kind\":\"gpushare.io/limit\",\"devices\":["
              "{\"name\":\"" UID "-a\",\"containerEdits\":{\"env\":["
              "\"NVIDIA_GPU_MEMORY_LIMIT=3072\",\"NVIDIA_GPU_MEMORY_REQUEST=0\"]}},"
              "{\"name\":\"" UID "-side-car\",\"containerEdits\":{\"env\":["
              "\"NVIDIA_GPU_MEMORY_LIMIT=1024\",\"NVIDIA_GPU_MEMORY_REQUEST=0\"]}}]}\n");
}

/* LIMIT=0 would be a limit of no memory, and a device without edits spoils the file. */
TEST(a_device_without_a_limit_has_a_variable_that_nobody_reads)
{
    struct err err;
    ck_assert_done(write_pod(UID, 0, 1024, &err), err);
    cleanup_free char *text = temp_read(dir, "gpushare.io-limit-" UID ".json");
    ck_assert_contains(text, "{\"name\":\"" UID "-a\",\"containerEdits\":{\"env\":["
                             "\"GPUSHARE_MEMORY_LIMIT=none\"]}}");
    ck_assert_contains(text, "NVIDIA_GPU_MEMORY_LIMIT=1024");
}

/* A runtime reads the directory again at each change. */
TEST(a_file_is_written_if_it_differs)
{
    struct stat before, after;
    struct err err;
    cleanup_free char *path = temp_path(dir, "gpushare.io-limit-" UID ".json");
    ck_assert_done(write_pod(UID, 1, 2, &err), err);
    ck_assert_int_eq(stat(path, &before), 0);
    ck_assert_done(write_pod(UID, 1, 2, &err), err);
    ck_assert_int_eq(stat(path, &after), 0);
    ck_assert_uint_eq(before.st_ino, after.st_ino);
    ck_assert_done(write_pod(UID, 1, 3, &err), err);
    cleanup_free char *text = temp_read(dir, "gpushare.io-limit-" UID ".json");
    ck_assert_contains(text, "LIMIT=3\"");
    temp_write(dir, "gpushare.io-limit-" UID ".json", "{");
    ck_assert_done(write_pod(UID, 1, 3, &err), err);
    cleanup_free char *again = temp_read(dir, "gpushare.io-limit-" UID ".json");
    ck_assert_str_eq(again, text);
    cleanup_free char *none = temp_path(dir, "none");
    const struct limit_cdi_container c = {SPAN("a"), 1};
    ck_assert_int_eq(limit_cdi_write(none, SPAN(UID), &c, 1, &err), -1);
    ck_assert_contains(err.msg, "No such file or directory");
}

TEST(names_that_the_runtime_or_the_file_system_reads_otherwise)
{
    static const struct {
        const char *uid, *container;
        bool is;
    } cases[] = {
        {UID, "a", true},     {UID, "side-car-2", true},
        {"u1", "a", true},    {"", "a", false},
        {UID, "", false},     {"-u", "a", false},
        {UID, "a-", false},   {"../u", "a", false},
        {"u/v", "a", false},  {"u.json", "a", false},
        {"u", "a=b", false},  {"u", "a,b", false},
        {"u", "a\nb", false}, {"static:ns/p", "a", false},
    };
    array_items(c, cases)
        ck_assert_msg(limit_cdi_is_name(span_of(c->uid), span_of(c->container)) == c->is,
                      "\"%s\" \"%s\"", c->uid, c->container);
    ck_assert(!limit_cdi_is_name(SPAN(UID), (struct span){"a\0b", 3}));
    char name[80];
    memset(name, 'a', sizeof name);
    ck_assert(limit_cdi_is_name(SPAN(UID), (struct span){name, 63}));
    ck_assert(!limit_cdi_is_name(SPAN(UID), (struct span){name, 64}));
    ck_assert(!limit_cdi_is_name((struct span){name, 65}, SPAN("a")));
}

static bool is_known(void *ctx, const char *uid)
{
    (*(int *)ctx)++;
    return strcmp(uid, UID) == 0;
}

TEST(files_of_pods_that_are_gone_are_removed)
{
    static const char *const others[] = {
        "gpushare.io-gpu.json",          "nvidia.yaml",
        "gpushare.io-limit-u1.json.bak", "gpushare.io-limit-u1.yaml",
        "gpushare.io-limit-.json",       "gpushare.io-limit-u 1.json",
        "gpushare.io-limit-u.1.json",    "xgpushare.io-limit-u1.json"};
    struct err err;
    int asked = 0;
    array_items(name, others)
        temp_write(dir, *name, "x");
    ck_assert_done(write_pod(UID, 1, 2, &err), err);
    ck_assert_done(write_pod("u1", 1, 2, &err), err);
    ck_assert_done(write_pod("static", 1, 2, &err), err);
    limit_cdi_sweep(dir, is_known, &asked);
    ck_assert_int_eq(asked, 3);
    ck_assert(exists("gpushare.io-limit-" UID ".json"));
    ck_assert(!exists("gpushare.io-limit-u1.json"));
    ck_assert(!exists("gpushare.io-limit-static.json"));
    array_items(name, others)
        ck_assert_msg(exists(*name), "%s", *name);
    limit_cdi_sweep("/nonexistent", is_known, &asked);
}

UNIT_MAIN_AROUND(begin, end)
