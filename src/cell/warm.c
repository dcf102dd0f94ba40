#include "cell/warm.h"

#include <stdio.h>
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

const char *warm_driver(const char *program) {
    return strcmp(program, "python") == 0 ? python_driver : NULL;
}

void warm_head(const char *program, uint64_t seed, char head[WARM_HEAD_SIZE]) {
    char digest[SHA256_HEX];
    const char *driver = warm_driver(program);
    sha256_hex(driver, strlen(driver), digest);
    memset(head, 0, WARM_HEAD_SIZE);
    snprintf(head, WARM_HEAD_SIZE, "CRLWARM1 %016llx %.32s", (unsigned long long)seed, digest);
}

bool warm_digest(const uint8_t *state, size_t len, uint8_t digest[SHA256_BYTES]) {
    enum { HEAD = 12 };
    struct sha256 sum;
    if (len < HEAD)
        return false;
    size_t part =
        state[8] | (size_t)state[9] << 8 | (size_t)state[10] << 16 | (size_t)state[11] << 24;
    if (part > len - HEAD)
        return false;
    sha256_init(&sum);
    sha256_add(&sum, state, HEAD + part);
    sha256_end(&sum, digest);
    return true;
}

/* Variables that an interpreter reads when it starts, or that choose where it looks for files. */
static bool is_read_at_start(const char *variable) {
    static const char *const starts[] = {"PYTHON", "LC_", "LANG", "HOME=", "PATH=", "TZ="};
    for (size_t i = 0; i < sizeof(starts) / sizeof(*starts); i++)
        if (strncmp(variable, starts[i], strlen(starts[i])) == 0)
            return true;
    return false;
}

bool warm_fits(const struct cell_options *o) {
    if (strcmp(o->verb, "run") != 0 || o->resume || o->record || o->has_suspend_at ||
        o->listen_count)
        return false;
    for (int i = 0; i < o->grant_count; i++)
        if (strcmp(o->grants[i], "random") == 0)
            return false;
    for (int i = 0; i < o->env_count; i++)
        if (is_read_at_start(o->env[i]))
            return false;
    for (int i = 0; i < o->dir_count; i++)
        if (strcmp(o->dirs[i].name, "/") != 0)
            return false;
    return true;
}

bool warm_request(const struct cell_options *o, int skip, struct buf *ret) {
    char size[9];
    bool ok = buf_addf(ret, "00000000%d", o->word_count - skip) && buf_add(ret, "", 1);
    for (int i = skip; ok && i < o->word_count; i++)
        ok = buf_add(ret, o->words[i], strlen(o->words[i]) + 1);
    for (int i = 0; ok && i < o->env_count; i++)
        ok = buf_add(ret, o->env[i], strlen(o->env[i]) + 1);
    if (!ok || ret->len - 8 > UINT32_MAX)
        return false;
    snprintf(size, sizeof(size), "%08x", (unsigned)(ret->len - 8));
    memcpy(ret->data, size, 8);
    return true;
}
