/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The input is a static pod of kube-scheduler and, after a NUL, its configuration file.
 * The checks must report something for every input, and after a plan is applied the next
 * plan must be empty. Whether an edit keeps all other bytes is tested in test/setup.
 */

#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "fuzz/fuzz.h"
#include "setup/change.h"
#include "setup/checks.h"

enum { FILE_MAX = 1 << 20 };

static struct buf config; /* of policy/ */

static char root[] = "/tmp/gpushare-fuzz-XXXXXX";

/* Writes a file of the node; `text` NULL: removes it. */
static void write_file(const char *name, const struct span *text)
{
    cleanup_free char *path = xasprintf("%s%s", root, name);
    unlink(path);
    FILE *f = text ? fopen(path, "w") : NULL; /* file_write would also sync */
    if (text && (!f || fwrite(text->p, 1, text->n, f) != text->n || fclose(f)))
        exit(1);
}

/* `text` NULL: no configuration file. */
static struct facts facts(struct span manifest, const struct span *text)
{
    struct facts f = {.root = root, .address = "h:1"};
    write_file("/etc/kubernetes/manifests/s.yaml", &manifest);
    write_file(FACTS_CONFIG, text);
    facts_read_node(&f);
    return f;
}

static void shell(const char *command, const char *folder)
{
    cleanup_free char *line = xasprintf("%s %s%s", command, root, folder);
    if (system(line))
        exit(1);
}

static void remove_root(void)
{
    shell("rm -rf", "");
}

static int make(const struct facts *f, struct change *plan)
{
    struct err err = {0};
    int rc = change_make(f, buf_span(&config), plan, &err);
    if (rc)
        fuzz_check_error(&err);
    return rc;
}

static struct span of(const struct change *plan, enum change_kind kind, struct span old)
{
    return plan->files[kind].path ? buf_span(&plan->files[kind].bytes) : old;
}

static void check_plan(struct facts *f, struct span manifest, struct span text)
{
    struct change plan = {0}, again = {0};
    cleanup_free char *path = xasprintf("%s" FACTS_CONFIG, root);
    /* The manifest may name a configuration in a folder that does not exist. */
    if (make(f, &plan) == 0 && !strcmp(f->config.path, path)) {
        struct span second = of(&plan, CHANGE_CONFIG, text);
        struct facts after = facts(of(&plan, CHANGE_MANIFEST, manifest), &second);
        fuzz_fail_if(make(&after, &again), "the planned files are rejected");
        fuzz_fail_if(again.files[CHANGE_MANIFEST].path || again.files[CHANGE_CONFIG].path,
                     "the planned files need another change");
        facts_fini(&after);
    }
    change_fini(&plan);
    change_fini(&again);
}

void fuzz_input(struct span in)
{
    struct span text = in, manifest = span_cut(&text, '\0');
    cleanup_buf struct buf said = {0};
    if (!config.n) {
        if (!mkdtemp(root) ||
            file_read("policy/kube-scheduler-config.yaml", FILE_MAX, &config, NULL))
            exit(1);
        atexit(remove_root);
        shell("mkdir -p", "/etc/kubernetes/manifests");
    }
    struct facts f = facts(manifest, text.p ? &text : NULL);
    err_set(&f.secret_why, ERR_UNAVAILABLE, "not asked");
    int status = checks_run(&f, true, &said);
    f.secret_why = (struct err){0};
    fuzz_fail_if(!said.n || !status, "no finding, although nothing was called");
    check_plan(&f, manifest, text);
    facts_fini(&f);
}
