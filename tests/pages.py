"""Documentation pages: their fenced blocks, and a shell that runs the commands in them.

A `console` block holds what a reader types and sees:

* A line after "$ " is typed, with the lines that continue it: after a backslash, up to the end of a
  quotation, or up to the last line of a here-document.
* The lines below it are its output, standard error included. `…` stands for text that differs from
  run to run, on a line of its own for any number of lines. Two or more blanks, as between columns,
  stand for any number of them; those at the end of a line do not count.
* An id such as m-4kq2x7w3n5ab stands for the id of the same kind that the command really printed,
  there and in all later lines of the page, typed ones included.
* A command must succeed, unless the next line typed is `echo $?`.

`console again` is about something that another program does meanwhile: its commands are typed again
until they print what the block shows.
"""
import os
import pathlib
import re
import secrets
import select
import shlex
import signal
import subprocess
import time
import typing

from patience import PATIENCE, clock

ID = re.compile(r"\b[a-z]-[a-z2-7]{12}\b")
# What only some hosts say, and pages do not show: slow ones (the progress of long work too), those that
# cannot enforce every limit, and those whose root has used carrel.
REMARKS = re.compile(r"^(?:carrel: (?:preparing this host for its first (?:box|machine)|warning: limits not enforced on this host|root may have machines of its own).*"
                     r"|.*  [\d.]+[BKMGT]  [\d.]+[BKMGT]/s(?:  \d+%)?)\n", re.M)
LIMIT_S = 120


class Block(typing.NamedTuple):
    language: str
    words: tuple  # behind the language
    text: str
    line: int


def blocks(path, language=None):
    """The fenced blocks of a page, all or those of one language."""
    text = pathlib.Path(path).read_text()
    found = []
    for m in re.finditer(r"^```(\S*) ?(.*)\n((?:.*\n)*?)```$", text, re.M):
        found.append(Block(m[1], tuple(m[2].split()), m[3], text.count("\n", 0, m.start()) + 2))
    return [b for b in found if language in (None, b.language)]


class Typed(typing.NamedTuple):
    command: str
    shown: str
    line: int
    again: bool


def goes_on(command):
    """Is the last of these lines not the end of the command?"""
    here = re.search(r"<<-?\s*'?(\w+)'?", command[0])
    if here:
        return command[-1] != here[1]
    try:
        shlex.split("\n".join(command))
    except ValueError:
        return True
    return command[-1].endswith("\\")


def typed(block):
    """What a console block types, with what it shows of each."""
    lines, found = block.text.splitlines(), []
    at = 0
    while at < len(lines):
        assert lines[at].startswith("$ "), f"line {block.line + at}: no command prints this: {lines[at]}"
        start, command = at, [lines[at][2:]]
        while goes_on(command):
            at += 1
            command.append(lines[at])
        at += 1
        shown = []
        while at < len(lines) and not lines[at].startswith("$ "):
            shown.append(lines[at])
            at += 1
        found.append(Typed("\n".join(command), "".join(s + "\n" for s in shown), block.line + start, "again" in block.words))
    return found


class Shell:
    """One bash for a page, so that directories, variables and background jobs stay."""

    def __init__(self, env, cwd):
        self.mark = secrets.token_hex(8)
        self.process = subprocess.Popen(["bash", "--norc", "--noprofile"], env=env, cwd=cwd, start_new_session=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.status = 0

    def type(self, command):
        """The command's status and output."""
        script = f"(exit {self.status})\n{{\n{command}\n}} </dev/null\nprintf '\\n{self.mark} %d\\n' $?\n"
        self.process.stdin.write(script.encode())
        self.process.stdin.flush()
        text, end = b"", re.compile(rb"\n%s (\d+)\n" % self.mark.encode())
        deadline = clock() + LIMIT_S
        while not (found := end.search(text)):
            assert clock() < deadline, f"no end of: {command}\n{text.decode(errors='replace')}"
            if select.select([self.process.stdout], [], [], 1)[0]:
                data = os.read(self.process.stdout.fileno(), 65536)
                assert data, f"the shell ended in: {command}\n{text.decode(errors='replace')}"
                text += data
        self.status = int(found[1])
        output = text[:found.start()].decode(errors="replace")
        return self.status, REMARKS.sub("", output)

    def close(self):
        """Ends the shell and the jobs that it left in the background."""
        self.process.stdin.close()
        try:
            os.killpg(self.process.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        self.process.wait(60 * PATIENCE)
        self.process.stdout.close()


def stripped(text):
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


class Player:
    """Plays pages in a shell and remembers which id stands for which."""

    def __init__(self, shell):
        self.shell, self.ids = shell, {}

    def pattern(self, shown):
        """A regular expression for what is shown, and the ids that it finds out."""
        unknown, parts = [], []
        for line in stripped(shown).splitlines(keepends=True):
            if line == "…\n":
                parts.append(r"(?:[^\n]*\n)*?")
                continue
            for word in re.split(rf"(…|{ID.pattern})", line):
                if word == "…":
                    parts.append(r"[^\n]*?")
                elif not ID.fullmatch(word):
                    parts.append(re.sub(r"(\\ ){2,}", " +", re.escape(word)))
                elif word in self.ids:
                    parts.append(re.escape(self.ids[word]))
                elif word in unknown:
                    parts.append(rf"(?P=id{unknown.index(word)})")
                else:
                    parts.append(rf"(?P<id{len(unknown)}>{word[0]}-[a-z2-7]{{12}})")
                    unknown.append(word)
        return re.compile("".join(parts)), unknown

    def matches(self, shown, output):
        pattern, unknown = self.pattern(shown)
        found = pattern.fullmatch(stripped(output))
        if found:
            self.ids.update({name: found[f"id{i}"] for i, name in enumerate(unknown)})
        return bool(found)

    def command(self, text):
        def real(m):
            assert m[0] in self.ids, f"nothing has printed {m[0]} before: {text}"
            return self.ids[m[0]]
        return ID.sub(real, text)

    def play(self, t, may_fail=False):
        command, deadline = self.command(t.command), clock() + LIMIT_S
        while True:
            status, output = self.shell.type(command)
            if self.matches(t.shown, output) and (status == 0 or may_fail):
                return
            assert t.again and clock() < deadline, \
                f"line {t.line}: {t.command}\n--- the page shows:\n{t.shown}--- it printed (status {status}):\n{output}"
            time.sleep(0.05)


def play(path, env, cwd):
    """Runs every console block of a page, in their order; how many commands that were."""
    commands = [t for b in blocks(path, "console") for t in typed(b)]
    shell = Shell(env, cwd)
    try:
        player = Player(shell)
        for t, after in zip(commands, [*commands[1:], None]):
            player.play(t, may_fail=after is not None and after.command == "echo $?")
    finally:
        shell.close()
    return len(commands)
