"""SQLite for the kernel of that name: its source comes from the distribution when it is measured, and stays out of
this tree. Everything apt needs is kept in a folder of our own; the system's lists and sources are only read."""
import pathlib
import shutil
import subprocess

# One thread, a heap of fixed size, no files; long double is double, because it differs between processors.
FLAGS = ["-w", "-DSQLITE_OS_OTHER=1", "-DSQLITE_THREADSAFE=0", "-DSQLITE_OMIT_LOAD_EXTENSION",
         "-DSQLITE_OMIT_LOCALTIME", "-DSQLITE_OMIT_WAL", "-DSQLITE_ENABLE_MEMSYS5", "-DSQLITE_TEMP_STORE=3",
         "-DSQLITE_DEFAULT_MEMSTATUS=0", "-DLONGDOUBLE_TYPE=double"]
WASI_LIBC = pathlib.Path("/usr/lib/wasm32-wasi/libc.a")


class Unavailable(Exception):
    pass


def sh(*argv, seconds=300, **kw):
    try:
        return subprocess.run([str(a) for a in argv], check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=seconds, **kw).stdout
    except subprocess.CalledProcessError as e:
        last = (e.stdout or "").strip().splitlines()[-1:]
        raise Unavailable(f"{argv[0]} failed: {''.join(last)}") from e
    except (OSError, subprocess.TimeoutExpired) as e:
        raise Unavailable(str(e)) from e


def source_lines():
    """The archives that this system installs from, as places of source packages."""
    format_ = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    places = sh("apt-get", "indextargets", "Created-By: Packages", "--format", format_).splitlines()
    return "".join(f"deb-src {place}\n" for place in sorted(set(places)))


def download(folder):
    (folder / "lists/partial").mkdir(parents=True, exist_ok=True)
    (folder / "sources.list").write_text(source_lines())
    apt = ["apt-get", "-o", f"Dir::Etc::sourcelist={folder}/sources.list", "-o", "Dir::Etc::sourceparts=/dev/null",
           "-o", f"Dir::State::lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache",
           "-o", "APT::Sandbox::User=root", "-o", "Acquire::http::Timeout=15", "-o", "Acquire::Retries=0"]
    sh(*apt, "update", seconds=120)
    sh(*apt, "source", "--download-only", "--tar-only", "sqlite3", cwd=folder)
    return next(folder.glob("sqlite3_*.orig.tar.*"))


def fetch(folder):
    """The folder that holds sqlite3.c and sqlite3.h, or Unavailable with the reason."""
    source = folder / "source"
    if (source / "sqlite3.c").exists():
        return source
    for tool in ["apt-get", "tclsh", "make"]:
        if not shutil.which(tool):
            raise Unavailable(f"needs {tool}")
    if not WASI_LIBC.exists():
        raise Unavailable("needs wasi-libc")
    folder.mkdir(parents=True, exist_ok=True)
    archive = download(folder)
    source.mkdir(exist_ok=True)
    sh("tar", "-xf", archive, "-C", source, "--strip-components=1")
    sh("./configure", "--disable-tcl", cwd=source)
    sh("make", "sqlite3.c", cwd=source)
    return source
