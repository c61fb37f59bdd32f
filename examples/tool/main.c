/* SPDX-License-Identifier: MIT */
/* strata: one program, a subcommand for each job. */
#include <argp.h>
#include <string.h>

#include "tool.h"

static const command commands[] = {
    {"bench", "measure how fast prompts are read, and tokens decoded", cmd_bench},
    {"compare", "show how far the logits of two ways to run are apart", cmd_compare},
    {"generate", "read a prompt and write on", cmd_generate},
    {"inspect", "show what a pack holds", cmd_inspect},
    {"plan", "plan every byte and predict the time, without a device", cmd_plan},
    {"prefill", "read a prompt and show the likeliest next tokens", cmd_prefill},
    {"tokenize", "show the tokens of a text", cmd_tokenize},
};

enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static void write_usage(FILE *out)
{
    fputs("Usage: strata COMMAND [OPTION...] PACK\n\n", out);
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fputs("\n\"strata COMMAND --help\" lists a command's options. A pack is a GGUF file.\n"
          "\"strata --version\" shows what was built in.\n",
          out);
}

static void write_version(void)
{
    printf("strata %s\n", strata_version_string());
    for (uint32_t i = 0; strata_build_info(i); i++)
        printf("  %s\n", strata_build_info(i));
}

static int run_command(const command *chosen, int argc, char **argv)
{
    char name[64];
    snprintf(name, sizeof name, "strata %s", chosen->name);
    argv[0] = name;
    argp_err_exit_status = TOOL_USAGE;
    return chosen->run(argc, argv);
}

/* A full disk or a closed pipe is a failure, not a success with half an answer. */
static int flushed(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    tool_message("cannot write to standard output");
    return TOOL_FAILED;
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        write_usage(stdout);
        return flushed(TOOL_OK);
    }
    if (strcmp(word, "--version") == 0) {
        write_version();
        return flushed(TOOL_OK);
    }
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(word, commands[i].name) == 0)
            return flushed(run_command(&commands[i], argc - 1, argv + 1));
    if (*word)
        tool_message("there is no command \"%s\"", word);
    write_usage(stderr);
    return TOOL_USAGE;
}
