/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/replay.h"

void replay_table(struct buf *out, const struct replay_line *lines, size_t n, bool churn)
{
    buf_printf(out, "%-8s %8s %9s %13s %15s %11s%s\n", "policy", "at 90 %", "at 100 %",
               "first reject", "8-card rejects", "decisions/s",
               churn ? "  churn rejects" : "");
    for (size_t i = 0; i < n; i++) {
        const struct replay_result *r = &lines[i].result;
        buf_printf(out, "%-8s %8.2f %9.2f ", score_policy_name(lines[i].policy),
                   r->alloc90, r->alloc100);
        if (r->rejecting)
            buf_printf(out, "%13.1f ", r->first_reject);
        else
            buf_printf(out, "%13s ", "none");
        buf_printf(out, "%15.1f %11.0f", r->rejected_wide, r->decisions_per_s);
        if (churn)
            buf_printf(out, "  %13.2f", r->churn_rejected);
        buf_addc(out, '\n');
    }
}

void replay_defrag_table(struct buf *out, const struct replay_line *lines, size_t n)
{
    buf_printf(out, "\n%-8s %8s %6s %9s %12s %9s %6s %14s %8s %8s\n", "policy",
               "rejected", "cards", "then fit", "with 8 cards", "cards won", "moves",
               "moves per card", "ms/plan", "longest");
    for (size_t i = 0; i < n; i++) {
        const struct replay_result *r = &lines[i].result;
        buf_printf(out, "%-8s %8.1f %6.1f %9.1f %12.1f %9.1f %6.1f %14.2f %8.1f %8.1f\n",
                   score_policy_name(lines[i].policy), r->rejected, r->rejected_cards,
                   r->won, r->won_wide, r->won_cards, r->moves,
                   r->won_cards > 0 ? r->moves / r->won_cards : 0, r->plan_ms,
                   r->longest_plan_ms);
    }
}

void replay_json(struct buf *out, const struct replay_line *lines, size_t n, bool churn)
{
    buf_adds(out, "[\n");
    for (size_t i = 0; i < n; i++) {
        const struct replay_result *r = &lines[i].result;
        buf_printf(out, "  {\"policy\": \"%s\", \"alloc90\": %.4f, \"alloc100\": %.4f, ",
                   score_policy_name(lines[i].policy), r->alloc90, r->alloc100);
        if (r->rejecting)
            buf_printf(out, "\"first_reject\": %.4f, ", r->first_reject);
        else
            buf_adds(out, "\"first_reject\": null, ");
        if (churn)
            buf_printf(out, "\"churn_rejected\": %.4f, ", r->churn_rejected);
        if (r->rejected > 0 && r->won > 0)
            buf_printf(out, "\"defrag_won_cards\": %.4f, \"defrag_moves\": %.4f, ",
                       r->won_cards, r->moves);
        buf_printf(out, "\"decisions_per_s\": %.0f}%s\n", r->decisions_per_s,
                   i + 1 < n ? "," : "");
    }
    buf_adds(out, "]\n");
}
