/* The scripts that interpreters run when their image is made (cell/warm.h). */
#include "cell/warm.h"

#include <string.h>

#include "base/banned.h"

/*
 * Imports modules that draw no random bytes, so that a script draws the same ones as after a cold
 * start. The request is 8 hexadecimal digits, its length, and texts that end with NUL: the number
 * of arguments, the arguments (the script first, or -c and the code), and variables.
 *
 * The script runs in module __main__. Tracebacks do not show the driver. The end of the interpreter
 * is part of the driver, because Python would take apart all modules that were imported: exit
 * functions run, the variables of the script's modules are deleted, streams are flushed.
 */
static const char python_driver[] =
    "def _carrel_warm():\n"
    "    import sys, os, gc, io, re, atexit, json, math, time, types, string, struct, codecs, "
    "locale\n"
    "    import collections, functools, itertools, operator, datetime, decimal, fractions\n"
    "    import dataclasses, enum, typing, copy, textwrap, hashlib, base64, binascii, bisect, "
    "heapq\n"
    "    import csv, pathlib, traceback, contextlib, argparse, linecache, importlib.machinery\n"
    "    main = sys.modules['__main__']\n"
    "    names = main.__dict__\n"
    "    del names['_carrel_warm']\n"
    "    known = frozenset(sys.modules)\n"
    "    gc.collect()\n"
    "    gc.freeze()\n"
    "    def take(n):\n"
    "        got = b''\n"
    "        while len(got) < n:\n"
    "            part = os.read(0, n - len(got))\n"
    "            if not part:\n"
    "                raise SystemExit('the request is cut off')\n"
    "            got += part\n"
    "        return got\n"
    "    texts = [os.fsdecode(t) for t in take(int(take(8), 16)).split(b'\\0')[:-1]]\n"
    "    count = int(texts[0])\n"
    "    sys.argv[:] = texts[1:count + 1]\n"
    "    sys.orig_argv[:] = ['python', *sys.argv]\n"
    "    for text in texts[count + 1:]:\n"
    "        name, _, value = text.partition('=')\n"
    "        os.environ[name] = value\n"
    "    if os.isatty(1):\n"
    "        sys.stdout.reconfigure(line_buffering=True)\n"
    "    source = sys.argv.pop(1) if sys.argv[0] == '-c' else None\n"
    "    if source is None:\n"
    "        path = sys.argv[0]\n"
    "        sys.path[0] = os.path.dirname(path)\n"
    "        path = path if path[:1] == '/' else '//' + path\n"
    "        loader = importlib.machinery.SourceFileLoader('__main__', path)\n"
    "        names.update(__file__=path, __cached__=None, __loader__=loader)\n"
    "    else:\n"
    "        path = '<string>'\n"
    "    try:\n"
    "        if source is None:\n"
    "            try:\n"
    "                with io.open_code(path) as file:\n"
    "                    source = file.read()\n"
    "            except OSError as e:\n"
    "                why = f\"[Errno {e.errno}] {e.strerror}\"\n"
    "                raise SystemExit(print(f\"python: can't open file {path!r}: {why}\", "
    "file=sys.stderr) or 2)\n"
    "        exec(compile(source, path, 'exec', dont_inherit=True), names)\n"
    "        status = 0\n"
    "    except SystemExit as e:\n"
    "        status = 0 if e.code is None else e.code\n"
    "    except BaseException as e:\n"
    "        error, status = e.with_traceback(e.__traceback__.tb_next), 1\n"
    "        sys.excepthook(type(error), error, error.__traceback__)\n"
    "        del error\n"
    "    if not isinstance(status, int):\n"
    "        print(status, file=sys.stderr)\n"
    "        status = 1\n"
    "    atexit._run_exitfuncs()\n"
    "    sys.stdout.flush()\n"
    "    for module in [main, *(m for k, m in sys.modules.items() if k not in known)]:\n"
    "        own = getattr(module, '__dict__', {})\n"
    "        for name in [n for n in own if n != '__builtins__']:\n"
    "            own[name] = None\n"
    "    gc.collect()\n"
    "    sys.stdout.flush()\n"
    "    sys.stderr.flush()\n"
    "    os._exit(status)\n"
    "_carrel_warm()\n";

/*
 * The request is that of Python's driver, with -e before code. The driver is one line, so that the
 * two frames below the script have fixed names. They are cut off from the report of an error, which
 * Ruby writes after all handlers of at_exit.
 *
 * No library is required: a script that forgets to require one must fail as after a cold start.
 * Code has the variables of the top level, but code that may return is compiled like a file.
 */
static const char ruby_driver[] =
    "at_exit do "
    "if $!; "
    "$stderr = ->(out, tail, held) { "
    "to = Object.new; "
    "to.define_singleton_method(:write) { |*texts| "
    "texts.join.each_line { |line| "
    "if line == tail[held.size]; "
    "held << line; "
    "else "
    "out.write(*held) if held.size < 2 || line.start_with?(\"\\tfrom \"); "
    "held.clear; "
    "out.write(line); "
    "end }; "
    "texts.sum(&:bytesize) }; "
    "to }[$stderr, %w[eval <main>].map { |n| \"\\tfrom -e:1:in `#{n}'\\n\" }, []]; "
    "end; "
    "end; "
    "GC.start; "
    "->(take) { "
    "texts = take[take[8].to_i(16)].force_encoding('UTF-8').split(\"\\0\", -1); "
    "count = texts.shift.to_i; "
    "texts.pop; "
    "ARGV.replace(texts.shift(count)); "
    "texts.each { |text| ENV.store(*text.split('=', 2)) }; "
    "if ARGV[0] == '-e'; "
    "ARGV.shift; "
    "$0 = '-e'; "
    "RubyVM.keep_script_lines = true; "
    "code = ARGV.shift; "
    "next RubyVM::InstructionSequence.compile(code, '-e').method(:eval).to_proc "
    "if code =~ /\\breturn\\b/; "
    "Thread.current[:carrel] = [code, '-e']; "
    "next TOPLEVEL_BINDING.method(:eval).to_proc; "
    "end; "
    "$0 = path = ARGV.shift; "
    "begin "
    "text = File.binread(path); "
    "at = text =~ /^__END__\\r?\\n/n && $~.end(0); "
    "Object.const_set(:DATA, File.open(path).tap { |f| f.pos = at }) if at; "
    "RubyVM::InstructionSequence.compile_file(path).method(:eval).to_proc; "
    "rescue SystemCallError => e; "
    "STDERR.write(\"ruby: #{e.message[/\\A.*?(?= @ )/]} -- #{path} (LoadError)\\n\"); "
    "exit!(1); "
    "rescue SyntaxError => e; "
    "e.set_backtrace([path]); "
    "raise; "
    "end; "
    "}[->(n) { "
    "''.b.tap { |got| got << STDIN.sysread(n - got.bytesize) while got.bytesize < n } }]"
    ".(*[Thread.current[:carrel], Thread.current[:carrel] = nil][0])";

static const struct warm_program programs[] = {
    {"python", ".py", "-c", python_driver},
    {"ruby", ".rb", "-e", ruby_driver},
    {"php", NULL, NULL, NULL},
    {"qjs", NULL, NULL, NULL},
};

const struct warm_program *warm_program(const char *name) {
    for (size_t i = 0; i < sizeof(programs) / sizeof(*programs); i++)
        if (strcmp(programs[i].name, name) == 0)
            return &programs[i];
    return NULL;
}
