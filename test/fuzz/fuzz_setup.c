/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The input is a static pod of kube-scheduler and, after a NUL, its configuration file.
 * The checks must report something for every input, and after a plan is applied the next
 * plan must be empty. Whether an edit keeps all other bytes is tested in test/setup.
 */

#include "base/file.h"
#include "base/mem.h"
#include "fuzz/fuzz.h"
#include "setup/change_plan.h"
#include "setup/checks.h"

enum { FILE_MAX = 1 << 20 };

static struct buf config, policy; /* of policy/ */

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
    struct scheduler_pod pod;
    cleanup_buf struct buf path = {0};
    bool old;
    f.files[0] = file("/m/s.yaml", manifest);
    if (text)
        f.config = file("/c.yaml", *text);
    else
        err_set(&f.config.why, ERR_NOT_FOUND, "not there");
    if (facts_manifest(&f, &pod))
        f.config_mounted =
            scheduler_pod_host_path(&pod, scheduler_pod_config_option(&pod, &old), &path);
    return f;
}

static int make(const struct facts *f, struct change_plan *plan)
{
    struct err err = {0};
    const struct change_plan_input in = {.facts = f,
                                         .root = "",
                                         .address = "h:1",
                                         .config = buf_span(&config),
                                         .policy = buf_span(&policy),
                                         .read = not_there};
    int rc = change_plan_make(&in, plan, &err);
    if (rc && (err.code == ERR_NONE || !*err.msg))
        fuzz_fail("an error without a message");
    return rc;
}

static struct span of(const struct change_plan *plan, enum change_plan_kind kind,
                      struct span old)
{
    const struct change_plan_file *c = &plan->changes[kind];
    return c->path ? buf_span(&c->bytes) : old;
}

static void check_plan(struct facts *f, struct span manifest, struct span text)
{
    struct change_plan plan = {0}, again = {0};
    if (make(f, &plan) == 0) {
        struct span second = of(&plan, CHANGE_PLAN_CONFIG, text);
        struct facts after = facts(of(&plan, CHANGE_PLAN_MANIFEST, manifest), &second);
        if (make(&after, &again))
            fuzz_fail("the planned files are rejected");
        if (again.changes[CHANGE_PLAN_MANIFEST].path ||
            again.changes[CHANGE_PLAN_CONFIG].path)
            fuzz_fail("the planned files need another change");
        facts_fini(&after);
    }
    change_plan_fini(&plan);
    change_plan_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span text = {(const char *)data, size}, manifest = span_cut(&text, '\0');
    struct findings found = {0};
    cleanup_buf struct buf said = {0};
    if (!config.n &&
        (file_read("policy/kube-scheduler-config.yaml", FILE_MAX, &config, NULL) ||
         file_read("policy/scheduler-policy-config.json", FILE_MAX, &policy, NULL)))
        exit(1);
    struct facts f = facts(manifest, text.p ? &text : NULL);
    extender_entry_read_url("http://h:1", &f.reach.url, NULL);
    err_set(&f.cluster_why, ERR_UNAVAILABLE, "not asked");
    checks_run(&f, true, &found);
    findings_write(&found, &said);
    if (!said.n || !findings_exit_status(&found))
        fuzz_fail("no finding, although nothing was called");
    check_plan(&f, manifest, text);
    findings_fini(&found);
    facts_fini(&f);
    return 0;
}
