"""Wrong programs of the kind that language models write, and everything that `cell check` says about each.

Each entry has the program, then its errors as "line:column: message" with the hint after " | ".
CARREL_CELL names the worker program.
"""
import os
import re
import subprocess

import pytest

CELL = os.environ["CARREL_CELL"]

WRONG = {
    "call_with_too_few": ('''(module
  (func $add (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1)))
  (func (export "f") (result i32)
    (call $add (i32.const 1))))''', [
        "4:6: type mismatch: `call $add` takes (i32 i32), 1 given | missing: (i32)",
    ]),
    "call_with_too_many": ('''(module
  (func $neg (param i32) (result i32) (i32.sub (i32.const 0) (local.get 0)))
  (func (export "f") (result i32)
    (call $neg (i32.const 1) (i32.const 2))))''', [
        "4:44: type mismatch: the function must end with (i32), (i32 i32) is on the stack | "
        "`call $neg` at line 4 takes 1 operand, 2 given",
    ]),
    "operator_with_too_many": ('''(module
  (func (export "f") (result i32)
    (i32.add (i32.const 1) (i32.const 2) (i32.const 3))))''', [
        "3:56: type mismatch: the function must end with (i32), (i32 i32) is on the stack | "
        "`i32.add` at line 3 takes 2 operands, 3 given",
    ]),
    "call_with_wrong_type": ('''(module
  (func $sqrt (param f64) (result f64) (f64.sqrt (local.get 0)))
  (func (export "f") (param $n i32) (result f64)
    (call $sqrt (local.get $n))))''', [
        "4:6: type mismatch: `call $sqrt` takes (f64), (i32) given | "
        "convert with `f64.convert_i32_s` (or `_u`)",
    ]),
    "bare_operands": ('''(module
  (func (export "add") (param $a i32) (param $b i32) (result i32)
    (i32.add $a $b)))''', [
        "3:14: unexpected token `$a`: expected `)` or an operand in parentheses | "
        "an operand is an instruction in parentheses: `(local.get $a)`",
    ]),
    "bare_number": ('''(module
  (func (export "inc") (param $a i64) (result i64)
    (i64.add (local.get $a) 1)))''', [
        "3:29: unexpected token `1`: expected `)` or an operand in parentheses | "
        "an operand is an instruction in parentheses: `(i64.const 1)`",
    ]),
    "bare_flat_inside_fold": ('''(module
  (func (export "inc") (param $a i32) (result i32)
    (i32.add local.get $a i32.const 1)))''', [
        "3:14: unexpected token `local.get`: expected `)` or an operand in parentheses | "
        "an operand is an instruction in parentheses: `(local.get …)`; without parentheses, operands come before `i32.add`",
    ]),
    "set_to_bare_number": ('''(module
  (func (export "f") (local $i i32)
    (local.set $i 0)))''', [
        "3:19: unexpected token `0`: expected `)` or an operand in parentheses | "
        "an operand is an instruction in parentheses: `(i32.const 0)`",
    ]),
    "constant_of_a_name": ('''(module
  (func (export "f") (param $i i32) (result i32)
    (i32.const $i)))''', [
        "3:16: unknown operator or unexpected token `$i`: expected an i32 number | "
        "an operand is an instruction in parentheses: `(local.get $i)`",
    ]),
    "constant_of_an_expression": ('''(module
  (func (export "f") (result i32)
    (i32.const (i32.add (i32.const 1) (i32.const 2)))))''', [
        "3:16: unknown operator or unexpected token `(`: expected an i32 number | "
        "a constant is a number; for a computed value, leave `i32.const` out",
    ]),
    "bare_name_as_instruction": ('''(module
  (func (export "f") (param $x i32) (result i32)
    $x))''', [
        "3:5: unexpected token `$x`: expected an instruction | "
        "an operand is an instruction of its own: `local.get $x`",
    ]),
    "unknown_label": ('''(module
  (func (export "f")
    (block $done
      (loop $again
        (br $continue)))))''', [
        "5:13: unknown label $continue | labels in scope, innermost first: $again, $done",
    ]),
    "label_without_blocks": ('''(module
  (func (export "f")
    (br $exit)))''', [
        "3:9: unknown label $exit | no block is around this; `return` leaves the function",
    ]),
    "label_of_unnamed_blocks": ('''(module
  (func (export "f")
    (loop (br $loop))))''', [
        "3:15: unknown label $loop | "
        "the blocks around this have no names: add one, `(block $name …)`, or use a number; 0 is the innermost",
    ]),
    "slash_comments": ('''(module
  // adds two numbers (both i32)
  (func (export "add") (param i32 i32) (result i32)
    (i32.add (local.get 0) (local.get 1)))) // don't''', [
        "2:3: unexpected token `//` | comments begin with `;;`, or stand between `(;` and `;)`",
    ]),
    "block_comment": ('''(module
  /* adds (two
     numbers */
  (func (export "f")))''', [
        "2:3: unexpected token `/*` | comments begin with `;;`, or stand between `(;` and `;)`",
    ]),
    "single_semicolon": ('''(module
  ; adds two numbers
  (func (export "f")))''', [
        "2:3: unexpected token `;` | comments begin with `;;`, or stand between `(;` and `;)`",
    ]),
    "hash_comment": ('''(module
  # adds two numbers
  (func (export "f")))''', [
        "2:3: unexpected token `#` | comments begin with `;;`, or stand between `(;` and `;)`",
    ]),
    "duplicate_function": ('''(module
  (func $f)
  (func $g)
  (func $f))''', [
        "4:9: duplicate func $f | it is defined at line 2 already: rename one of them",
    ]),
    "duplicate_local": ('''(module
  (func $f (param $i i32)
    (local $i i32)))''', [
        "3:12: duplicate local $i | it is defined at line 2 already: rename one of them",
    ]),
    "type_after_condition": ('''(module
  (func (export "max") (param $a i32) (param $b i32) (result i32)
    (if (i32.gt_s (local.get $a) (local.get $b)) (result i32)
      (then (local.get $a))
      (else (local.get $b)))))''', [
        "3:51: unexpected token `result`: expected the condition or `(then …)` | "
        "the type comes before the condition: `(if (result i32) (condition) (then …) (else …))`",
    ]),
    "if_without_result": ('''(module
  (func (export "max") (param $a i32) (param $b i32) (result i32)
    (if (i32.gt_s (local.get $a) (local.get $b))
      (then (local.get $a))
      (else (local.get $b)))))''', [
        "5:7: type mismatch: the if must end with nothing, (i32) is on the stack | "
        "declare the result, `(if (result i32) …)`, or `drop` it",
        "5:28: type mismatch: the if must end with nothing, (i32) is on the stack | "
        "declare the result, `(if (result i32) …)`, or `drop` it",
    ]),
    "if_without_then": ('''(module
  (func (export "f") (param $a i32) (result i32)
    (if (result i32) (local.get $a) (i32.const 1) (i32.const 2))))''', [
        "3:64: unexpected token `)`: expected `(then …)` | "
        "a folded if is `(if (condition) (then …) (else …))`",
    ]),
    "if_without_else": ('''(module
  (func (export "f") (param $a i32) (result i32)
    (if (result i32) (local.get $a) (then (i32.const 1)))))''', [
        "3:57: type mismatch: if without else must leave what it takes | "
        "an if with a result needs an else: `(else …)` with the same types",
    ]),
    "unclosed_statement": ('''(module
  (func (export "count") (param $n i32) (result i32)
    (local $i i32)
    (block $done
      (loop $again
        (br_if $done (i32.ge_s (local.get $i) (local.get $n))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $again)))
    (local.get $i)))''', [
        "6:9: unclosed `(br_if`: it is still open at line 7, where `(local.set` begins | "
        "add 1 `)` at the end of line 6",
    ]),
    "unclosed_function": ('''(module
  (func $one (result i32)
    (i32.const 1)
  (func $two (result i32)
    (i32.const 2))
  (export "two" (func $two)))''', [
        "2:3: unclosed `(func`: it is still open at line 4, where `(func` begins | "
        "add 1 `)` at the end of line 3",
    ]),
    "unclosed_module": ('''(module
  (func (export "one") (result i32)
    (i32.const 1))
''', [
        "1:1: unexpected end of the text: this `(` is never closed | add the missing `)`",
    ]),
    "closed_too_early": ('''(module
  (func $one (result i32)
    (i32.const 1)))
  (func $two (result i32)
    (i32.const 2))
)''', [
        "3:19: unexpected token `)`: it closes the module of line 1, but more text follows | "
        "remove one `)` here or earlier in the field that begins at line 2",
    ]),
    "result_missing": ('''(module
  (func (export "f") (result i32)
    (local $x i32)
    (local.set $x (i32.const 1))))''', [
        "4:33: type mismatch: the function must end with (i32), nothing is on the stack | "
        "end the function with an instruction that leaves the missing value",
    ]),
    "result_not_declared": ('''(module
  (func (export "f")
    (i32.const 1)))''', [
        "3:18: type mismatch: the function must end with nothing, (i32) is on the stack | "
        "declare the result, `(func … (result i32) …)`, or `drop` it",
    ]),
    "value_not_dropped": ('''(module
  (func $g (result i32) (i32.const 1))
  (func (export "f") (result i32)
    (call $g)
    (i32.const 2)))''', [
        "5:18: type mismatch: the function must end with (i32), (i32 i32) is on the stack | "
        "`drop` the values that are not used: 1 too many",
    ]),
    "mixed_integers": ('''(module
  (func (export "f") (param $n i32) (result i64)
    (i64.mul (local.get $n) (i64.const 2))))''', [
        "3:6: type mismatch: `i64.mul` takes (i64 i64), (i32 i64) given | "
        "convert with `i64.extend_i32_s` (or `_u`)",
    ]),
    "float_in_integer_loop": ('''(module
  (func (export "f") (param $x f64) (result i32)
    (i32.add (local.get $x) (i32.const 1))))''', [
        "3:6: type mismatch: `i32.add` takes (i32 i32), (f64 i32) given | "
        "convert with `i32.trunc_sat_f64_s` (or `_u`)",
    ]),
    "store_without_value": ('''(module (memory 1)
  (func (export "f")
    (i32.store (i32.const 0))))''', [
        "3:6: type mismatch: `i32.store` takes (i32 i32), 1 given | missing: (i32)",
    ]),
    "load_without_memory": ('''(module
  (func (export "f") (result i32)
    (i32.load (i32.const 0))))''', [
        "3:6: unknown memory 0 | declare one: `(memory 1)`, in pages of 64 KiB",
    ]),
    "old_names": ('''(module
  (func (export "f") (param $x i32) (result i32)
    (get_local $x)))''', [
        "3:6: unknown operator `get_local` | use local.get",
    ]),
    "sign_missing": ('''(module
  (func (export "f") (param $x i32) (result i32)
    (i32.lt (local.get $x) (i32.const 0))))''', [
        "3:6: unknown operator `i32.lt` | "
        "choose how numbers are read: `i32.lt_s` (signed) or `i32.lt_u` (unsigned)",
    ]),
    "types_of_other_languages": ('''(module
  (func (export "f") (param $x int) (result bool)
    (i32.eqz (local.get $x))))''', [
        "2:32: unexpected token `int`: expected a value type like `i32` or `funcref` | use i32",
        "2:45: unexpected token `bool`: expected a value type like `i32` or `funcref` | use i32",
    ]),
    "name_without_dollar": ('''(module
  (func $helper)
  (func (export "f") (call helper)))''', [
        "3:28: unexpected token `helper`: expected a function index | names start with `$`: `$helper`",
    ]),
    "immutable_global": ('''(module
  (global $count i32 (i32.const 0))
  (func (export "f")
    (global.set $count (i32.const 1))))''', [
        "4:6: immutable global: global 0 cannot be set | "
        "declare the global mutable: `(global $g (mut i32) (i32.const 0))`",
    ]),
    "loop_with_while": ('''(module
  (func (export "f") (param $n i32)
    (while (local.get $n)
      (local.set $n (i32.sub (local.get $n) (i32.const 1))))))''', [
        "3:6: unknown operator `while` | use `(loop $l … (br_if $l (condition)))`",
    ]),
    "local_after_instruction": ('''(module
  (func (export "f") (result i32)
    (nop)
    (local $x i32)
    (local.get $x)))''', [
        "4:6: unknown operator `local` | use `(local …)` only before the first instruction",
        "5:16: unknown local $x",
    ]),
    "flat_block_without_end": ('''(module
  (func (export "f")
    block $a
      br $a))''', [
        "3:5: unexpected token `)`: this `block` has no `end` | "
        "add `end`, or write the block folded: `(block …)`",
    ]),
    "all_errors_of_text": ('''(module
  (func (export "f") (param $n i32) (result i32)
    (local $sum i32)
    (local.set $total (i32.const 0))
    (loop $l
      (local.set $sum (i32.add $sum (local.get $n)))
      (br_if $loop (i32.gt (local.get $n) (i32.const 0))))
    (call $show (local.get $sum))
    (local.get $sum)))''', [
        "4:16: unknown local $total | parameters and locals with a name: $n, $sum",
        "6:32: unexpected token `$sum`: expected `)` or an operand in parentheses | "
        "an operand is an instruction in parentheses: `(local.get $sum)`",
        "7:14: unknown label $loop | labels in scope, innermost first: $l",
        "7:21: unknown operator `i32.gt` | "
        "choose how numbers are read: `i32.gt_s` (signed) or `i32.gt_u` (unsigned)",
        "8:11: unknown func $show",
    ]),
    "all_errors_of_types": ('''(module
  (func $log (param i32))
  (func (export "f") (param $n i64) (result i32)
    (call $log (local.get $n))
    (if (local.get $n) (then (call $log)))
    (drop (i64.add (local.get $n) (i32.const 1)))
    (local.get $n))
  (func (export "g") (result f64)
    (f32.const 1)))''', [
        "4:6: type mismatch: `call $log` takes (i32), (i64) given | convert with `i32.wrap_i64`",
        "5:6: type mismatch: `if` takes (i32), (i64) given | convert with `i32.wrap_i64`",
        "5:31: type mismatch: `call $log` takes (i32), 0 given | missing: (i32)",
        "6:12: type mismatch: `i64.add` takes (i64 i64), (i64 i32) given | "
        "convert with `i64.extend_i32_s` (or `_u`)",
        "7:19: type mismatch: the function must end with (i32), (i64) is on the stack | "
        "convert with `i32.wrap_i64`",
        "9:18: type mismatch: the function must end with (f64), (f32) is on the stack | "
        "convert with `f64.promote_f32`",
    ]),
    "return_without_value": ('''(module
  (func (export "f") (param $n i32) (result i32)
    (if (local.get $n) (then (return)))
    (i32.const 1)))''', [
        "3:31: type mismatch: `return` takes (i32), 0 given | missing: (i32)",
    ]),
    "string_argument": ("""(module
  (import 'env' 'print' (func $print (param i32))))""", [
        "2:11: unexpected token `'env'`: expected a name in quotes | write strings in double quotes",
    ]),
    "unknown_field": ('''(module
  (function $f (nop))
  (func (export "f") (call $g)))''', [
        "2:4: unknown operator `function`: expected a module field | "
        "fields are type, import, func, table, memory, global, export, start, elem, data, tag, rec",
    ]),
    "unknown_function_lists_names": ('''(module
  (func $add (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1)))
  (func (export "f") (result i32) (call $sum (i32.const 1) (i32.const 2))))''', [
        "3:41: unknown func $sum | functions with a name: $add",
    ]),
    "unknown_local_lists_names": ('''(module
  (func (export "f") (param $count i32) (result i32) (local.get $cnt)))''', [
        "2:65: unknown local $cnt | parameters and locals with a name: $count",
    ]),
    "comma_between_parameters": ('''(module
  (func (export "f") (param $a i32, $b i32) (result i32) (local.get $a)))''', [
        "2:32: unexpected token `i32,`: expected a value type like `i32` or `funcref` | "
        "remove the comma: blanks separate words",
    ]),
    "two_names_of_one_type": ('''(module
  (func (export "add") (param $a $b i32) (result i32) (i32.add (local.get $a) (local.get $b))))''', [
        "2:34: unexpected token `$b`: expected a value type like `i32` or `funcref` | "
        "one name in each: `(param $a i32) (param $b i32)`",
    ]),
    "two_names_in_one_param": ('''(module
  (func (export "add") (param $a i32 $b i32) (result i32) (i32.add (local.get $a) (local.get $b))))''', [
        "2:38: unexpected token `$b`: expected `)` | one name in each: `(param $a i32) (param $b i32)`",
    ]),
    "infix_operator": ('''(module
  (func (export "f") (param $a i32) (param $b i32) (result i32) (local.get $a) + (local.get $b)))''', [
        "2:80: unexpected token `+`: expected an instruction | "
        "operators are instructions and come first: `(i32.add …)`",
    ]),
    "assignment_sign": ('''(module
  (func (export "f") (param $a i32) (result i32) (local.set $a = (i32.const 4)) (local.get $a)))''', [
        "2:64: unexpected token `=`: expected `)` or an operand in parentheses | "
        "values are set by instructions: `(local.set $x (i32.const 1))`",
    ]),
    "else_after_the_if": ('''(module
  (func (export "f") (param $a i32) (result i32)
    (if (result i32) (local.get $a) (then (i32.const 1))) (else (i32.const 2))))''', [
        "3:60: unknown operator `else` | "
        "use `(if (condition) (then …) (else …))`: else stands only inside a folded if",
    ]),
    "condition_before_label": ('''(module
  (func (export "f") (param $n i32)
    (loop $l (br_if (i32.lt_s (local.get $n) (i32.const 3)) $l))))''', [
        "3:21: unexpected token `(`: expected a label | the label comes first: `(br_if $label (condition))`",
    ]),
    "fraction_in_integer": ('''(module (func (export "f") (result i32) (i32.const 3.5)))''', [
        "1:52: unknown operator or unexpected token `3.5`: expected an i32 number | "
        "integers have no fractions: use f64 for the value and its instructions",
    ]),
    "number_too_large": ('''(module (func (export "f") (result i32) (i32.const 4294967296)))''', [
        "1:52: i32 constant out of range: 4294967296 | larger numbers are i64",
    ]),
    "name_of_memory": ('''(module (memory "memory" 1))''', [
        "1:17: unexpected token `\"memory\"`: expected a size | "
        "a memory with a name for the host is `(memory (export \"m\") 1)`",
    ]),
    "elem_without_offset": ('''(module (table 1 funcref) (func $a) (elem $a))''', [
        "1:45: unexpected token `)`: expected `func` or a reference type like `funcref` | "
        "say where in the table: `(elem (i32.const 0) $f)`",
    ]),
    "code_fence": ('''```wat
(module (func (export "f") (result i32) (i32.const 1)))
```''', [
        "1:1: unexpected token ````wat`: expected a module field like `(func …)` | "
        "remove the ``` lines: only the program is read",
        "2:2: unknown operator `module`: expected a module field | `(module` must be the first word of the text",
        "3:1: unexpected token `````: expected a module field like `(func …)` | "
        "remove the ``` lines: only the program is read",
    ]),
    "prose_before_module": ('''Here is the program:
(module (func (export "f") (result i32) (i32.const 1)))''', [
        "1:1: unexpected token `Here`: expected a module field like `(func …)` | "
        "only the program is read: remove text that is not part of it",
        "1:6: unexpected token `is`: expected a module field like `(func …)` | "
        "only the program is read: remove text that is not part of it",
        "1:9: unexpected token `the`: expected a module field like `(func …)` | "
        "only the program is read: remove text that is not part of it",
        "1:13: unexpected token `program:`: expected a module field like `(func …)` | "
        "only the program is read: remove text that is not part of it",
        "2:2: unknown operator `module`: expected a module field | `(module` must be the first word of the text",
    ]),
    "two_modules": ('''(module (func (export "f") (result i32) (i32.const 1)))
(module (func (export "g") (result i32) (i32.const 1)))''', [
        "1:55: unexpected token `)`: it closes the module of line 1, but more text follows | "
        "a text has one module: put all fields into the first",
    ]),
    "let": ('''(module (func (export "f") (result i32) (let $x (i32.const 1)) (local.get $x)))''', [
        "1:42: unknown operator `let` | use `(local $x i32)` before the first instruction, then `(local.set $x …)`",
        "1:75: unknown local $x",
    ]),
    "offset_after_operand": ('''(module (memory 1) (func (export "f") (i32.store (i32.const 0) offset=4 (i32.const 7))))''', [
        "1:64: unexpected token `offset=4`: expected `)` or an operand in parentheses | "
        "`offset=` and its number are one word, right after `i32.store`",
    ]),
    "offset_with_colon": ('''(module (memory 1) (func (export "f") (result i32) (i32.load offset:4 (i32.const 0))))''', [
        "1:62: unexpected token `offset:4`: expected `)` or an operand in parentheses | "
        "`offset=` and its number are one word, right after `i32.load`",
    ]),
    "mut_without_parentheses": ('''(module (global $g i32 mut (i32.const 0)))''', [
        "1:24: unknown operator `mut` | use `(mut i32)` in parentheses, in place of the type",
    ]),
    "global_without_value": ('''(module (global $g (mut i32)))''', [
        "1:29: type mismatch in constant expression | "
        "give a value of the declared type: `(global $g (mut i32) (i32.const 0))`",
    ]),
    "drop_of_nothing": ('''(module (func (export "f") (drop)))''', [
        "1:29: type mismatch: drop takes an operand, 0 given | nothing is on the stack here: remove the drop",
    ]),
    "constant_of_a_string": ('''(module (func (export "f") (result i32) (i32.const "a")))''', [
        "1:52: unknown operator or unexpected token `\"a\"`: expected an i32 number | "
        "put text into memory, `(data (i32.const 0) \"a\")`, and use its address",
    ]),
    "constant_of_a_character": ('''(module (func (export "f") (result i32) (i32.const 'a')))''', [
        "1:52: unknown operator or unexpected token `'a'`: expected an i32 number | "
        "a character is its code: `i32.const 97`",
    ]),
    "constant_true": ('''(module (func (export "f") (result i32) (i32.const true)))''', [
        "1:52: unknown operator or unexpected token `true`: expected an i32 number | true is 1, false is 0",
    ]),
    "nested_function": ('''(module (func (export "f") (result i32) (func $g (result i32) (i32.const 1)) (call $g)))''', [
        "1:42: unknown operator `func` | use `(func …)` only in the module: functions do not nest",
        "1:51: unknown operator `result` | use `(result …)` only before locals and instructions",
        "1:84: unknown func $g",
    ]),
    "semicolons_between_instructions": ('''(module (func (export "f") (result i32) i32.const 1; i32.const 2; i32.add))''', [
        "1:51: unknown operator or unexpected token `1;`: expected an i32 number | "
        "remove the `;`: blanks separate instructions",
        "1:64: unknown operator or unexpected token `2;`: expected an i32 number | "
        "remove the `;`: blanks separate instructions",
    ]),
    "for_loop": ('''(module (func (export "f") (local $i i32) (for (local.set $i (i32.const 0)) )))''', [
        "1:44: unknown operator `for` | use `(loop $l … (br_if $l (condition)))`",
    ]),
    "increment": ('''(module (func (export "f") (param i32) (result i32) (i32.inc (local.get 0))))''', [
        "1:54: unknown operator `i32.inc` | use i32.add with (i32.const 1)",
    ]),
    "increment_of_a_local": ('''(module (func (export "f") (local $i i32) (local.inc $i)))''', [
        "1:44: unknown operator `local.inc` | use `(local.set $i (i32.add (local.get $i) (i32.const 1)))`",
    ]),
    "power": ('''(module (func (export "f") (result f64) (f64.pow (f64.const 2) (f64.const 3))))''', [
        "1:42: unknown operator `f64.pow` | use a function of your own: no instruction computes powers",
    ]),
    "float_remainder": ('''(module (func (export "f") (result f64) (f64.rem (f64.const 2) (f64.const 3))))''', [
        "1:42: unknown operator `f64.rem` | use f64.div, f64.trunc, f64.mul and f64.sub: floats have no remainder",
    ]),
    "string_constant": ('''(module (func (export "f") (string.const "a") drop))''', [
        "1:29: unknown operator `string.const` | use `(data (i32.const 0) \"…\")`, and its address and length",
    ]),
    "immutable_array": ('''(module (type $a (array i32)) (func (export "f") (param (ref $a)) (array.set $a (local.get 0) (i32.const 0) (i32.const 1))))''', [
        "1:68: immutable array | declare its elements mutable: `(array (mut i32))`",
    ]),
    "unknown_struct_field": ('''(module (type $p (struct (field $x i32))) (func (export "f") (param (ref $p)) (result i32) (struct.get $p $y (local.get 0))))''', [
        "1:107: unknown field $y of type 0 | a field has a name if the type gives it one: `(field $y i32)`",
    ]),
    "typographic_quotes": ('''(module (func (export “f”) (result i32) (i32.const 1)))''', [
        "1:23: illegal character | use straight quotes: \"",
    ]),
    "typographic_minus": ('''(module (func (export "f") (result i32) (i32.const −1)))''', [
        "1:52: illegal character | use an ASCII minus: -",
    ]),
    "ellipsis": ('''(module (func (export "f") (result i32) ... (i32.const 1)))''', [
        "1:41: unexpected token `...`: expected an instruction | write the text that `...` stands for",
    ]),
}


def said(text, tmp_path):
    (tmp_path / "p.wat").write_text(text)
    done = subprocess.run([CELL, "check", "p.wat"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done
    found = re.findall(r"^p\.wat:(\d+:\d+: )error: (.*)\n.*\n.*\n(?:  hint: (.*)\n)?", done.stderr, re.M)
    return [place + message + (f" | {hint}" if hint else "") for place, message, hint in found]


@pytest.mark.parametrize("name", WRONG)
def test_wrong_program(name, tmp_path):
    text, errors = WRONG[name]
    assert said(text, tmp_path) == errors


def test_there_are_forty_programs():
    assert len(WRONG) >= 40
