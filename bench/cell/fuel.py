#!/usr/bin/env python3
"""Measure the processor time of one unit of fuel over generated programs of every instruction, stop and collection.

Each program runs for ever; it is run with two amounts of fuel, and what the larger one took more is divided by the
fuel it had more, so that loading does not count. Programs that end are divided by all their fuel. The bar: the worst
is at most 50 times the median. --only REGEX measures some, --quick measures each briefly and holds nothing against
the bar.
"""
import argparse, pathlib, re, resource, statistics, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BAR = 50
TYPES = {"i": "i32", "I": "i64", "f": "f32", "F": "f64", "v": "v128", "a": "i32"}
# Values that take a CPU long: large dividends, and floats that are denormal.
LOCALS = {"i": "(i32.const -7)", "I": "(i64.const -7000000000000001)", "f": "(f32.const 1e-40)",
          "F": "(f64.const 1e-310)", "v": "(v128.const i32x4 0x00012345 0x80712345 0x00054321 0x7f812345)"}
ROW = re.compile(r'OP\((\w+), "([^"]+)", \w+, \w+, (\w+), "([^"]+)"')


def loop(setup, body, times=40, before="", after=""):
    """A module whose export runs a body for ever."""
    return (f'(module {before} (func (export "f") (local $i i32) {setup} '
            f'(loop $again {body * times} {after} (br $again))))')


def plain_case(text, imm, sig):
    """An instruction with a signature of numbers, chained on its own result where it can be."""
    takes, gives = sig.split(":")
    immediate = {"LANE": " 0", "MEMARG_LANE": " 0", "SHUFFLE": " " + " ".join(str(i) for i in range(16))}.get(imm, "")
    if text.endswith(".const"):
        return None
    local = {"i": "$a", "I": "$b", "f": "$c", "F": "$d", "v": "$e"}
    declared = "(local $a i32) (local $b i64) (local $c f32) (local $d f64) (local $e v128) "
    sets = "".join(f"(local.set {local[k]} {v})" for k, v in LOCALS.items())
    args = ["i32.const 64" if k == "a" else f"local.get {local[k]}" for k in takes]
    if takes and takes[0] == gives and takes[0] != "a":
        rest = " ".join(args[1:])
        return loop(declared + sets + "", f"{rest} {text}{immediate} ", 60, "(memory 1)",
                    ).replace("(loop $again ", f"(loop $again {args[0]} ").replace("  (br $again)", " drop (br $again)")
    drop = "drop" if gives else ""
    return loop(declared + sets, f"{' '.join(args)} {text}{immediate} {drop} ", 40, "(memory 1)")


def plain_cases():
    for _, text, imm, sig in ROW.findall((ROOT / "src/wasm/opcodes.def").read_text()):
        traps = text.startswith(("i32.trunc_f", "i64.trunc_f"))
        if sig != "*" and imm in ("NONE", "MEMARG", "LANE", "MEMARG_LANE", "SHUFFLE") and not traps:
            case = plain_case(text, imm, sig)
            if case:
                yield text, case


def types_chain(n):
    """Struct types, each a subtype of the one before."""
    chain = "(type $t0 (sub (struct (field i32))))"
    return chain + "".join(f"(type $t{i} (sub $t{i - 1} (struct (field i32))))" for i in range(1, n))


def control_cases():
    many = "i64 " * 900
    wide = "v128 " * 900
    pushes = "i64.const 1 " * 900
    yield "call", loop("", "(call $g) ", before="(func $g)")
    yield "call many", loop("", f"{pushes} (call $g) ", 2, f"(func $g (param {many}))")
    yield "call passes results on", loop(
        "", "(call $f40) " + "drop " * 900, 1,
        f"(func $f0 (result {wide}) " + "(v128.const i64x2 1 2)" * 900 + ")"
        + "".join(f"(func $f{i} (result {wide}) (call $f{i - 1}))" for i in range(1, 41)))
    yield "call with locals", loop("", "(call $g) ", before="(func $g (local " + "i64 " * 4000 + "))")
    yield "recursion", ('(module (func $r (param i32) (result i32) (local ' + "i64 " * 40 + ') (if (result i32) (local.get 0)'
                        ' (then (call $r (i32.sub (local.get 0) (i32.const 1)))) (else (i32.const 1))))'
                        ' (func (export "f") (drop (call $r (i32.const 19000)))))')
    yield "return_call many", (f'(module (func $g (param {wide}) '
                               + " ".join(f"local.get {i}" for i in range(900))
                               + ' return_call $g) (func (export "f") ' + "(v128.const i64x2 1 2)" * 900 + " call $g))")
    yield "return_call_indirect", ('(module (type $t (func)) (table 1 funcref) (elem (i32.const 0) $g) '
                                   '(func $g (export "f") (return_call_indirect (type $t) (i32.const 0))))')
    yield "call_indirect", loop("", "(call_indirect (type $t) (i32.const 0)) ",
                                before="(type $t (func)) (table 1 funcref) (elem (i32.const 0) $g) (func $g)")
    chain = "(type $t0 (sub (func)))" + "".join(f"(type $t{i} (sub $t{i - 1} (func)))" for i in range(1, 60))
    yield "call_indirect to a deep subtype", loop(
        "", "(call_indirect (type $t0) (i32.const 0)) ",
        before=chain + "(table 1 funcref) (elem (i32.const 0) $g) (func $g (type $t59))")
    yield "call_ref", loop("", "(call_ref $t (ref.func $g)) ",
                           before="(type $t (func)) (func $g (type $t)) (elem declare func $g)")
    yield "br with values", loop("", f"(block (result {many}) {pushes} br 0) " + "drop " * 900, 2)
    yield "br_table", loop("", "(local.set $i (i32.add (i32.mul (local.get $i) (i32.const 1103515245)) (i32.const 12345)))"
                               + "(block $x " * 1 + "(br_table " + "$x " * 2000 + "(local.get $i))) ", 4)
    yield "select", loop("", "(drop (select (i64.const 1) (i64.const 2) (local.get $i))) ")
    yield "global", loop("", "(global.set 0 (global.get 0)) ", before="(global (mut v128) (v128.const i64x2 1 2))")
    yield "table.get set", loop("", "(table.set 0 (i32.const 5) (table.get 0 (i32.const 3))) ", before="(table 10 funcref)")
    yield "throw", loop("", "(block $h (try_table (catch $t $h) (throw $t))) ", before="(tag $t)")
    yield "throw many values", loop("", f"(block $h (result {many}) (try_table (catch $t $h) {pushes} (throw $t)) unreachable) "
                                    + "drop " * 900, 2, f"(tag $t (param {many}))")
    yield "throw past clauses", loop(
        "", "(block $h (try_table (catch $t $h) (call $g))) ", 4,
        "(tag $t) (tag $u) (func $g (block $h (try_table " + "(catch $u $h) " * 5000 + "(throw $t))))")
    yield "throw past frames", loop(
        "", "(block $h (try_table (catch $t $h) (call $f300))) ", 1, "(tag $t) (func $f0 (throw $t))"
        + "".join(f"(func $f{i} (call $f{i - 1}))" for i in range(1, 301)))
    yield "throw_ref", loop("(local $x exnref)", "(local.set $x (block $h (result exnref) (try_table (catch_all_ref $h)"
                            " (throw $t)) unreachable)) (block $h (try_table (catch_all $h) (throw_ref (local.get $x)))) ",
                            before="(tag $t)")
    yield "exceptions that are kept", loop(
        "", "(local.set $i (i32.rem_u (i32.add (local.get $i) (i32.const 1)) (i32.const 4000))) (table.set 0 (local.get $i)"
        " (block $h (result exnref) (try_table (catch_all_ref $h) (throw $t)) unreachable)) ", 4,
        "(tag $t) (table 4000 exnref)")


def bulk_cases():
    for n in (0, 1, 65, 4097, 60000):
        yield f"memory.fill {n}", loop("", f"(memory.fill (i32.const 0) (i32.const 1) (i32.const {n})) ", 4, "(memory 4)")
        yield f"memory.copy {n}", loop("", f"(memory.copy (i32.const 1) (i32.const 70000) (i32.const {n})) ", 4, "(memory 4)")
        yield f"memory.init {n}", loop("", f"(memory.init 0 (i32.const 1) (i32.const 0) (i32.const {n})) ", 4,
                                       f'(memory 4) (data "{"x" * n}")')
        yield f"table.fill {n}", loop("", f"(table.fill 0 (i32.const 1) (ref.null func) (i32.const {n})) ", 4,
                                      "(table 200000 funcref)")
        yield f"table.copy {n}", loop("", f"(table.copy 0 0 (i32.const 1) (i32.const 70000) (i32.const {n})) ", 4,
                                      "(table 200000 funcref)")
        yield f"table.init {n}", loop("", f"(table.init 0 $e (i32.const 1) (i32.const 0) (i32.const {n})) ", 4,
                                      f"(table 200000 funcref) (func $g) (elem $e func {'$g ' * n})")
        for kind, value in (("i8", "(i32.const 1)"), ("v128", "(v128.const i64x2 1 2)")):
            array = f"(type $a (array (mut {kind})))"
            made = f"(local $x (ref null $a)) (local.set $x (array.new $a {value} (i32.const {n + 10}))) "
            yield f"array.fill {kind} {n}", loop(made, f"(array.fill $a (local.get $x) (i32.const 1) {value} (i32.const {n})) ",
                                                 4, array)
            yield f"array.copy {kind} {n}", loop(
                made, f"(array.copy $a $a (local.get $x) (i32.const 1) (local.get $x) (i32.const 5) (i32.const {n})) ", 4, array)
            yield f"array.new {kind} {n}", loop("", f"(drop (array.new $a {value} (i32.const {n}))) ", 4, array)
            yield f"array.new_default {kind} {n}", loop("", f"(drop (array.new_default $a (i32.const {n}))) ", 4, array)
        yield f"array.init_data {n}", loop(
            f"(local $x (ref null $a)) (local.set $x (array.new_default $a (i32.const {n}))) ",
            f"(array.init_data $a 0 (local.get $x) (i32.const 0) (i32.const 0) (i32.const {n})) ", 4,
            f'(type $a (array (mut i8))) (data "{"x" * n}")')
    yield "memory.grow 0", loop("", "(drop (memory.grow (i32.const 0))) ", 4, "(memory 100)")
    yield "memory.grow refused", loop("", "(drop (memory.grow (i32.const 60000))) ", 4, "(memory 100)")
    yield "memory.grow and touch", ('(module (memory 0) (func (export "f") (local $p i32) (loop $l'
                                    ' (drop (memory.grow (i32.const 1)))'
                                    + "".join(f" (i32.store offset={k * 4096} (local.get $p) (i32.const 1))" for k in range(16))
                                    + ' (local.set $p (i32.add (local.get $p) (i32.const 65536)))'
                                      ' (br_if $l (i32.lt_u (local.get $p) (i32.const 200000000))))))')
    yield "touch the first memory", ('(module (memory 3000) (func (export "f") (local $p i32) (loop $l'
                                     + "".join(f" (i32.store offset={k * 4096} (local.get $p) (i32.const 1))" for k in range(16))
                                     + ' (local.set $p (i32.add (local.get $p) (i32.const 65536)))'
                                       ' (br_if $l (i32.lt_u (local.get $p) (i32.const 190000000))))))')
    yield "table.grow", ('(module (table 0 funcref) (func (export "f") (local $i i32) (loop $l'
                         ' (drop (table.grow 0 (ref.null func) (i32.const 1)))'
                         ' (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 2000000))))))')
    yield "memory random reads", loop(
        "", "(local.set $i (i32.add (i32.mul (local.get $i) (i32.const 1103515245)) (i32.const 12345)))"
        "(drop (i64.load (i32.and (local.get $i) (i32.const 0x7fffff8)))) ", 8, "(memory 2048)")


def object_cases():
    chain = types_chain(60)
    fields = "(field (mut i64)) " * 900
    yield "ref.cast deep", loop("(local $x anyref) (local.set $x (struct.new_default $t59))",
                                "(drop (ref.cast (ref $t0) (local.get $x))) ", before=chain)
    yield "ref.test deep miss", loop("(local $x anyref) (local.set $x (struct.new_default $t59))",
                                     "(drop (ref.test (ref $u) (local.get $x))) ", before=chain + "(type $u (struct))")
    yield "br_on_cast", loop("(local $x anyref) (local.set $x (struct.new_default $t59))",
                             "(drop (block $b (result anyref) (br_on_cast $b anyref (ref $t3) (local.get $x)))) ", before=chain)
    yield "struct.get last field", loop("(local $x (ref null $s)) (local.set $x (struct.new_default $s))",
                                        "(drop (struct.get $s 899 (local.get $x))) ", before=f"(type $s (struct {fields}))")
    yield "struct.set", loop("(local $x (ref null $s)) (local.set $x (struct.new_default $s))",
                             "(struct.set $s 899 (local.get $x) (i64.const 1)) ", before=f"(type $s (struct {fields}))")
    yield "struct.new_default many", loop("", "(drop (struct.new_default $s)) ", before=f"(type $s (struct {fields}))")
    yield "struct.new one", loop("", "(drop (struct.new_default $s)) ", before="(type $s (struct (field i32)))")
    yield "struct.new none", loop("", "(drop (struct.new_default $s)) ", before="(type $s (struct))")
    yield "array.get set", loop("(local $x (ref null $a)) (local.set $x (array.new_default $a (i32.const 9)))",
                                "(array.set $a (local.get $x) (i32.const 1) (array.get $a (local.get $x) (i32.const 2))) ",
                                before="(type $a (array (mut i64)))")
    yield "i31", loop("", "(drop (i31.get_s (ref.i31 (local.get $i)))) ")
    yield "ref.eq", loop("", "(drop (ref.eq (ref.i31 (local.get $i)) (ref.null eq))) ")
    live = ("(type $l (struct (field (mut (ref null $l))) (field (mut (ref null $l))))) (global $g (mut (ref null $l)) (ref.null $l))")
    grow = ("(local.set $i (i32.const 200000)) (loop $m (global.set $g (struct.new $l (global.get $g) (global.get $g)))"
            " (br_if $m (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))")
    yield "collect a large live heap", loop(grow, "(drop (struct.new_default $l)) ", before=live)
    yield "objects that are kept", (f'(module {live} (func (export "f") (local $i i32) {grow}))')
    yield "arrays that are kept", ('(module (type $a (array (mut i64))) (table 3000 anyref) (func (export "f") (local $i i32) (loop $l'
                                   ' (table.set 0 (local.get $i) (array.new_default $a (i32.const 1000)))'
                                   ' (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 3000))))))')
    yield "collect many small dead", loop("", "(drop (struct.new_default $l)) ", before=live)
    yield "collect beside large tables", loop("", "(drop (struct.new_default $l)) ", before=live + "(table 2000000 anyref)" * 8)
    yield "collect a deep stack", ('(module (type $l (struct)) (func $r (export "f") (param) (local ' + "i64 " * 60 + ') '
                                   '(call $d (i32.const 9000))) (func $d (param i32) (local ' + "i64 " * 60 + ')'
                                   '(if (local.get 0) (then (call $d (i32.sub (local.get 0) (i32.const 1)))) (else'
                                   ' (loop $l ' + "(drop (struct.new_default $l)) " * 40 + '(br $l))))))')


def all_cases():
    yield from plain_cases()
    yield from control_cases()
    yield from bulk_cases()
    yield from object_cases()


class Worker:
    def __init__(self, program, folder):
        self.program, self.file = program, pathlib.Path(folder) / "case.wat"

    def run(self, verb, fuel):
        """Processor seconds and fuel of one run, and whether it ended by itself."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([self.program, verb, self.file, "--invoke", "f", "--fuel", str(fuel)],
                              capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = re.search(r"^fuel: (\d+)", done.stdout, re.M)
        if done.returncode not in (0, 3) or not used:
            raise SystemExit(f"{self.file.read_text()[:200]}\n{done.stdout[:300]}{done.stderr[:600]}")
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return seconds, int(used.group(1)), done.returncode == 0

    def measure(self, text, quick):
        """Nanoseconds of one unit of fuel; the best of three, as other work only adds."""
        self.file.write_text(text)
        small, fuel = 100_000, 1_000_000 if quick else 3_000_000
        while True:
            seconds, used, ended = self.run("run", fuel)
            if ended:
                return min(seconds, *(self.run("run", fuel)[0] for _ in range(2))) / used * 1e9
            base, spent, _ = self.run("run", small)
            if used > spent and (quick or seconds - base > 0.05 or fuel > 100_000_000):
                break
            fuel *= 4
        rounds = 1 if quick else 3
        best = min(self.run("run", fuel)[0] for _ in range(rounds)) - min(base, *(self.run("run", small)[0] for _ in range(rounds)))
        return max(best, 0) / (used - spent) * 1e9

    def stops(self, text):
        """The same in slices of 1009, as a profile runs it after the first five million."""
        self.file.write_text(text)
        low, high = (min((self.run("fuel", n)[:2] for _ in range(2))) for n in (5_100_000, 9_100_000))
        return (high[0] - low[0]) / (high[1] - low[1]) * 1e9


def stop_cases():
    yield "stops among empty loops", ('(module (func (export "f") (loop $l (drop (i32.const 1)) ' + "(loop) " * 20000
                                      + "(drop (i32.const 1)) (drop (i32.const 1)) (br $l))))")
    yield "stops in a long block", ('(module (func (export "f") (local i64) (loop $l '
                                    + "(local.set 0 (i64.add (local.get 0) (i64.const 1)))" * 20000 + "(br $l))))")
    yield "stops in calls", '(module (func $g (call $h)) (func $h) (func (export "f") (loop $l (call $g) (br $l))))'


def main():
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--worker", default=ROOT / "build/libexec/carrel-cell", help="the carrel-cell program to measure")
    ask.add_argument("--only", default="", help="regular expression of the cases")
    ask.add_argument("--quick", action="store_true")
    opt = ask.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        worker = Worker(opt.worker, folder)
        for name, text in all_cases():
            if re.search(opt.only, name):
                rows.append((worker.measure(text, opt.quick), name))
        for name, text in stop_cases():
            if re.search(opt.only, name) and not opt.quick:
                rows.append((worker.stops(text), name))
    median = statistics.median(ns for ns, _ in rows)
    print(f"{len(rows)} programs, median {median:.2f} ns for one unit of fuel\n\n| program | ns | of median |\n|---|---|---|")
    for ns, name in sorted(rows, reverse=True)[:25]:
        print(f"| {name} | {ns:.1f} | {ns / median:.1f} |")
    worst = max(rows)[0] / median
    print(f"\nworst {worst:.1f} x the median; the bar is {BAR}")
    return 0 if opt.quick or opt.only or worst <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
