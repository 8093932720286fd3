/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The input is a static pod of kube-scheduler and, after a NUL, its configuration file.
 * The checks must report something for every input, and after a plan is applied the next
 * plan must be empty. Whether an edit keeps all other bytes is tested in test/setup.
 */

#include "base/file.h"
#include "base/mem.h"
#include "fuzz/fuzz.h"
#include "setup/change.h"
#include "setup/checks.h"

enum { FILE_MAX = 1 << 20 };

static struct buf config; /* of policy/ */

static int not_there(void *ctx, const char *path, struct buf *out, struct err *err)
{
    (void)ctx;
    (void)out;
    return err_set(err, ERR_NOT_FOUND, "%s: not there", path);
}

static struct facts_file file(const char *path, struct span text)
{
    struct facts_file f = {.path = xstrdup(path)};
    buf_add_span(&f.bytes, text);
    facts_file_parse(&f);
    return f;
}

/* `text` NULL: no configuration file. */
static struct facts facts(struct span manifest, const struct span *text)
{
    struct facts f = {.n_files = 1, .files = xcalloc(1, sizeof *f.files)};
    struct scheduler_config_pod pod;
    cleanup_buf struct buf path = {0};
    f.files[0] = file("/m/s.yaml", manifest);
    if (text)
        f.config = file("/c.yaml", *text);
    else
        err_set(&f.config.why, ERR_NOT_FOUND, "not there");
    const char *option =
        facts_manifest(&f, &pod) ? scheduler_config_option(&pod, "config") : NULL;
    f.config_mounted = option && scheduler_config_host_path(&pod, option, &path);
    return f;
}

static int make(const struct facts *f, struct change *plan)
{
    struct err err = {0};
    const struct change_input in = {.facts = f,
                                    .root = "",
                                    .address = "h:1",
                                    .config = buf_span(&config),
                                    .read = not_there};
    int rc = change_make(&in, plan, &err);
    if (rc && (err.code == ERR_NONE || !*err.msg))
        fuzz_fail("an error without a message");
    return rc;
}

static struct span of(const struct change *plan, enum change_kind kind, struct span old)
{
    return plan->files[kind].path ? buf_span(&plan->files[kind].bytes) : old;
}

static void check_plan(struct facts *f, struct span manifest, struct span text)
{
    struct change plan = {0}, again = {0};
    if (make(f, &plan) == 0) {
        struct span second = of(&plan, CHANGE_CONFIG, text);
        struct facts after = facts(of(&plan, CHANGE_MANIFEST, manifest), &second);
        if (make(&after, &again))
            fuzz_fail("the planned files are rejected");
        if (again.files[CHANGE_MANIFEST].path || again.files[CHANGE_CONFIG].path)
            fuzz_fail("the planned files need another change");
        facts_fini(&after);
    }
    change_fini(&plan);
    change_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span text = {(const char *)data, size}, manifest = span_cut(&text, '\0');
    struct checks found = {0};
    cleanup_buf struct buf said = {0};
    if (!config.n &&
        file_read("policy/kube-scheduler-config.yaml", FILE_MAX, &config, NULL))
        exit(1);
    struct facts f = facts(manifest, text.p ? &text : NULL);
    scheduler_config_read_url("http://h:1", &f.reach.url, NULL);
    err_set(&f.cluster_why, ERR_UNAVAILABLE, "not asked");
    checks_run(&f, true, &found);
    checks_write(&found, &said);
    if (!said.n || !checks_exit_status(&found))
        fuzz_fail("no finding, although nothing was called");
    check_plan(&f, manifest, text);
    checks_fini(&found);
    facts_fini(&f);
    return 0;
}
