/* SPDX-License-Identifier: MIT */
/* Values of options. What is wrong ends the program as a usage error that names the option. */
#ifndef STRATA_TOOL_OPTION_VALUES_H
#define STRATA_TOOL_OPTION_VALUES_H

#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

uint64_t option_number(const char *text, uint64_t least, uint64_t most,
                       const struct argp_state *state, const char *option);

/* 0.8, 1e-3; finite */
double option_real(const char *text, double least, double most, const struct argp_state *state,
                   const char *option);

/* 12GiB, 8G, 1048576; not 0 */
uint64_t option_size(const char *text, const struct argp_state *state, const char *option);

/* Index of a name in a NULL-terminated list. */
uint32_t option_choice(const char *text, const char *const *names, const struct argp_state *state,
                       const char *option);

/* What every command on a pack has: its name, and --json. */
typedef struct pack_arguments {
    const char *pack;
    bool json;
    bool optional; /* no pack need be named */
} pack_arguments;

/* Child for a command's argp, whose input is a pack_arguments. */
extern const struct argp pack_argp;

#endif
