#include "tests/unit/unit.h"

#include <string.h>

#include "base/defer.h"
#include "wasm/text/wat.h"

static void assert_bytes(const char *text, int spec, const void *bytes, size_t len) {
    struct wat_module m DEFER(wat_module_done);
    struct wat_diags diags = {0};
    if (wat_encode(text, strlen(text), spec, &m, &diags) < 0)
        fail_msg("%s: %s", text, diags.list[0].text);
    assert_int_equal(m.binary.len, len);
    assert_memory_equal(m.binary.data, bytes, len);
}

#define ASSERT_BYTES(text, literal) assert_bytes(text, 30, literal, sizeof(literal) - 1)
#define HEADER "\0asm\1\0\0\0"

/* The first error's text must start so, and stand at line:col. */
static void assert_error(const char *text, int spec, unsigned line, unsigned col,
                         const char *start) {
    struct wat_module m DEFER(wat_module_done);
    struct wat_diags diags = {0};
    if (wat_encode(text, strlen(text), spec, &m, &diags) == 0)
        fail_msg("accepted: %s", text);
    struct wat_line l = wat_line_at(text, strlen(text), diags.list[0].pos);
    if (strncmp(diags.list[0].text, start, strlen(start)) != 0)
        fail_msg("%s: '%s', expected '%s'", text, diags.list[0].text, start);
    if (l.line != line || l.col != col)
        fail_msg("%s: at %u:%u, expected %u:%u", text, l.line, l.col, line, col);
}

static void an_empty_text_is_an_empty_module(void **state) {
    (void)state;
    ASSERT_BYTES("", HEADER);
    ASSERT_BYTES("(module)", HEADER);
    ASSERT_BYTES("(module $name (; nothing (; at ;) all ;) ) ;; end", HEADER);
}

static void flat_and_folded_forms_give_the_same_bytes(void **state) {
    (void)state;
    static const char bytes[] = HEADER "\1\6\1\x60\1\x7f\1\x7f"
                                       "\3\2\1\0"
                                       "\12\16\1\14\0\x20\0\4\x7f\x41\1\5\x41\2\x0b\x0b";
    ASSERT_BYTES("(func (param i32) (result i32) local.get 0 if (result i32) i32.const 1 else "
                 "i32.const 2 end)",
                 bytes);
    ASSERT_BYTES("(module (func (param i32) (result i32) (if (result i32) (local.get 0) "
                 "(then (i32.const 1)) (else (i32.const 2)))))",
                 bytes);
}

static void names_inline_exports_and_forward_references_resolve(void **state) {
    (void)state;
    ASSERT_BYTES("(func (export \"a\") (call $b)) (func $b)",
                 HEADER "\1\4\1\x60\0\0"
                        "\3\3\2\0\0"
                        "\7\5\1\1a\0\0"
                        "\12\11\2\4\0\x10\1\x0b\2\0\x0b"
                        "\0\13\4name\1\4\1\1\1b");
}

static void quoted_identifiers_equal_plain_ones(void **state) {
    (void)state;
    ASSERT_BYTES("(global $\"\\61b\" i32 (i32.const 1)) (export \"x\" (global $ab))",
                 HEADER "\6\6\1\x7f\0\x41\1\x0b"
                        "\7\5\1\1x\3\0");
}

static void implicit_types_come_after_explicit_ones(void **state) {
    (void)state;
    ASSERT_BYTES("(func (result i64) (i64.const -1)) (type (func)) (func)",
                 HEADER "\1\10\2\x60\0\0\x60\0\1\x7e"
                        "\3\3\2\1\0"
                        "\12\11\2\4\0\x42\x7f\x0b\2\0\x0b");
}

static void segments_with_memory_and_table_abbreviations(void **state) {
    (void)state;
    ASSERT_BYTES("(memory (data \"hi\"))", HEADER "\5\4\1\1\1\1"
                                                  "\13\10\1\0\x41\0\x0b\2hi");
    ASSERT_BYTES("(table funcref (elem $f)) (func $f)", HEADER "\1\4\1\x60\0\0"
                                                               "\3\2\1\0"
                                                               "\4\5\1\x70\1\1\1"
                                                               "\11\7\1\0\x41\0\x0b\1\0"
                                                               "\12\4\1\2\0\x0b"
                                                               "\0\13\4name\1\4\1\0\1f");
}

static void the_level_decides_the_grammar(void **state) {
    (void)state;
    assert_error("(func (result externref) unreachable)", 10, 1, 15, "unexpected token");
    assert_error("(func (drop (ref.null any)))", 20, 1, 23, "unexpected token");
    assert_error("(tag)", 20, 1, 2, "unknown operator `tag`");
    assert_error("(memory i64 1)", 20, 1, 9, "unexpected token `i64`");
    assert_error("(@a) (module)", 20, 1, 2, "unknown operator");
    ASSERT_BYTES("(@a whatever (you \"write\")) (module)", HEADER);
}

static void errors_point_at_their_place(void **state) {
    (void)state;
    assert_error("(module\n  (func\n    i32.addd))", 30, 3, 5, "unknown operator `i32.addd`");
    assert_error("(func (i32.const 4294967296))", 30, 1, 18, "i32 constant out of range");
    assert_error("(func (call $f))", 30, 1, 13, "unknown func $f");
    assert_error("(func $f) (func $f)", 30, 1, 17, "duplicate func $f");
    assert_error("(func block $a end $b)", 30, 1, 20, "mismatching label $b");
    assert_error("(func block)", 30, 1, 7, "unexpected token `)`: this `block` has no `end`");
    assert_error("(func (if (i32.const 1)))", 30, 1, 24, "unexpected token `)`: expected `(then");
    assert_error("(func (i32.load align=3 (i32.const 0)))", 30, 1, 17, "alignment must be");
    assert_error("(module (func", 30, 1, 9, "unexpected end of the text");
    assert_error("(module))", 30, 1, 9, "unexpected token `)`");
    assert_error("(func) (import \"a\" \"b\" (func))", 30, 1, 9, "import after");
    assert_error("(start 0) (start 0)", 30, 1, 12, "multiple start");
    assert_error("(type $t (func)) (func (type $t) (param i32))", 30, 1, 30,
                 "inline function type");
    assert_error("(func (result i32) (param i32))", 30, 1, 21, "result before parameter");
    assert_error("(func \"\\q\")", 30, 1, 8, "illegal escape");
    assert_error("(; (; ;)", 30, 1, 1, "unclosed comment");
    assert_error("\xff", 30, 1, 1, "malformed UTF-8");
}

static void several_errors_are_found_at_once(void **state) {
    (void)state;
    static const char text[] = "(func (call $a) (local.get $b))\n(func (nopp))\n(global i33 (nop))";
    struct wat_module m DEFER(wat_module_done);
    struct wat_diags diags = {0};
    assert_int_equal(wat_encode(text, sizeof(text) - 1, 30, &m, &diags), -1);
    assert_int_equal(diags.count, 4);
    assert_string_equal(diags.list[2].hint, "did you mean `nop`?");
}

static void hints_name_what_was_meant(void **state) {
    (void)state;
    static const struct {
        const char *text, *hint;
    } cases[] = {
        {"(func (get_local 0))", "use local.get"},
        {"(func (i32.div (i32.const 1) (i32.const 2)))",
         "choose how numbers are read: `i32.div_s` (signed) or `i32.div_u` (unsigned)"},
        {"(func $fetch) (func (call $fecth))", "did you mean $fetch?"},
        {"(global $g i32 (i32.const 0)) (func (call $g))", "$g is a global, not a function"},
        {"(func (local $count i32) (drop (local.get $coumt)))", "did you mean $count?"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct wat_module m DEFER(wat_module_done);
        struct wat_diags diags = {0};
        assert_int_equal(wat_encode(cases[i].text, strlen(cases[i].text), 30, &m, &diags), -1);
        assert_string_equal(diags.list[0].hint, cases[i].hint);
    }
}

static void a_diagnostic_shows_line_and_caret(void **state) {
    (void)state;
    static const char text[] = "(module\n\t(func (cal $f))) ;; é";
    struct wat_module m DEFER(wat_module_done);
    struct wat_diags diags = {0};
    struct buf out DEFER(buf_done) = BUF(1000);
    assert_int_equal(wat_encode(text, sizeof(text) - 1, 30, &m, &diags), -1);
    assert_true(wat_diag_print(&diags.list[0], "f.wat", text, sizeof(text) - 1, &out));
    assert_string_equal(out.data, "f.wat:2:9: error: unknown operator `cal`\n"
                                  "    2 |  (func (cal $f))) ;; é\n"
                                  "      |         ^^^\n"
                                  "  hint: did you mean `call`?\n");
}

static void offsets_lead_back_to_the_text(void **state) {
    (void)state;
    static const char text[] = "(func (param i32)\n  (drop\n    (i32.add (local.get 0)\n  (nop))))";
    struct wat_module m DEFER(wat_module_done);
    struct wat_diags diags = {0};
    assert_int_equal(wat_encode(text, sizeof(text) - 1, 30, &m, &diags), 0);
    const char *add = memchr(m.binary.data, 0x6a, m.binary.len);
    assert_non_null(add);
    uint32_t pos = wat_locate(&m, (uint32_t)(add - m.binary.data));
    assert_memory_equal(text + pos, "i32.add", 7);
}

/* The native stack must not grow with the text. */
static void deep_nesting_is_no_danger(void **state) {
    (void)state;
    enum { DEPTH = 200000 };
    struct buf text DEFER(buf_done) = BUF(8 << 20);
    struct wat_module m DEFER(wat_module_done);
    struct wat_diags diags = {0};
    assert_true(buf_addf(&text, "(func "));
    for (int i = 0; i < DEPTH; i++)
        assert_true(buf_addf(&text, "(block $l%d ", i % 7));
    for (int i = 0; i <= DEPTH; i++)
        assert_true(buf_addf(&text, ")"));
    assert_int_equal(wat_encode(text.data, text.len, 30, &m, &diags), 0);
}

UNIT_MAIN(cmocka_unit_test(an_empty_text_is_an_empty_module),
          cmocka_unit_test(flat_and_folded_forms_give_the_same_bytes),
          cmocka_unit_test(names_inline_exports_and_forward_references_resolve),
          cmocka_unit_test(quoted_identifiers_equal_plain_ones),
          cmocka_unit_test(implicit_types_come_after_explicit_ones),
          cmocka_unit_test(segments_with_memory_and_table_abbreviations),
          cmocka_unit_test(the_level_decides_the_grammar),
          cmocka_unit_test(errors_point_at_their_place),
          cmocka_unit_test(several_errors_are_found_at_once),
          cmocka_unit_test(hints_name_what_was_meant),
          cmocka_unit_test(a_diagnostic_shows_line_and_caret),
          cmocka_unit_test(offsets_lead_back_to_the_text),
          cmocka_unit_test(deep_nesting_is_no_danger))
