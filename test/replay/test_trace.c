/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/trace.h"

#include "lib/unit.h"
#include "replay/csv.h"

#define NODES "sn,cpu_milli,memory_mib,gpu,model\n"
#define PODS  "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"

TEST(pod_lists_with_and_without_gpu_spec)
{
    struct trace t = {0};
    struct err err = {0};
    ck_assert_done(
        trace_nodes(&t, "n", SPAN(NODES "a,96000,393216,8,G2\r\nb,8000,1,0,"), &err),
        err);
    ck_assert_uint_eq(t.n_nodes, 2);
    ck_assert_span_eq(t.nodes[0].name, "a");
    ck_assert_span_eq(t.nodes[0].model, "G2");
    ck_assert_uint_eq(t.nodes[0].cards, 8);
    ck_assert_int_eq(t.nodes[0].memory_mib, 393216);
    ck_assert_span_eq(t.nodes[1].model, "");
    ck_assert_int_eq(t.capacity, 8000);
    ck_assert_int_eq(t.cpu_milli, 104000);

    ck_assert_done(
        trace_pods(&t, "p", SPAN(PODS "p1,12000,16384,1,460\np2,1,2,8,1000\n\n"), &err),
        err);
    ck_assert_uint_eq(t.n_pods, 2);
    ck_assert_uint_eq(t.pods[1].cards, 8);
    ck_assert_int_eq(t.pods[0].gpu_milli, 460);
    ck_assert_span_eq(t.pods[0].models, "");
    trace_fini(&t);

    /* Columns in another order, a byte order mark, and unknown columns. */
    ck_assert_done(trace_pods(&t, "p",
                              SPAN("\xef\xbb\xbfqos,gpu_spec,gpu_milli,num_gpu,"
                                   "memory_mib,cpu_milli,name\n"
                                   "LS,T4|V100M16,460,1,16384,12000,p1\n"),
                              &err),
                   err);
    ck_assert_span_eq(t.pods[0].name, "p1");
    ck_assert_int_eq(t.pods[0].cpu_milli, 12000);
    ck_assert_span_eq(t.pods[0].models, "T4,V100M16");
    trace_fini(&t);
}

#define ROW(text) PODS "p1,1,1,1,500\n" text

TEST(errors_name_file_line_and_column)
{
    static const struct {
        bool nodes;
        const char *text, *want;
    } cases[] = {
        {true, "", "f: the file is empty"},
        {true, "\n\r\n", "f: the file is empty"},
        {true, "sn,cpu_milli,memory_mib,gpu\na,1,1,1\n", "f:1: column model is missing"},
        {true, "sn,sn,cpu_milli\n", "f:1: column sn: duplicate"},
        {true, NODES, "f: contains no nodes"},
        {true, NODES "a,1,1,0,x\n", "f: no node has cards"},
        {true, NODES "a,1,1,65,x\n",
         "f:2: column gpu: \"65\": expected a whole number from 0 to 64"},
        {true, NODES "a,1,1,1,x\nb,1,1,1,x\na,1,1,1,x\n", "f:4: column sn: duplicate a"},
        {false, PODS, "f: contains no pods"},
        {false, "name,cpu_milli,memory_mib,gpu_milli\np,1,1,1\n",
         "f:1: column num_gpu is missing"},
        {false, ROW("p2,1,1,1\n"), "f:3: 4 fields, expected 5"},
        {false, ROW("p2,1,1,1,500,\n"), "f:3: 6 fields, expected 5"},
        {false, ROW("p2,one,1,1,500\n"),
         "f:3: column cpu_milli: \"one\": expected a whole number from 0 to 4294967296"},
        {false, ROW("p2,1,-1,1,500\n"),
         "f:3: column memory_mib: \"-1\": expected a whole number from 0 to 4294967296"},
        {false, ROW("p2,1,1,1,1001\n"),
         "f:3: column gpu_milli: \"1001\": expected a whole number from 0 to 1000"},
        {false, ROW("p2,1,1, 1,500\n"),
         "f:3: column num_gpu: \" 1\": expected a whole number from 0 to 64"},
        {false, ROW("p2,1,1,,500\n"),
         "f:3: column num_gpu: \"\": expected a whole number from 0 to 64"},
        {false, ROW("p2,1,1,0,500\n"), "f:3: column gpu_milli: 500, but num_gpu is 0"},
        {false, ROW("p2,1,1,1,0\n"), "f:3: column gpu_milli: 0, but num_gpu is 1"},
        {false, ROW("p2,1,1,2,500\n"),
         "f:3: column gpu_milli: 500, expected 1000: a pod with several cards gets "
         "whole cards"},
        {false, ROW(",1,1,1,500\n"), "f:3: column name: is empty"},
        {false, ROW("p1,1,1,1,500\n"), "f:3: column name: duplicate p1"},
        {false, ROW("\np2,1,1,1,500\n"), "f:3: the line is empty"},
        {false, ROW("\"p2\",1,1,1,500\n"), "f:3: field 1 contains a quote"},
        {false, ROW("p2,1,1,1,5\t00\n"), "f:3: field 5 contains a control character"},
        {false, ROW("p2,1,1,1,99999999999999999999999999999999999999999999999999\n"),
         "f:3: column gpu_milli: \"9999999999999999999999999999999999999999...\": "
         "expected a whole number from 0 to 1000"},
    };
    array_items(c, cases) {
        struct trace t = {0};
        struct err err = {0};
        struct span text = span_of(c->text);
        int rc =
            c->nodes ? trace_nodes(&t, "f", text, &err) : trace_pods(&t, "f", text, &err);
        ck_assert_int_eq(rc, -1);
        ck_assert_str_eq(err.msg, c->want);
        trace_fini(&t);
    }
}

TEST(lines_and_fields_are_limited)
{
    struct err err = {0};
    struct trace t = {0};
    cleanup_buf struct buf wide = {0}, deep = {0};
    for (int i = 0; i <= CSV_COLUMNS; i++)
        buf_printf(&wide, "%sc%d", i ? "," : "", i);
    ck_assert_int_eq(trace_pods(&t, "f", buf_span(&wide), &err), -1);
    ck_assert_str_eq(err.msg, "f:1: more than 32 fields");
    buf_adds(&deep, PODS);
    for (int i = 0; i <= CSV_FIELD; i++)
        buf_addc(&deep, 'x');
    buf_adds(&deep, ",1,1,1,500\n");
    ck_assert_int_eq(trace_pods(&t, "f", buf_span(&deep), &err), -1);
    ck_assert_str_eq(err.msg, "f:2: field 1 has more than 256 bytes");
    trace_fini(&t);
}
