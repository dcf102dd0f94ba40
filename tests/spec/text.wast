;; The text format: every way to write the same thing, and what must be refused.

;; Folded, flat and mixed forms compute the same.
(module
  (func $fac (export "fac-flat") (param $n i64) (result i64)
    local.get $n
    i64.eqz
    if $done (result i64)
      i64.const 1
    else $done
      local.get $n
      local.get $n
      i64.const 1
      i64.sub
      call $fac
      i64.mul
    end $done)
  (func (export "fac-folded") (param $n i64) (result i64)
    (local $r i64)
    (local.set $r (i64.const 1))
    (block $out
      (loop $again
        (br_if $out (i64.eqz (local.get $n)))
        (local.set $r (i64.mul (local.get $r) (local.get $n)))
        (local.set $n (i64.sub (local.get $n) (i64.const 1)))
        (br $again)))
    (local.get $r)))
(assert_return (invoke "fac-flat" (i64.const 20)) (i64.const 2432902008176640000))
(assert_return (invoke "fac-folded" (i64.const 20)) (i64.const 2_432_902_008_176_640_000))

;; Labels shadow, and count from the inside.
(module
  (func (export "shadow") (param i32) (result i32)
    (block $l (result i32)
      (drop (block $l (result i32) (br_if $l (i32.const 1) (local.get 0)) (drop) (i32.const 2)))
      (br $l (i32.const 3))))
  (func (export "table") (param i32) (result i32)
    (block $c
      (block $b
        (block $a (br_table $a 1 $c (local.get 0)))
        (return (i32.const 10)))
      (return (i32.const 11)))
    (i32.const 12)))
(assert_return (invoke "shadow" (i32.const 1)) (i32.const 3))
(assert_return (invoke "table" (i32.const 0)) (i32.const 10))
(assert_return (invoke "table" (i32.const 1)) (i32.const 11))
(assert_return (invoke "table" (i32.const 2)) (i32.const 12))

;; Abbreviations: inline imports and exports, data, elem, type uses by number and by name.
(module $lib
  (global (export "g") (export "h") i32 (i32.const 7))
  (memory (export "m") (data "ab" "\63\u{64}"))
  (table (export "t") funcref (elem $one (;first;) $two))
  (type $i (func (result i32)))
  (func $one (type $i) (i32.const 1))
  (func $two (type 0) (result i32) (i32.const 2)))
(register "lib" $lib)
(module
  (global $g (import "lib" "h") i32)
  (import "lib" "m" (memory 1))
  (table $t (import "lib" "t") 2 funcref)
  (func (export "g") (result i32) (global.get $g))
  (func (export "byte") (param i32) (result i32) (i32.load8_u (local.get 0)))
  (func (export "call") (param i32) (result i32)
    (call_indirect $t (result i32) (local.get 0))))
(assert_return (invoke "g") (i32.const 7))
(assert_return (get $lib "g") (i32.const 7))
(assert_return (invoke "byte" (i32.const 3)) (i32.const 0x64))
(assert_return (invoke "byte" (i32.const 4)) (i32.const 0))
(assert_return (invoke "call" (i32.const 1)) (i32.const 2))
(assert_trap (invoke "call" (i32.const 2)) "undefined element")

;; Numbers.
(module
  (func (export "half") (result f32) (f32.const 0x1.000001p0))
  (func (export "tiny") (result f64) (f64.const 2.4703282292062328e-324))
  (func (export "payload") (result i64) (i64.reinterpret_f64 (f64.const -nan:0x1_2345)))
  (func (export "lanes") (result v128) (v128.const f32x4 nan:0x1 -0 inf 0x1p-149)))
(assert_return (invoke "half") (f32.const 1))
(assert_return (invoke "tiny") (f64.const 5e-324))
(assert_return (invoke "payload") (i64.const 0xfff0000000012345))
(assert_return (invoke "lanes") (v128.const i32x4 0x7f800001 0x80000000 0x7f800000 1))

;; Refused as text.
(assert_malformed (module quote "(func (i32.const 1.5))") "unknown operator")
(assert_malformed (module quote "(func i32.const 0x1_)") "unknown operator")
(assert_malformed (module quote "(func $f) (func $f)") "duplicate func")
(assert_malformed (module quote "(func (local.get $nobody))") "unknown local")
(assert_malformed (module quote "(func (if (i32.const 0) (nop)))") "unexpected token")
(assert_malformed (module quote "(memory 1) (import \"a\" \"b\" (func))") "import after memory")
(assert_malformed (module quote "(func) \"string\"") "unexpected token")
(assert_malformed (module quote "(func (\"x\"))") "unexpected token")
;; Refused as a module.
(assert_invalid (module (func (result i32) (i64.const 1))) "type mismatch")
(assert_invalid (module (func (br 1))) "unknown label")
(assert_invalid (module (export "a" (func 0))) "unknown function")
(assert_invalid (module (func (export "a")) (func (export "a"))) "duplicate export name")
;; Refused when linked.
(assert_unlinkable (module (import "lib" "nothing" (func))) "unknown import")
(assert_unlinkable (module (import "lib" "g" (func))) "incompatible import type")
