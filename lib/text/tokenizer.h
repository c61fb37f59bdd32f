/* SPDX-License-Identifier: MIT */
/* What a tokenizer is made of. */
#ifndef STRATA_TEXT_TOKENIZER_H
#define STRATA_TEXT_TOKENIZER_H

#include "text/pairs.h"
#include "text/special.h"
#include "text/split.h"
#include "text/vocabulary.h"

struct strata_tokenizer {
    strata_context *context;
    strata__text_vocabulary vocabulary;
    strata__pairs pairs;
    strata__special special;
    strata__splitter *splitter; /* byte pairs; NULL: SentencePiece */
    bool whole_words;           /* a word that is a token is not merged from its bytes */
    /*
     * SentencePiece: last bytes of words that some token joins to a space behind them. Behind all
     * other words a text can be cut before it is merged.
     */
    bool joins_space[256];
    strata_tokenizer_info info;
};

#endif
