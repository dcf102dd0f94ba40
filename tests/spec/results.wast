;; What the script runner itself must tell apart.

(module
  (func (export "canonical") (result f32) (f32.div (f32.const 0) (f32.const 0)))
  (func (export "arithmetic") (result f64) (f64.const nan:0x8_0000_0000_0001))
  (func (export "two") (result i32 i64) (i32.const 1) (i64.const 2))
  (func (export "none"))
  (func (export "null") (result funcref) (ref.null func))
  (func $f (export "func") (result funcref) (ref.func $f))
  (func (export "same") (param externref) (result externref) (local.get 0))
  (func $deep (export "deep") (call $deep))
  (func (export "trap") (unreachable)))

(assert_return (invoke "canonical") (f32.const nan:canonical))
(assert_return (invoke "canonical") (f32.const nan:arithmetic))
(assert_return (invoke "arithmetic") (f64.const nan:arithmetic))
(assert_return (invoke "two") (i32.const 1) (i64.const 2))
(assert_return (invoke "none"))
(assert_return (invoke "null") (ref.null func))
(assert_return (invoke "null") (ref.null))
(assert_return (invoke "func") (ref.func))
(assert_return (invoke "same" (ref.extern 5)) (ref.extern 5))
(assert_return (invoke "same" (ref.extern 5)) (ref.extern))
(assert_return (invoke "same" (ref.null extern)) (ref.null extern))
(assert_return (invoke "two") (either (i32.const 9) (i32.const 1)) (i64.const 2))
(assert_exhaustion (invoke "deep") "call stack exhausted")
(assert_trap (invoke "trap") "unreachable")
(invoke "none")

;; Definitions and instances: each instance has its own state.
(module definition $D
  (global $n (mut i32) (i32.const 0))
  (func (export "next") (result i32)
    (global.set $n (i32.add (global.get $n) (i32.const 1)))
    (global.get $n)))
(module instance $A $D)
(module instance $B $D)
(assert_return (invoke $A "next") (i32.const 1))
(assert_return (invoke $A "next") (i32.const 2))
(assert_return (invoke $B "next") (i32.const 1))

;; Exceptions that nobody catches.
(module
  (tag $e (param i32))
  (func (export "throw") (throw $e (i32.const 1)))
  (func (export "catch") (result i32)
    (block $h (result i32)
      (try_table (catch $e $h) (throw $e (i32.const 42)))
      (i32.const 0))))
(assert_exception (invoke "throw"))
(assert_return (invoke "catch") (i32.const 42))

;; A module in binary, and one in quotes.
(module binary "\00asm" "\01\00\00\00")
(module quote "(func (export \"q\") (result i32)" " (i32.const 3))")
(assert_return (invoke "q") (i32.const 3))
(assert_malformed (module binary "\00asm\02\00\00\00") "unknown binary version")
