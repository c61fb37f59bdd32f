/* SPDX-License-Identifier: MIT */
/*
 * How texts are cut before pairs are merged: for every name of tokenizer.ggml.pre the expressions
 * that model's tokenizer was trained with. The expressions are written for PCRE2 in UTF mode; white
 * space is spelled out, since PCRE2's \s and the Unicode property differ (U+180E).
 */
#include "text/patterns.h"

#include <string.h>

#define SPACE                                                                                      \
    "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"       \
    "\\x{3000}"
#define SPACES "[" SPACE "]"
#define INKED  "[^" SPACE "]"

/* Ends of many patterns: white space up to newlines, then all but the last, then any. */
#define SPACE_TAIL SPACES "*[\\r\\n]+|" SPACES "+(?!" INKED ")|" SPACES "+"
#define CLITICS    "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define MARKS      " ?[^" SPACE "\\p{L}\\p{N}]+"
#define WORD       "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"

#define GPT2                                                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" MARKS "|" SPACES "+(?!" INKED ")|" SPACES "+"

/* Words end where upper case begins again; clitics stay with their word. */
#define CASED_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_WORDS                                                                                \
    "[^\\r\\n\\p{L}\\p{N}]?" CASED_UPPER "*" CASED_LOWER "+" CLITICS "?|"                          \
    "[^\\r\\n\\p{L}\\p{N}]?" CASED_UPPER "+" CASED_LOWER "*" CLITICS "?"

/* Letters of scripts with case. */
/* clang-format off */
#define CASED_LETTERS \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}" \
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}" \
    "\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}" \
    "\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}" \
    "\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}" \
    "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}" \
    "\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}" \
    "\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}" \
    "\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}" \
    "\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}" \
    "\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}" \
    "\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}" \
    "\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}" \
    "\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}" \
    "\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}" \
    "\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}" \
    "\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}" \
    "\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"
/* clang-format on */
#define ASCII_MARKS "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"

static const strata__pattern patterns[] = {
    {"default", false, false, {GPT2}},
    {"gpt-2", false, false, {GPT2}},
    {"olmo", false, false, {GPT2}},
    {"qwen2", false, false, {CLITICS "|" WORD "|\\p{N}|" MARKS "[\\r\\n]*|" SPACE_TAIL}},
    {"llama-bpe", true, true, {CLITICS "|" WORD "|\\p{N}{1,3}|" MARKS "[\\r\\n]*|" SPACE_TAIL}},
    {"glm4", false, false, {CLITICS "|" WORD "|\\p{N}{1,3}|" MARKS "[\\r\\n]*|" SPACE_TAIL}},
    {"bailingmoe2",
     false,
     false,
     {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}|" MARKS "+[\\r\\n]*|" SPACES
      "*[\\r\\n]|" SPACES "+(?!" INKED ")|" SPACES "+"}},
    {"refact", false, false, {"\\p{N}", GPT2}},
    {"gpt-4o", false, false, {CASED_WORDS "|\\p{N}{1,3}|" MARKS "[\\r\\n/]*|" SPACE_TAIL}},
    {"deepseek-llm",
     false,
     false,
     {"[\\r\\n]", SPACES "?[" CASED_LETTERS "]+",
      SPACES "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-"
             "\\x{3002}]+",
      SPACES "+$", "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+", "\\p{N}+"}},
    {"deepseek-coder",
     false,
     false,
     {"[\\r\\n]", SPACES "?\\p{L}+", SPACES "?\\p{P}+",
      "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+", "\\p{N}"}},
    {"deepseek-v3",
     false,
     false,
     {"\\p{N}{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",
      ASCII_MARKS "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
                  "?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACE_TAIL}},
};

/* Other names that stand for the same expressions and habits. */
static const struct {
    const char *name;
    const char *same_as;
} aliases[] = {
    {"llama3", "llama-bpe"},       {"llama-v3", "llama-bpe"},        {"llama4", "gpt-4o"},
    {"minimax-m2", "gpt-4o"},      {"chatglm-bpe", "glm4"},          {"bailingmoe", "bailingmoe2"},
    {"hunyuan", "qwen2"},          {"hunyuan-dense", "deepseek-v3"}, {"starcoder", "refact"},
    {"deepseek-r1-qwen", "qwen2"},
};

static bool same(const char *name, const char *bytes, uint64_t count)
{
    return strlen(name) == count && memcmp(name, bytes, count) == 0;
}

const strata__pattern *strata__pattern_find(const char *name, uint64_t count)
{
    for (uint64_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (same(aliases[i].name, name, count))
            return strata__pattern_find(aliases[i].same_as, strlen(aliases[i].same_as));
    for (uint64_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++)
        if (same(patterns[i].name, name, count))
            return &patterns[i];
    return NULL;
}
