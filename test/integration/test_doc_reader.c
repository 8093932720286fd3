/* SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>

#include "base/mem.h"
#include "lib/commands.h"
#include "lib/lib.h"
#include "lib/session.h"

/*
 * The readers and checkers of documents in test/lib: doc, commands and session. They find
 * every fault and report its position.
 */

enum { SESSION_MS = 60 * 1000 };

/* -- doc -- */

static void parse(struct doc *d, const char *text, const char *faults)
{
    cleanup_buf struct buf got = {0};
    buf_adds(&got, "");
    doc_parse(d, "x.md", span_of(text), &got);
    ck_assert_str_eq(got.p, faults);
}

START_TEST(fenced_blocks_are_read)
{
    cleanup_doc struct doc d;
    parse(
        &d,
        "# A `b` & c\n\n```sh\na\n``` not an end\n\n  b\n```\n"
        "1. in a list\n\n   ````text\n   x\n     ```\n  y\n   `````\n"
        "~~~ yaml\n```sh\n~~~\n``` inline `` ` ```\n```sh seen-in=a,b\n```\n# A b & c\n",
        "");
    ck_assert_uint_eq(d.n, 4);
    ck_assert_int_eq(d.blocks[0].use, DOC_SH);
    ck_assert_uint_eq(d.blocks[0].line, 3);
    ck_assert_str_eq(d.blocks[0].text, "a\n``` not an end\n\n  b\n");
    ck_assert_int_eq(d.blocks[1].use, DOC_TEXT);
    ck_assert_str_eq(d.blocks[1].text, "x\n  ```\ny\n");
    ck_assert_int_eq(d.blocks[2].use, DOC_CONFIG);
    ck_assert_str_eq(d.blocks[2].text, "```sh\n");
    ck_assert_int_eq(d.blocks[3].use, DOC_SEEN);
    ck_assert_str_eq(d.blocks[3].seen_in, "a,b");
    ck_assert_uint_eq(d.blocks[3].line, 20);
    ck_assert_uint_eq(d.anchors.n, 2);
    ck_assert_str_eq(d.anchors.items[0].text, "a-b--c");
    ck_assert_str_eq(d.anchors.items[1].text, "a-b--c-1");
    ck_assert_uint_eq(d.anchors.items[1].line, 22);
}
END_TEST

START_TEST(blocks_without_info_string_or_end_are_reported)
{
    static const char *const bad[][2] = {
        {"```\na\n```\n", "x.md:1: \"\" is no use of a block"},
        {"\n```bash\na\n```\n", "x.md:2: \"bash\" is no use"},
        {"```sh simulated\n```\n", "x.md:1: \"sh simulated\" is no use"},
        {"```sh seen-in=\n```\n", "\"sh seen-in=\" is no use"},
        {"```json sim\n```\n", "\"json sim\" is no use"},
        {"text\n\n    make all\n", "x.md:3: indented block"},
        {"a\n\n```sh\nx\n````x\n", "x.md:3: block without an end"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        cleanup_doc struct doc d;
        cleanup_buf struct buf faults = {0};
        doc_parse(&d, "x.md", span_of(bad[i][0]), &faults);
        ck_assert_contains(faults.n ? faults.p : "", bad[i][1]);
        ck_assert_ptr_eq(strchr(faults.p, '\n'), faults.p + faults.n - 1);
    }
    cleanup_doc struct doc d;
    parse(&d, "- a list\n\n    goes on\n\nand\n    ends\n", "");
}
END_TEST

START_TEST(links_and_code_are_found_outside_of_blocks)
{
    cleanup_doc struct doc d;
    parse(
        &d,
        "see [a `b](c)` d](e.md#f) and `make\nx`\n```text\n[g](h)\n```\n![i](j \"k\")\n",
        "");
    ck_assert_uint_eq(d.links.n, 2);
    ck_assert_str_eq(d.links.items[0].text, "e.md#f");
    ck_assert_str_eq(d.links.items[1].text, "j");
    ck_assert_uint_eq(d.links.items[1].line, 6);
    ck_assert_uint_eq(d.code.n, 2);
    ck_assert_str_eq(d.code.items[0].text, "b](c)");
    ck_assert_str_eq(d.code.items[1].text, "make x");
}
END_TEST

START_TEST(a_manual_has_blocks_too)
{
    cleanup_doc struct doc d;
    cleanup_buf struct buf faults = {0};
    doc_parse(
        &d, "x.8.in",
        SPAN(".SH EXAMPLES\n.\\\" sh sim\n.EX\na \\-\\-b \\e\n  c\n.EE\n.EX\n.EE\n"),
        &faults);
    ck_assert_uint_eq(d.n, 2);
    ck_assert_int_eq(d.blocks[0].use, DOC_SIM);
    ck_assert_str_eq(d.blocks[0].text, "a --b \\\n  c\n");
    ck_assert_str_eq(faults.p,
                     "x.8.in:7: \"\" is no use of a block: see \"Commands in the "
                     "docs\" in docs/testing.md\n");
}
END_TEST

/* -- commands -- */

START_TEST(stale_commands_are_reported)
{
    static const char *const bad[][2] = {
        {"make tset", "no target tset"},
        {"make test SANITISE=address", "no variable SANITISE"},
        {"kubctl get pods", "unknown program \"kubctl\""},
        {"a=1 sudo gpushare-extender --prot 1", "gpushare-extender has no option --prot"},
        {"build/kube-sim --port=1 --loda x &", "build/kube-sim has no option --loda"},
        {"build/kube-sym", "unknown build target build/kube-sym"},
        {"for i in 1 2; do\n  kubectl inspect gpushare -x; done", "no option -x"},
        {"kubectl inspect gpu", "unknown: kubectl inspect gpu"},
        {"scripts/cluster up --extender 2", "scripts/cluster has no option --extender"},
        {"kubectl apply -f manifests/nothing.yaml", "no manifests/nothing.yaml"},
        {"echo $(cat docs/nothing.md)", "no docs/nothing.md"},
        {"cat <<END >x\nkubctl\nEND\nmake tset", "x.md:14: the Makefile has no target"},
        {"scv-agent --once # --nothing\n\\\nkubctl", "unknown program \"kubctl\""},
    };
    cleanup_doc struct doc d;
    parse(&d, "", "");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        cleanup_buf struct buf faults = {0};
        commands_check(&faults, &d, 10, bad[i][0], NULL);
        ck_assert_contains(faults.n ? faults.p : "", bad[i][1]);
        ck_assert_msg(strchr(faults.p, '\n') == faults.p + faults.n - 1, "%s: %s",
                      bad[i][0], faults.p);
    }
}
END_TEST

START_TEST(stale_inline_code_is_reported)
{
    static const char *const bad[][2] = {
        {"`make tset SEED=1`", "no target tset"},
        {"`test/base/test_nothing`", "there is no test/base/test_nothing"},
        {"`--memory-units=MiB`", "unknown option --memory-units"},
    };
    cleanup_free char *options = commands_options();
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        cleanup_doc struct doc d;
        cleanup_buf struct buf faults = {0};
        parse(&d, bad[i][0], "");
        commands_check_code(&faults, &d, &d.code.items[0], options);
        ck_assert_contains(faults.n ? faults.p : "", bad[i][1]);
    }
    cleanup_doc struct doc d;
    cleanup_buf struct buf faults = {0};
    parse(&d, "`make test SANITIZE=address|thread`, `test/base`, `--wait`, `x --y`, `--`",
          "");
    for (size_t i = 0; i < d.code.n; i++)
        commands_check_code(&faults, &d, &d.code.items[i], options);
    ck_assert_uint_eq(d.code.n, 5);
    ck_assert_msg(!faults.n, "%s", faults.p);
}
END_TEST

START_TEST(valid_commands_pass)
{
    static const char *const good[] = {
        "make -j2 test SANITIZE=address && make demo KEEP=1",
        "kubectl inspect gpushare -d -o wide --color never explain pod a",
        "gpushare-extender --no=\"$x\" --help | grep -e --port 2>&1 >/dev/null",
        "if ! curl -sf \"http://x:1/\"; then sleep 1; fi; export a=$(pwd)/b",
        "kubectl apply -f manifests/ -f=manifests/samples/*.yaml -f manifests/$X/y",
        "build/simulate --seed=7; build/test/integration/test_docs",
        "scripts/cluster up --nodes 3 -- --anything",
    };
    cleanup_doc struct doc d;
    parse(&d, "", "");
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        cleanup_buf struct buf faults = {0};
        commands_check(&faults, &d, 1, good[i], NULL);
        ck_assert_msg(i == 2 || !faults.n, "%s", faults.p);
    }
    cleanup_buf struct buf faults = {0};
    commands_check(&faults, &d, 1, "make -j2 e2e-node", ".ci/run,Makefile");
    ck_assert_msg(!faults.n, "%s", faults.p);
    commands_check(&faults, &d, 1, "make test-gpu", ".ci/run");
    ck_assert_str_eq(faults.p, "x.md:2: test-gpu is not in .ci/run\n");
}
END_TEST

/* -- session -- */

/* The faults of a document, which must begin with this text. New. */
static char *faults_of(const char *text, const char *begin)
{
    cleanup_doc struct doc d;
    struct buf faults = {0};
    buf_adds(&faults, "");
    doc_parse(&d, "docs/x.md", span_of(text), &faults);
    session_run(&(struct session){DOC_SIM, NULL, ARGV("FROM=here"), SESSION_MS}, &d,
                &faults);
    ck_assert_msg(strncmp(faults.p, begin, strlen(begin)) == 0, "not \"%s\": %s", begin,
                  faults.p);
    return buf_take(&faults);
}

START_TEST(a_failed_block_is_reported)
{
    cleanup_free char *good =
        faults_of("```sh sim\na=1 && echo x >y\n```\n```sh\nfalse\n```\n"
                  "```sh sim\n[ $a$FROM = 1here ] && [ -f y ] && [ -f docs/testing.md ]\n"
                  "sleep 1000 &\n```\n",
                  "");
    ck_assert_str_eq(good, "");
    ck_assert_int_ne(access("y", F_OK), 0);
    cleanup_free char *second =
        faults_of("```sh sim\necho a\n```\n\n```sh sim\necho b\nls </none\n```\n",
                  "docs/x.md:5: exit status 1\nb\n");
    ck_assert_contains(second, "x.md:5: line 2: /none: No such file");
    ck_assert_contains(second, "failed: ls < /none\n");
    free(faults_of("```sh sim\nfalse | true\n```\n",
                   "docs/x.md:1: exit status 1\nfailed: true\n"));
    cleanup_free char *unset =
        faults_of("```sh sim\necho $nothing\n```\n", "docs/x.md:1: exit");
    ck_assert_contains(unset, "nothing: unbound variable");
}
END_TEST

LIB_MAIN("doc_reader", 60, fenced_blocks_are_read,
         blocks_without_info_string_or_end_are_reported,
         links_and_code_are_found_outside_of_blocks, a_manual_has_blocks_too,
         stale_commands_are_reported, stale_inline_code_is_reported, valid_commands_pass,
         a_failed_block_is_reported)
