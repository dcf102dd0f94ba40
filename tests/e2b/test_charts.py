"""Figures and tables of the real matplotlib and pandas as data: the driver of the code interpreter, run on the host.

Debian's packages are unpacked below the build folder if the host does not have them, so that the image of
the host, which all suites copy, stays small.
"""
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from carrel import BUILD
import patience

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "src/tools"
WANTED = re.compile(r"python3?-(numpy|matplotlib|matplotlib-data|contourpy|cycler|dateutil|kiwisolver|pil|pandas|pandas-lib|tz|six|"
                    r"packaging|pyparsing|fonttools)|lib(qhull|raqm|imagequant|webp|blas|lapack|gfortran|lbfgsb|freetype|openjp|tiff|"
                    r"lcms|jpeg|deflate|jbig|lerc|fribidi|harfbuzz|graphite|png)\S*|fonts-lyx")
BOOT = "import json,sys;exec(compile(json.loads(sys.stdin.buffer.raw.readline()),'<carrel>','exec'))"


def fetch(where):
    """Unpacks what apt would install. The reason why that is not possible, or None."""
    if not all(map(shutil.which, ("apt-get", "dpkg-deb"))):
        return "matplotlib is not installed, and this is not a Debian"
    command = ["apt-get", "install", "-s", "--no-install-recommends", "python3-matplotlib", "python3-pandas"]
    plan = subprocess.run(command, capture_output=True, text=True).stdout
    names = [n for n in re.findall(r"^Inst (\S+)", plan, re.M) if WANTED.fullmatch(n)]
    debs = where / "debs"
    shutil.rmtree(where, ignore_errors=True)
    debs.mkdir(parents=True)
    try:
        got = subprocess.run(["apt-get", "download", *names], cwd=debs, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return "Debian's packages did not come within 120 s"
    if got.returncode or not names:
        return "Debian's packages cannot be fetched: " + got.stderr.strip()[-200:]
    for deb in debs.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", deb, where / "root"], check=True)
    shutil.rmtree(debs)
    init = where / "root/usr/lib/python3/dist-packages/matplotlib/__init__.py"  # Debian's has an absolute path
    init.write_text(init.read_text().replace("/usr/share/matplotlib", str(where / "root/usr/share/matplotlib")))
    (where / "done").touch()
    return None


@pytest.fixture(scope="module")
def modules():
    """The environment in which Debian's python3 has both."""
    if all(importlib.util.find_spec(m) for m in ("matplotlib", "pandas")):
        return dict(os.environ)
    where = BUILD / "tests/charts"
    why = None if (where / "done").exists() else fetch(where)
    if why:
        pytest.skip(why)
    libraries = [str(p) for p in where.glob("root/usr/lib/*-linux-gnu")]
    libraries += [str(p) for p in where.glob("root/usr/lib/*-linux-gnu/*") if p.name in ("blas", "lapack")]
    return {**os.environ, "PYTHONPATH": str(where / "root/usr/lib/python3/dist-packages"),
            "LD_LIBRARY_PATH": ":".join(libraries), "MPLCONFIGDIR": str(where),
            "MATPLOTLIBRC": str(where / "root/etc/matplotlibrc")}


class Driver:
    def __init__(self, env):
        self.process = subprocess.Popen([sys.executable, "-c", BOOT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.say("".join((TOOLS / f"python_{part}.py").read_text() for part in ("charts", "results", "driver")))

    def say(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def results(self, code):
        self.say({"id": "k", "code": code, "stream": True, "env": {}, "most": 1000})
        results = []
        while True:
            line = json.loads(self.process.stdout.readline())
            assert line.get("event") != "error", line["traceback"]
            if "status" in line:
                return results
            if line["event"] == "result":
                results.append(line["data"])

    def chart(self, code):
        result, = self.results(code + "\nplt.show()")
        assert result["png"].startswith("iVBORw0KGgo") and set(result) == {"text", "png", "chart"}
        return result["chart"]


@pytest.fixture(scope="module")
def driver(modules):
    d = Driver(modules)
    d.results("import matplotlib.pyplot as plt, pandas as pd, datetime")
    yield d
    d.process.stdin.close()
    d.process.wait(60 * patience.PATIENCE)


def test_line_has_labels_units_and_points(driver):
    c = driver.chart('plt.plot([1, 2, 3], [1.5, 4, 9], label="l")\nplt.axhline(4)\nplt.title("T")\n'
                     'plt.xlabel("Time (s)")\nplt.ylabel("Way [m]")')
    assert [c[k] for k in ("type", "title", "x_label", "x_unit", "y_unit", "x_scale")] == ["line", "T", "Time (s)", "s", "m", "linear"]
    assert c["elements"] == [{"label": "l", "points": [[1, 1.5], [2, 4], [3, 9]]}]
    assert len(c["x_ticks"]) == len(c["x_tick_labels"]) > 0 and all(isinstance(t, float) for t in c["x_ticks"])
    assert driver.chart("plt.plot([1])")["elements"][0]["label"] == "Line 0"


def test_scales_of_axes(driver):
    dates = driver.chart("plt.plot([datetime.date(2024, 1, d) for d in (1, 2)], [1, 2])")
    assert (dates["x_scale"], dates["elements"][0]["points"][1]) == ("datetime", ["2024-01-02", 2])
    assert datetime_like(dates["x_ticks"][0])
    assert driver.chart('plt.plot([1, 2], [10, 1000])\nplt.yscale("log")')["y_scale"] == "log"
    assert driver.chart('plt.plot([1, 2], ["a", "b"])')["y_scale"] == "categorical"


def datetime_like(text):
    return re.fullmatch(r"\d{4}-\d\d-\d\dT.*", text)


def test_dots_bars_and_pies(driver):
    dots = driver.chart('plt.scatter([1, 2], [3, 4], label="d")\nplt.grid(True)')
    assert (dots["type"], dots["elements"]) == ("scatter", [{"label": "d", "points": [[1, 3], [2, 4]]}])
    bars = driver.chart('plt.bar(["a", "b"], [1, 1], label="g")\nplt.xlabel("x")')
    assert bars["elements"] == [{"label": n, "group": "g", "value": 1} for n in "ab"] and bars["x_label"] == "x"
    lying = driver.chart('plt.barh(["a", "b"], [1, 2])\nplt.xlabel("x")')
    assert lying["y_label"] == "x" and [(e["label"], e["value"]) for e in lying["elements"]] == [("a", 1), ("b", 2)]
    pie = driver.chart('plt.pie([90, 10], labels=["n", "y"])')
    assert pie["elements"] == [{"label": "n", "angle": 324, "radius": 1}, {"label": "y", "angle": 36, "radius": 1}]


@pytest.mark.parametrize("upright", (True, False))
def test_boxes_have_quartiles_and_outliers(driver, upright):
    c = driver.chart(f'plt.boxplot([[1, 2, 3, 4, 5, 30], [5, 6, 7]], labels=["u", "v"], patch_artist=True, vert={upright})')
    assert c["type"] == "box_and_whisker" and [e["label"] for e in c["elements"]] == ["u", "v"]
    assert c["elements"][0] == {"label": "u", "min": 1, "first_quartile": 2.25, "median": 3.5, "third_quartile": 4.75, "max": 5,
                                "outliers": [30]}


def test_several_axes_are_one_superchart(driver):
    c = driver.chart('f, (a, b) = plt.subplots(1, 2)\nf.suptitle("S")\na.plot([1, 2])\nb.scatter([1], [2])')
    assert (c["type"], c["title"], [e["type"] for e in c["elements"]]) == ("superchart", "S", ["line", "scatter"])
    assert driver.chart("plt.imshow([[1, 2]])")["type"] == "unknown"


def test_figures_are_shown_where_the_code_shows_them(driver):
    got = driver.results("plt.plot([1])\nplt.show()\nplt.plot([2])\nplt.show()\n5")
    assert [("chart" in r, r["text"]) for r in got][2] == (False, "5") and len(got) == 3
    assert len(driver.results("plt.plot([1]); None")) == 1
    assert len(driver.results("f = plt.figure(); plt.plot([1]); f")) == 1
    many, = driver.results("plt.plot(range(100000)); plt.show()")
    assert "chart" not in many and "[chart left out: it is too large]" in many["text"] and many["png"]


def test_tables_have_their_columns(driver):
    table, = driver.results('pd.DataFrame({"a": [1, 2], "t": pd.to_datetime(["2024-01-02", "2024-01-03"])})')
    assert table["data"] == {"a": [1, 2], "t": ["2024-01-02T00:00:00", "2024-01-03T00:00:00"]}
    assert "<table" in table["html"] and table["text"].splitlines()[0].split() == ["a", "t"]
