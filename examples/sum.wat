;; carrel cell run examples/sum.wat --invoke sum 3 4
(module
  (func (export "sum") (param $a i32) (param $b i32) (result i32)
    (i32.add (local.get $a) (local.get $b))))
