/* SPDX-License-Identifier: MIT */
#include <strata/base.h>

#include <string.h>

#include "base/error.h"
#include "base/status.h"

#define TEXT_OF(value) #value
#define TEXT(value)    TEXT_OF(value)

const char *strata_status_name(strata_status status)
{
    return strata__status_name(status);
}

const char *strata_status_string(strata_status status)
{
    return strata__status_string(status);
}

uint64_t strata_last_error(char *buffer, uint64_t buffer_bytes)
{
    const char *text = strata__error_text();
    uint64_t length = strlen(text);
    if (buffer && buffer_bytes) {
        uint64_t copied = length < buffer_bytes ? length : buffer_bytes - 1;
        memcpy(buffer, text, copied);
        buffer[copied] = '\0';
    }
    return length + 1;
}

uint32_t strata_version_number(void)
{
    return STRATA_VERSION_NUMBER;
}

const char *strata_version_string(void)
{
    return TEXT(STRATA_VERSION_MAJOR) "." TEXT(STRATA_VERSION_MINOR) "." TEXT(STRATA_VERSION_PATCH);
}

int32_t strata_version_check(uint32_t major, uint32_t minor, uint32_t patch)
{
    const uint32_t own[] = {STRATA_VERSION_MAJOR, STRATA_VERSION_MINOR, STRATA_VERSION_PATCH};
    const uint32_t asked[] = {major, minor, patch};
    for (int part = 0; part < 3; part++)
        if (own[part] != asked[part])
            return own[part] > asked[part];
    return 1;
}

const char *strata_build_info(uint32_t index)
{
    /* The values come from the build system; "no" stands for what was left out. */
    static const char *const facts[] = {
        "cuda=" STRATA__BUILD_CUDA,
        "blas=" STRATA__BUILD_BLAS,
        "pcre2=" STRATA__BUILD_PCRE2,
        "compiler=" STRATA__BUILD_COMPILER,
    };
    return index < sizeof facts / sizeof facts[0] ? facts[index] : NULL;
}
