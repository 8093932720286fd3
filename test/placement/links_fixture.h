/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Rows of `nvidia-smi topo -m` of machines that exist, and the NUMA nodes of their cards. The
 * numbers of links differ between makers.
 */
struct machine {
    const char *name;
    unsigned n;
    const char *rows; /* of n words each */
    const char *numa; /* a digit for each card, - if unknown */
};

static const struct machine machines[] = {
    {"8 x V100, hybrid cube mesh", 8,
     "X NV1 NV1 NV2 NV2 SYS SYS SYS NV1 X NV2 NV1 SYS NV2 SYS SYS "
     "NV1 NV2 X NV2 SYS SYS NV1 SYS NV2 NV1 NV2 X SYS SYS SYS NV1 "
     "NV2 SYS SYS SYS X NV1 NV1 NV2 SYS NV2 SYS SYS NV1 X NV2 NV1 "
     "SYS SYS NV1 SYS NV1 NV2 X NV2 SYS SYS SYS NV1 NV2 NV1 NV2 X",
     "00001111"},
    {"4 x V100", 4, "X NV1 NV1 NV2 NV1 X NV2 NV1 NV1 NV2 X NV2 NV2 NV1 NV2 X", "0000"},
    {"8 x A100, NVSwitch", 8,
     "X NV12 NV12 NV12 NV12 NV12 NV12 NV12 NV12 X NV12 NV12 NV12 NV12 NV12 NV12 "
     "NV12 NV12 X NV12 NV12 NV12 NV12 NV12 NV12 NV12 NV12 X NV12 NV12 NV12 NV12 "
     "NV12 NV12 NV12 NV12 X NV12 NV12 NV12 NV12 NV12 NV12 NV12 NV12 X NV12 NV12 "
     "NV12 NV12 NV12 NV12 NV12 NV12 X NV12 NV12 NV12 NV12 NV12 NV12 NV12 NV12 X",
     "00001111"},
    {"8 x A40, bridges between pairs", 8,
     "X NV4 NODE NODE SYS SYS SYS SYS NV4 X NODE NODE SYS SYS SYS SYS "
     "NODE NODE X NV4 SYS SYS SYS SYS NODE NODE NV4 X SYS SYS SYS SYS "
     "SYS SYS SYS SYS X NV4 NODE NODE SYS SYS SYS SYS NV4 X NODE NODE "
     "SYS SYS SYS SYS NODE NODE X NV4 SYS SYS SYS SYS NODE NODE NV4 X",
     "00001111"},
    {"4 x T4, PCIe only", 4, "X PHB SYS SYS PHB X SYS SYS SYS SYS X PHB SYS SYS PHB X",
     "0011"},
    {"8 x L4, PCIe switches", 8,
     "X PIX PXB PXB SYS SYS SYS SYS PIX X PXB PXB SYS SYS SYS SYS "
     "PXB PXB X PIX SYS SYS SYS SYS PXB PXB PIX X SYS SYS SYS SYS "
     "SYS SYS SYS SYS X PIX PXB PXB SYS SYS SYS SYS PIX X PXB PXB "
     "SYS SYS SYS SYS PXB PXB X PIX SYS SYS SYS SYS PXB PXB PIX X",
     "--------"},
};
