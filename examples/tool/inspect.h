/* SPDX-License-Identifier: MIT */
/* What strata inspect shows: read from a pack, written as text or JSON. */
#ifndef STRATA_TOOL_INSPECT_H
#define STRATA_TOOL_INSPECT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <strata/strata.h>

enum { FORMAT_IDS = 256 };

typedef struct inspection {
    const strata_pack *pack;
    const char *path;
    strata_pack_info info;
    strata_layer_info *layers;            /* info.layer_count */
    const char *format_names[FORMAT_IDS]; /* of the formats that the pack's tensors have */
    bool with_tensors;
    bool with_metadata;
} inspection;

strata_status inspection_read(const strata_pack *pack, const char *path, inspection *out);
void inspection_free(inspection *all);

strata_status inspection_write_text(const inspection *all, FILE *out);
strata_status inspection_write_json(const inspection *all, FILE *out);

/* "IQ2_XS"; "-" for a projection that is not there. */
const char *inspection_format(const inspection *all, uint32_t format);

/*
 * A metadata entry's element, or the entry itself when scalar, as text: a number, "true", a string;
 * "null" for what is no finite number or beyond int64.
 */
typedef struct metadata_text {
    char number[40];
    const char *bytes; /* number, or the pack's */
    uint64_t count;
    bool is_string;
} metadata_text;

strata_status inspection_metadata_text(const inspection *all, const strata_metadata_info *entry,
                                       uint64_t element, metadata_text *out);

#endif
