/*
 * Subscription logins: the names of vendors, and the placeholders that machines have instead of
 * tokens. The model gateway replaces a placeholder by the owner's token, outside of the machine.
 */
#pragma once

#define LOGIN_CLAUDE "claude"
#define LOGIN_CODEX "codex"

/* The forms are those that the programs accept. Neither is a secret. */
#define LOGIN_CLAUDE_PLACEHOLDER "sk-ant-oat01-carrel-placeholder"
/* A JWT without a signature. It expires in 2100, so that Codex does not try to renew it. */
#define LOGIN_CODEX_PLACEHOLDER                                                \
    "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0."                                     \
    "eyJleHAiOjQxMDI0NDQ4MDAsImVtYWlsIjoiYWdlbnRAY2FycmVsLmludmFsaWQiLCJodHRw" \
    "czovL2FwaS5vcGVuYWkuY29tL2F1dGgiOnsiY2hhdGdwdF9wbGFuX3R5cGUiOiJwcm8iLCJj" \
    "aGF0Z3B0X2FjY291bnRfaWQiOiJjYXJyZWwiLCJjaGF0Z3B0X3VzZXJfaWQiOiJjYXJyZWwi" \
    "fX0"                                                                      \
    ".cGxhY2Vob2xkZXI"
/* The account that the placeholder names. */
#define LOGIN_CODEX_ACCOUNT "carrel"
