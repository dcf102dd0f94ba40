"""Files and sockets of WASI programs: what a path reaches, suspended files, replay, connections.

CARREL_CELL names the worker program, or CARREL_BUILD the build folder. Every test uses the real one.
"""
import os, pathlib, socket, subprocess, sys, threading, time

import pytest

sys.path[:0] = [str(p) for p in pathlib.Path(__file__).resolve().parents[:2]]

import patience
from test_wasi import CELL, program

NOTSUP, PERM, ROFS, STALE = 58, 63, 69, 72
READ, WRITE, SEEK = 2, 64, 4
CREAT = 1

# $open opens a path of n bytes beneath descriptor 3; $read reads up to n bytes to an address.
HELPERS = """
  (func $open (param $path i32) (param $n i32) (param $oflags i32) (param $rights i64) (result i32)
    (call $path_open (i32.const 3) (i32.const 1) (local.get $path) (local.get $n) (local.get $oflags)
      (local.get $rights) (i64.const 0) (i32.const 0) (i32.const 50000)))
  (func $read (param $fd i32) (param $at i32) (param $n i32) (result i32)
    (i32.store (i32.const 50100) (local.get $at)) (i32.store (i32.const 50104) (local.get $n))
    (call $fd_read (local.get $fd) (i32.const 50100) (i32.const 1) (i32.const 50108)))
  (func $spin (local $i i32) (loop $l
    (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 20000)))))
"""


def files_program(body, path, *names, func='(export "_start")'):
    return program(body, "path_open", "fd_read", *names, func=func,
                   data=f'(data (i32.const 0) "{path}")' + HELPERS)


def cell(place, source, *options, **more):
    (place / "program.wat").write_text(source)
    return subprocess.run([CELL, "run", "program.wat", *map(str, options)], capture_output=True, text=True, timeout=60,
                          cwd=place, **more)


@pytest.fixture
def place(tmp_path):
    for name in ("granted", "sibling"):
        (tmp_path / name).mkdir()
    (tmp_path / "sibling/secret").write_text("secret")
    (tmp_path / "granted/file").write_text("abcdefgh")
    plain, probe = (cell(tmp_path, files_program("", "file"), *options) for options in ((), ("--dir", "granted")))
    if "cannot confine" in plain.stderr or any(
            text in probe.stderr for text in ("does not allow this user", "does not support id maps")):
        pytest.skip(f"this host cannot confine a worker: {probe.stderr.strip()}")
    return tmp_path


def open_error(place, path, *options, oflags=0, rights=READ):
    source = files_program(f"(call $open (i32.const 0) (i32.const {len(path)}) (i32.const {oflags}) (i64.const {rights}))",
                           path, func='(export "f") (result i32)')
    ran = cell(place, source, *(options or ("--dir", "granted")), "--invoke", "f")
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout)


def test_neither_links_nor_dots_lead_out_of_a_directory(place):
    (place / "granted/down").mkdir()
    for name, target in {"absolute": "/etc/passwd", "up": "../sibling/secret", "chain": "up", "dir": "../sibling",
                         "inside": "down/../file"}.items():
        os.symlink(target, place / "granted" / name)
    assert open_error(place, "inside") == 0  # links within the directory work
    assert open_error(place, "down/../file") == 0
    for path in ("absolute", "up", "chain", "dir/secret", "../sibling/secret", "down/../../sibling/secret", "/etc/passwd"):
        assert open_error(place, path) == PERM, path


def test_link_that_is_replaced_all_the_time_never_leads_out(place):
    (place / "granted/sub").mkdir()
    (place / "granted/sub/secret").write_text("public")
    # Goes on until it could open the file 100 times and could not 100 times; prints what begins with "s".
    source = files_program("""
        (local $opened i32) (local $refused i32)
        (loop $again
          (if (call $open (i32.const 0) (i32.const 8) (i32.const 0) (i64.const 2))
            (then (local.set $refused (i32.add (local.get $refused) (i32.const 1))))
            (else
              (drop (call $read (i32.load (i32.const 50000)) (i32.const 100) (i32.const 6)))
              (if (i32.eq (i32.load8_u (i32.const 100)) (i32.const 115))
                (then (call $print (i32.const 1) (i32.const 100) (i32.const 6))))
              (local.set $opened (i32.add (local.get $opened) (i32.const 1)))
              (drop (call $fd_close (i32.load (i32.const 50000))))))
          (br_if $again (i32.or (i32.lt_u (local.get $opened) (i32.const 100)) (i32.lt_u (local.get $refused) (i32.const 100)))))""",
                           "x/secret", "fd_close")
    stop = threading.Event()

    def swap():
        names = [place / "granted" / name for name in ("a", "b")]
        os.symlink("../sibling", names[0])
        os.symlink("sub", names[1])
        while not stop.is_set():
            for name in names:
                os.link(name, place / "granted/new", follow_symlinks=False)
                os.rename(place / "granted/new", place / "granted/x")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        ran = cell(place, source, "--dir", "granted", "--fuel", 10**11)
    finally:
        stop.set()
        thread.join()
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr


def test_read_only_directory_refuses_changes(place):
    assert open_error(place, "new", "--dir", "granted:ro", oflags=CREAT, rights=WRITE) == ROFS
    assert open_error(place, "file", "--dir", "granted:/data:ro", rights=WRITE) == ROFS
    assert open_error(place, "file", "--dir", "granted:/data:ro") == 0
    assert open_error(place, "new", "--dir", "granted:/data", oflags=CREAT, rights=WRITE) == 0
    assert (place / "granted/new").exists()


def test_pipe_in_a_directory_is_refused_and_does_not_block(place):
    os.mkfifo(place / "granted/pipe")
    assert open_error(place, "pipe") == NOTSUP


TWICE = files_program("""
    (drop (call $open (i32.const 0) (i32.const 4) (i32.const 0) (i64.const 2)))
    (drop (call $read (i32.load (i32.const 50000)) (i32.const 100) (i32.const 4)))
    (call $print (i32.const 1) (i32.const 100) (i32.const 4))
    (call $spin)
    (i32.store8 (i32.const 200) (call $read (i32.load (i32.const 50000)) (i32.const 100) (i32.const 4)))
    (call $print (i32.const 1) (i32.const 100) (i32.const 4))
    (call $proc_exit (i32.load8_u (i32.const 200)))""", "file", "proc_exit")


def suspended(place):
    ran = cell(place, TWICE, "--dir", "granted:/data", "--suspend-at", 40000, "--out", "state")
    assert (ran.returncode, ran.stdout) == (0, "abcd"), ran.stderr


def test_open_file_goes_on_at_its_offset_after_a_resume(place):
    suspended(place)
    os.rename(place / "granted", place / "moved")  # the capability is the name in the program
    for _ in range(2):
        ran = cell(place, TWICE, "--dir", "moved:/data", "--resume", "state")
        assert (ran.returncode, ran.stdout) == (0, "efgh"), ran.stderr


def test_file_that_is_gone_after_a_resume_is_stale(place):
    suspended(place)
    (place / "granted/file").unlink()
    ran = cell(place, TWICE, "--dir", "granted:/data", "--resume", "state")
    assert (ran.returncode, ran.stdout) == (STALE, "abcd"), ran.stderr
    os.symlink("../sibling/secret", place / "granted/file")
    ran = cell(place, TWICE, "--dir", "granted:/data", "--resume", "state")
    assert (ran.returncode, ran.stdout) == (STALE, "abcd"), ran.stderr


def test_path_in_a_changed_state_does_not_lead_out(place):
    suspended(place)
    state = (place / "state").read_bytes()
    place.joinpath("s").write_text("outside!")
    place.joinpath("granted/else").write_text("ABCDEFGH")
    at = state.index(b"\4\0\0\0file")
    for path, expected in ((b"else", (0, "EFGH")), (b"../s", (STALE, "abcd"))):
        (place / "state").write_bytes(state[:at + 4] + path + state[at + 8:])
        ran = cell(place, TWICE, "--dir", "granted:/data", "--resume", "state")
        assert (ran.returncode, ran.stdout) == expected, ran.stderr


def test_resume_needs_the_same_directories(place):
    suspended(place)
    ran = cell(place, TWICE, "--resume", "state")
    assert ran.returncode == 6
    assert "directory '/data', which was not granted\n  grant it with --dir HOST:/data" in ran.stderr


def test_replay_needs_no_directory(place):
    ran = cell(place, TWICE, "--dir", "granted", "--record", "log")
    assert ran.stdout == "abcdefgh"
    (place / "granted/file").unlink()
    again = subprocess.run([CELL, "replay", "log"], capture_output=True, text=True, timeout=60, cwd=place)
    assert again.returncode == 0 and "same: results, fuel and memory hash" in again.stderr, again.stderr


@pytest.mark.parametrize("module, whence, size", [("wasi_snapshot_preview1", (0, 1, 2), 32), ("wasi_unstable", (2, 0, 1), 24)])
def test_both_modules_have_their_own_layouts_of_files(place, module, whence, size):
    """Seeks to 2, by 3 and to the end less 1; then the size of the file, where this module has it."""
    start, here, end = whence
    seek = "(drop (call $fd_seek (i32.const 4) (i64.const {}) (i32.const {}) (i32.const 100)))"
    source = program(f"""
        (drop (call $path_open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 4) (i32.const 0)
          (i64.const {READ | SEEK | 1 << 21}) (i64.const 0) (i32.const 0) (i32.const 50)))
        {seek.format(2, start)} {seek.format(3, here)}
        (i32.store8 (i32.const 0) (i32.load (i32.const 100)))
        {seek.format(-1, end)}
        (i32.store8 (i32.const 1) (i32.load (i32.const 100)))
        (drop (call $fd_filestat_get (i32.const 4) (i32.const 200)))
        (i32.store8 (i32.const 2) (i32.load (i32.const {200 + size})))
        (call $print (i32.const 1) (i32.const 0) (i32.const 3))""",
        "path_open", "fd_seek", "fd_filestat_get", module=module, data='(data (i32.const 0) "file")')
    ran = cell(place, source, "--dir", "granted")
    assert ran.stdout == "\5\7\10", ran.stderr


SERVER = program("""
    (local $conn i32)
    (drop (call $sock_accept (i32.const 3) (i32.const 0) (i32.const 0)))
    (local.set $conn (i32.load (i32.const 0)))
    (i32.store (i32.const 8) (i32.const 1000)) (i32.store (i32.const 12) (i32.const 100))
    (drop (call $sock_recv (local.get $conn) (i32.const 8) (i32.const 1) (i32.const 0) (i32.const 16) (i32.const 20)))
    (i32.store (i32.const 12) (i32.load (i32.const 16)))
    (drop (call $sock_send (local.get $conn) (i32.const 8) (i32.const 1) (i32.const 0) (i32.const 16)))
    (drop (call $sock_shutdown (local.get $conn) (i32.const 3)))""",
    "sock_accept", "sock_recv", "sock_send", "sock_shutdown")


def test_program_answers_on_a_granted_socket_and_replays(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (tmp_path / "server.wat").write_text(SERVER)
    server = subprocess.Popen([CELL, "run", "server.wat", "--listen", f"127.0.0.1:{port}", "--record", "log"], cwd=tmp_path,
                              stderr=subprocess.PIPE, text=True)
    for _ in range(1000):
        try:
            client = socket.create_connection(("127.0.0.1", port))
            break
        except ConnectionRefusedError:
            assert server.poll() is None, server.stderr.read()
            threading.Event().wait(0.02)
    with client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"
        assert client.recv(100) == b""
    assert server.wait(60) == 0, server.stderr.read()
    server.stderr.close()
    again = subprocess.run([CELL, "replay", "log"], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert again.returncode == 0, again.stderr


def children(pid):
    path = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
    found = [int(child) for child in path.read_text().split()] if path.exists() else []
    return [child for child in found if alive(child)]


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(is_so):
    end = patience.clock() + 60
    while not is_so():
        assert patience.clock() < end
        time.sleep(0.01)


def test_worker_and_spawner_end_with_a_killed_command(place):
    """The program waits for a connection for ever: only the end of its parent ends it."""
    (place / "server.wat").write_text(SERVER.replace("(i32.const 3) (i32.const 0) (i32.const 0)", "(i32.const 4) (i32.const 0) (i32.const 0)"))
    command = subprocess.Popen([CELL, "run", "server.wat", "--dir", "granted", "--listen", "127.0.0.1:0"], cwd=place,
                               stderr=subprocess.PIPE, text=True)
    wanted = 2 if os.geteuid() == 0 else 1  # root's spawner stays, because it lent ids
    wait_until(lambda: len(children(command.pid)) == wanted or command.poll() is not None)
    assert command.returncode is None, command.stderr.read()
    left = children(command.pid)
    command.kill()
    command.wait()
    command.stderr.close()
    wait_until(lambda: not any(alive(pid) for pid in left))


@pytest.mark.parametrize("options, text", [
    (["--dir", ""], "--dir must be HOST[:NAME][:ro]"), (["--dir", "a:"], "--dir must be HOST[:NAME][:ro]"),
    (["--dir", "a:/x", "--dir", "b:/x"], "--dir names '/x' twice"),
    (["--listen", "8080"], "--listen 8080: must be ADDRESS:PORT"), (["--listen", "localhost:1"], "must be ADDRESS:PORT")])
def test_wrong_grants_are_refused(tmp_path, options, text):
    ran = cell(tmp_path, program(""), *options)
    assert ran.returncode == 64 and text in ran.stderr


def test_directory_that_does_not_exist_is_named(place):
    ran = cell(place, program(""), "--dir", "missing")
    assert ran.returncode == 4 and "cannot open directory 'missing': No such file" in ran.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only workers of root need id maps")
def test_filesystem_without_id_maps_is_named(place):
    ran = cell(place, program(""), "--dir", "/proc:/proc:ro")
    assert ran.returncode == 4 and "the filesystem of directory '/proc' does not support id maps" in ran.stderr
