/* SPDX-License-Identifier: MIT */
/* Opening images, and what tests say about the outcome. */
#ifndef TEST_UNIT_PACK_TEST_H
#define TEST_UNIT_PACK_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pack/pack.h"
#include "support/gguf_builder.h"

static inline strata_context *test_context(void)
{
    strata_context_options options = {.struct_size = sizeof options};
    strata_context *context = NULL;
    assert_int_equal(strata__context_create(&options, &context), STRATA_OK);
    return context;
}

/* Text that a refusal must hold; shows both when it does not. */
static inline void assert_text(const char *wanted)
{
    if (!strstr(strata__error_text(), wanted))
        fail_msg("expected \"%s\" in \"%s\"", wanted, strata__error_text());
}

/* Opening `bytes` of `image` fails so. */
static inline void expect_refused(const void *image, uint64_t bytes, strata_status status,
                                  const char *text)
{
    strata_context *context = test_context();
    strata__pack *pack = (strata__pack *)context;
    strata_status found = strata__pack_open_memory(context, image, bytes, &pack);
    if (found != status)
        fail_msg("expected status %d (%s), found %d (%s)", status, text, found,
                 found == STRATA_OK ? "opened" : strata__error_text());
    assert_null(pack);
    assert_text(text);
    strata__context_release(context);
}

/* As above for the file that a builder makes; frees the builder. */
static inline void expect_file_refused(gguf_builder *builder, strata_status status,
                                       const char *text)
{
    uint64_t bytes;
    uint8_t *image = gguf_image(builder, &bytes, NULL);
    expect_refused(image, bytes, status, text);
    free(image);
    gguf_free(builder);
}

/* A file that opens; the image is to be freed after the pack. Frees the builder. */
static inline strata__pack *open_file(gguf_builder *builder, uint8_t **out_image)
{
    strata_context *context = test_context();
    strata__pack *pack = NULL;
    uint64_t bytes;
    *out_image = gguf_image(builder, &bytes, NULL);
    if (strata__pack_open_memory(context, *out_image, bytes, &pack) != STRATA_OK)
        fail_msg("refused: %s", strata__error_text());
    strata__context_release(context);
    gguf_free(builder);
    return pack;
}

/* A file that opens, whose model cannot be run. Frees the builder. */
static inline void expect_model_refused(gguf_builder *builder, strata_status status,
                                        const char *text)
{
    const strata__geometry *geometry;
    const strata__layer *layers;
    uint8_t *image;
    strata__pack *pack = open_file(builder, &image);
    strata_status found = strata__pack_model(pack, &geometry, &layers);
    if (found != status)
        fail_msg("expected status %d (%s), found %d (%s)", status, text, found,
                 found == STRATA_OK ? "runnable" : strata__error_text());
    assert_text(text);
    strata__pack_release(pack);
    free(image);
}

#endif
