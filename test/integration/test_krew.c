/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "lib/sim.h"
#include "lib/yamlfile.h"

/*
 * The output of `make krew`, installed as krew does it: the archive is unpacked in krew's
 * store, and the program is linked under its name with underscores instead of dashes.
 */

/* The output of a shell command, which must succeed; new. */
static char *output_of(const char *line)
{
    struct program p;
    program_start(&p, lib_dir, ARGV("sh", "-euc", line));
    ck_assert_msg(program_wait(&p) == 0, "%s: %s", line, program_output(&p));
    char *said = xstrdup(program_output(&p));
    program_fini(&p);
    return said;
}

/* Builds archive and manifest in lib_dir/FOLDER/krew; returns the manifest. */
static json_t *build_krew(const char *folder, const char *mask)
{
    cleanup_free char *plugin = program_path("kubectl-inspect-gpushare");
    cleanup_free char *line =
        xasprintf("umask %s; mkdir '%s/%s'; ln -s \"$(realpath '%s')\" '%s/%s'; "
                  "scripts/krew '%s/%s' 1.2.3 https://there/it-is.tar.gz",
                  mask, lib_dir, folder, plugin, lib_dir, folder, lib_dir, folder);
    free(output_of(line));
    cleanup_free char *path =
        xasprintf("%s/%s/krew/inspect-gpushare.yaml", lib_dir, folder);
    cleanup_json json_t *all = json_array();
    yamlfile_read(all, path);
    ck_assert_uint_eq(json_array_size(all), 1);
    return json_incref(json_array_get(all, 0));
}

static json_t *platform_of(const json_t *manifest)
{
    return json_array_get(lib_at(manifest, "spec.platforms"), 0);
}

START_TEST(the_archive_is_reproducible)
{
    cleanup_json json_t *first = build_krew("a", "022"), *second = build_krew("b", "077");
    ck_assert(json_equal(first, second));
    ck_assert_str_eq(lib_str(first, "metadata.name"), "inspect-gpushare");
    ck_assert_str_eq(lib_str(first, "spec.version"), "v1.2.3");
    const json_t *platform = platform_of(first);
    ck_assert_str_eq(lib_str(platform, "uri"), "https://there/it-is.tar.gz");
    cleanup_free char *line = xasprintf(
        "cd '%s/a/krew'; sha256sum kubectl-inspect-gpushare.tar.gz | cut -d' ' -f1; "
        "cmp kubectl-inspect-gpushare.tar.gz "
        "../../b/krew/kubectl-inspect-gpushare.tar.gz; "
        "tar -tvzf kubectl-inspect-gpushare.tar.gz | sed 's/ .* / /'",
        lib_dir);
    cleanup_free char *want =
        xasprintf("%s\n-rw-r--r-- LICENSE\n-rwxr-xr-x kubectl-inspect-gpushare\n"
                  "-rwxr-xr-x kubectl_complete-inspect-gpushare\n",
                  lib_str(platform, "sha256"));
    cleanup_free char *said = output_of(line);
    ck_assert_str_eq(said, want);
}
END_TEST

/* The indented lines of the caveats. */
static char *commands_of(const json_t *manifest)
{
    cleanup_buf struct buf out = {0};
    struct span rest = span_of(lib_str(manifest, "spec.caveats"));
    while (rest.n) {
        struct span line = span_cut(&rest, '\n');
        if (!span_starts(line, SPAN("  ")))
            continue;
        buf_add_span(&out, span_trim(line));
        buf_addc(&out, '\n');
    }
    ck_assert_uint_gt(out.n, 0);
    return buf_take(&out);
}

START_TEST(the_caveats_add_the_documented_name)
{
    cleanup_json json_t *manifest = build_krew("a", "022");
    cleanup_free char *commands = commands_of(manifest);
    /* A KREW_ROOT as krew leaves it. */
    cleanup_free char *install = xasprintf(
        "store='%s/krew root/store/inspect-gpushare/v1.2.3'; bin='%s/krew root/bin'; "
        "mkdir -p \"$store\" \"$bin\"; tar -C \"$store\" -xzf "
        "'%s/a/krew/kubectl-inspect-gpushare.tar.gz'; "
        "ln -s \"$store/%s\" \"$bin/kubectl-inspect_gpushare\"",
        lib_dir, lib_dir, lib_dir, lib_str(platform_of(manifest), "bin"));
    free(output_of(install));
    for (int i = 0; i < 2; i++) { /* the second time as after an upgrade */
        cleanup_free char *line =
            xasprintf("export KREW_ROOT='%s/krew root'\n%s", lib_dir, commands);
        free(output_of(line));
    }
    cleanup_free char *run =
        xasprintf("PATH='%s/krew root/bin':$PATH; kubectl-inspect_gpushare --version; "
                  "kubectl-inspect-gpushare --version; "
                  "kubectl_complete-inspect-gpushare explain ''",
                  lib_dir);
    cleanup_free char *plugin = program_path("kubectl-inspect-gpushare");
    cleanup_free char *ask = xasprintf("'%s' --version", plugin);
    cleanup_free char *version = output_of(ask);
    cleanup_free char *want = xasprintf("%s%spod\n:4\n", version, version);
    cleanup_free char *said = output_of(run);
    ck_assert_str_eq(said, want);
}
END_TEST

/* krew installs no libraries. */
START_TEST(the_caveats_name_the_libraries)
{
    cleanup_json json_t *manifest = build_krew("a", "022");
    const char *caveats = lib_str(manifest, "spec.caveats");
    cleanup_free char *plugin = program_path("kubectl-inspect-gpushare");
    cleanup_free char *line = xasprintf(
        "readelf -d '%s' | sed -n 's/.*(NEEDED).*\\[\\(.*\\)\\]/\\1/p'", plugin);
    cleanup_free char *said = output_of(line);
    struct span rest = span_of(said);
    size_t n = 0;
    if (strstr(said,
               "san.so")) /* sanitizer builds have more libraries and are not shipped */
        return;
    while (rest.n) {
        struct span name = span_cut(&rest, '\n');
        bool everywhere = span_starts(name, SPAN("libc.so")) ||
                          span_starts(name, SPAN("libm.so")) ||
                          span_starts(name, SPAN("ld-linux"));
        cleanup_free char *text = xmemdup0(name.p, name.n);
        if (everywhere || !name.n)
            continue;
        ck_assert_contains(caveats, text);
        n++;
    }
    ck_assert_uint_gt(n, 0);
}
END_TEST

START_TEST(make_passes_the_url_to_the_script)
{
    cleanup_free char *said =
        output_of("env -u MAKEFLAGS -u MAKELEVEL make -n krew "
                  "KREW_URL=https://there/it-is.tar.gz | tail -n 1");
    ck_assert_contains(said, "scripts/krew build");
    ck_assert_contains(said, " https://there/it-is.tar.gz\n");
}
END_TEST

LIB_MAIN("krew", 60, the_archive_is_reproducible, the_caveats_add_the_documented_name,
         the_caveats_name_the_libraries, make_passes_the_url_to_the_script)
