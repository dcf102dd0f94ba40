"""Small WASI programs as text, and an image of them, for tests of cell machines."""
import io
import tarfile

WASI = '"wasi_snapshot_preview1"'


def program(imports, body, data=""):
    """A module with these functions of WASI (name and number of parameters), data and _start."""
    lines = "".join(f'(import {WASI} "{name}" (func ${name} (param{" i32" * n}) (result i32)))' for name, n in imports.items())
    return (f'(module {lines} (import {WASI} "proc_exit" (func $exit (param i32))) (memory (export "memory") 4) {data}'
            f' (func $say (param $at i32) (param $n i32) (i32.store (i32.const 16) (local.get $at))'
            f' (i32.store (i32.const 20) (local.get $n))'
            f' (drop (call $fd_write (i32.const 1) (i32.const 16) (i32.const 1) (i32.const 24))))'
            f' (func (export "_start") (local $n i32) {body}))')


SAY = {"fd_write": 4}
ARGS = ('(drop (call $args_sizes_get (i32.const 0) (i32.const 4))) (drop (call $args_get (i32.const 64) (i32.const 1024)))')
OPEN = '(import "wasi_snapshot_preview1" "path_open" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))'

PROGRAMS = {
    "hello": program(SAY, '(call $say (i32.const 100) (i32.const 6)) (call $exit (i32.const 3))', '(data (i32.const 100) "hello\\n")'),
    "args": program({**SAY, "args_sizes_get": 2, "args_get": 2}, ARGS + '(call $say (i32.const 1024) (i32.load (i32.const 4)))'),
    "words": program({**SAY, "args_sizes_get": 2, "args_get": 2}, ARGS +
                     '(loop $next (if (i32.eqz (i32.load8_u (i32.add (i32.const 1024) (local.get $n))))'
                     ' (then (i32.store8 (i32.add (i32.const 1024) (local.get $n)) (i32.const 124))))'
                     ' (br_if $next (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.load (i32.const 4)))))'
                     '(call $say (i32.const 1024) (i32.load (i32.const 4)))'),
    "env": program({**SAY, "environ_sizes_get": 2, "environ_get": 2},
                   '(drop (call $environ_sizes_get (i32.const 0) (i32.const 4)))'
                   '(drop (call $environ_get (i32.const 64) (i32.const 1024)))'
                   '(call $say (i32.const 1024) (i32.load (i32.const 4)))'),
    "cat": program({**SAY, "fd_read": 4},
                   '(block $end (loop $more (i32.store (i32.const 0) (i32.const 1024)) (i32.store (i32.const 4) (i32.const 65536))'
                   '(drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))'
                   '(br_if $end (i32.eqz (i32.load (i32.const 8)))) (call $say (i32.const 1024) (i32.load (i32.const 8)))'
                   '(br $more)))'),
    # The first argument is a path beneath "/". `look` exits with the error of opening it; `put` writes it anew.
    "look": program({**SAY, "args_sizes_get": 2, "args_get": 2}, ARGS +
                    '(call $exit (call $open (i32.const 3) (i32.const 1) (i32.load (i32.const 68))'
                    ' (i32.sub (i32.add (i32.const 1023) (i32.load (i32.const 4))) (i32.load (i32.const 68)))'
                    ' (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 40)))').replace("(module", "(module " + OPEN),
    "put": program({**SAY, "args_sizes_get": 2, "args_get": 2}, ARGS +
                   '(local.set $n (call $open (i32.const 3) (i32.const 1) (i32.load (i32.const 68))'
                   ' (i32.sub (i32.add (i32.const 1023) (i32.load (i32.const 4))) (i32.load (i32.const 68)))'
                   ' (i32.const 9) (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 40)))'
                   '(if (local.get $n) (then (call $exit (local.get $n))))'
                   '(i32.store (i32.const 16) (i32.const 100)) (i32.store (i32.const 20) (i32.const 5))'
                   '(call $exit (call $fd_write (i32.load (i32.const 40)) (i32.const 16) (i32.const 1) (i32.const 24)))',
                   '(data (i32.const 100) "kept\\n")').replace("(module", "(module " + OPEN),
    "trap": '(module (func (export "_start") unreachable))',
    "spin": '(module (func (export "_start") (loop $more (br $more))))',
    # Prints 120 lines of one letter, each after a while of computing, and exits with 7.
    "ticks": program(SAY, '(local $i i32) (loop $line (local.set $i (i32.const 1000000))'
                     '(loop $more (br_if $more (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))'
                     '(i32.store8 (i32.const 100) (i32.add (i32.const 97) (i32.rem_u (local.get $n) (i32.const 26))))'
                     '(call $say (i32.const 100) (i32.const 2))'
                     '(br_if $line (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 120))))'
                     '(call $exit (i32.const 7))', '(data (i32.const 101) "\\n")'),
    # Prints 30 lines of one letter, each after a while of computing, and then computes for ever.
    "thirty": program(SAY, '(local $i i32) (loop $line (local.set $i (i32.const 1000000))'
                      '(loop $more (br_if $more (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))'
                      '(call $say (i32.const 100) (i32.const 2))'
                      '(br_if $line (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 30))))'
                      '(loop $more (br $more))', '(data (i32.const 100) "a\\n")'),
    "grow": '(module (memory 1) (func (export "_start") (if (i32.lt_s (memory.grow (i32.const 60000)) (i32.const 0)) (then unreachable))))',
    "large": '(module (memory 60000) (func (export "_start")))',
    "strange": '(module (import "carrel" "log" (func (param i32 i32))) (func (export "_start")))',
}



def capable(body, data="", **imports):
    """A module that imports functions of carrel.1 (name with _ for ., and type); `body` is that of _start, with the local $n."""
    lines = "".join(f'(import "carrel.1" "{name.replace("_", ".")}" (func ${name} {kind}))' for name, kind in imports.items())
    return f'(module {lines} (memory (export "memory") 2) {data} (func (export "_start") (local $n i32) {body}))'


ANSWERING = {"answer": "(param i32 i32 i32) (result i32)", "result": "(param i32 i32) (result i32)"}
PROGRAMS |= {
    # The result of `echo` is its arguments; that of `caller` is the result of `echo` with the argument 7.
    "echo": capable('(local.set $n (call $args)) (drop (call $answer (i32.const 100) (i32.const 0) (i32.const 60000)))'
                    '(drop (call $result (i32.const 100) (local.get $n)))', args="(result i32)", **ANSWERING),
    "caller": capable('(local.set $n (call $call (i32.const 0) (i32.const 4) (i32.const 4) (i32.const 1) (i64.const 0)))'
                      '(drop (call $answer (i32.const 100) (i32.const 0) (i32.const 60000)))'
                      '(drop (call $result (i32.const 100) (local.get $n)))', '(data (i32.const 0) "echo7")',
                      call="(param i32 i32 i32 i32 i64) (result i32)", **ANSWERING),
    # Adds 1 to the digit of key n, which begins with 0; its result is the new digit.
    "count": capable('(drop (call $kv_get (i32.const 0) (i32.const 1)))'
                     '(drop (call $answer (i32.const 100) (i32.const 0) (select (i32.const 1) (i32.const 0)'
                     ' (i32.gt_s (call $kv_get (i32.const 0) (i32.const 1)) (i32.const 0)))))'
                     '(i32.store8 (i32.const 100) (i32.add (i32.const 1) (i32.load8_u (i32.const 100))))'
                     '(if (call $kv_put (i32.const 0) (i32.const 1) (i32.const 100) (i32.const 1)) (then unreachable))'
                     '(drop (call $result (i32.const 100) (i32.const 1)))', '(data (i32.const 0) "n") (data (i32.const 100) "0")',
                     kv_get="(param i32 i32) (result i32)", kv_put="(param i32 i32 i32 i32) (result i32)", **ANSWERING),
}



def asking(function):
    """Gives its standard input to this function of carrel.1, and prints the code (0: none) and then the answer."""
    return (f'(module (import {WASI} "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))'
            f' (import {WASI} "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))'
            f' (import "carrel.1" "{function}" (func $ask (param i32 i32) (result i32)))'
            ' (import "carrel.1" "answer" (func $answer (param i32 i32 i32) (result i32))) (memory (export "memory") 64)'
            ' (func $say (param $at i32) (param $n i32) (i32.store (i32.const 16) (local.get $at))'
            ' (i32.store (i32.const 20) (local.get $n)) (drop (call $fd_write (i32.const 1) (i32.const 16) (i32.const 1) (i32.const 24))))'
            ' (func (export "_start") (local $n i32) (local $all i32)'
            '  (block $end (loop $more (i32.store (i32.const 0) (i32.add (i32.const 1024) (local.get $all)))'
            '   (i32.store (i32.const 4) (i32.const 65536)) (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))'
            '   (br_if $end (i32.eqz (i32.load (i32.const 8))))'
            '   (local.set $all (i32.add (local.get $all) (i32.load (i32.const 8)))) (br $more)))'
            '  (local.set $n (call $ask (i32.const 1024) (local.get $all)))'
            '  (i32.store8 (i32.const 100) (i32.add (i32.const 48) (select (i32.sub (i32.const 0) (local.get $n)) (i32.const 0)'
            '   (i32.lt_s (local.get $n) (i32.const 0))))) (call $say (i32.const 100) (i32.const 1))'
            '  (call $say (i32.const 2000000) (call $answer (i32.const 2000000) (i32.const 0) (i32.const 1048576)))))')


PROGRAMS |= {"http": asking("http.request"), "model": asking("model.ask")}

NOENT = 44  # of WASI


def image(**files):
    """A tar archive with the programs in /bin, and more files: name (with _ for /) and bytes."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as t:
        def add(name, content, mode=0o644):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), mode
            t.addfile(info, io.BytesIO(content))
        for name in ("bin", "data"):
            info = tarfile.TarInfo(name)
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            t.addfile(info)
        for name, text in PROGRAMS.items():
            add(f"bin/{name}.wasm", text.encode())
        for name, content in files.items():
            add(name.replace("_", "/"), content, 0o755)
    return data.getvalue()
