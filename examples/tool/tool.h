/* SPDX-License-Identifier: MIT */
/* What the subcommands of the strata tool share. The tool uses the public API alone. */
#ifndef STRATA_TOOL_H
#define STRATA_TOOL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <strata/strata.h>

struct json_writer;

/* Exit codes of the tool. */
enum { TOOL_OK = 0, TOOL_FAILED = 1, TOOL_USAGE = 2, TOOL_INTERRUPTED = 130 };

/* A subcommand: argv[0] is "strata NAME", the rest its own arguments. Returns an exit code. */
typedef struct command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
} command;

int cmd_bench(int argc, char **argv);
int cmd_compare(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_prefill(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);

/* Writes "strata: ..." and a newline to stderr. */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
void tool_message(const char *format, ...);

/*
 * What went wrong beside an answer: told on stderr at once, and in JSON a part of the answer. The
 * first of several is kept; all zero: nothing.
 */
typedef struct failure {
    strata_status status;
    char what[1024];
    char detail[1024];
} failure;

/* A failed call: what was tried, the status's name and the library's detail text. */
void failure_of_call(failure *out, const char *what, strata_status status);

/* What the tool itself refuses or cannot do. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
void failure_of_tool(failure *out, strata_status status, const char *format, ...);

/* The member "error" of the open object; nothing when nothing failed. */
void failure_json(struct json_writer *json, const failure *what);

/*
 * Reports a failed call that leaves no answer: on stderr, and with `json` as an object
 * {"error": ...} on stdout. Returns TOOL_FAILED.
 */
int tool_fail(const char *what, strata_status status, bool json);

/* A failure that the library had no part in: its text, of something earlier, is not told. */
strata_status tool_own(strata_status status);

/* As tool_fail() for what the tool itself refuses. Returns TOOL_FAILED. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
int tool_refuse(strata_status status, bool json, const char *format, ...);

/*
 * The library tells what is wrong with a text as "WORD: ...", and does not know the file that the
 * text came from: from now on that is told as "PATH: ...". Both stay the caller's.
 */
void tool_names_file(const char *word, const char *path);

/* Opens context and pack, reporting a failure. The caller closes both; NULL on failure. */
bool tool_open_pack(const char *path, bool json, strata_context **out_context,
                    strata_pack **out_pack);

#endif
