# ---- results: a value in all formats that it has, for callers that show it ----

RESULT_BYTES, RESULT_VALUES = 6 << 20, 60000
FORMATS = ("html", "markdown", "svg", "png", "jpeg", "pdf", "latex", "json", "javascript")
MEDIA = {"text/plain": "text", "text/html": "html", "text/markdown": "markdown", "image/svg+xml": "svg",
         "image/png": "png", "image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex",
         "application/json": "json", "application/javascript": "javascript"}


class TooLarge(Exception):
    pass


def json_safe(value, room):
    """The value as JSON can hold it. room: a list with the number of values that may follow."""
    room[0] -= 1
    if room[0] < 0:
        raise TooLarge
    if hasattr(value, "item") and not isinstance(value, (list, dict)) and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if isinstance(value, dict):
        return {plain(str(k)): json_safe(v, room) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(v, room) for v in value]
    if isinstance(value, str):
        return plain(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 63 else str(value)
    if isinstance(value, float):
        return value if value - value == 0 else None
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        import base64
        return base64.b64encode(value).decode("ascii")
    return plain(str(value))


def tried(call, *words, **named):
    """A format that fails is left out, as the value has others."""
    try:
        return call(*words, **named)
    except Exception:
        return None


def formats_of(value):
    """The formats of a value, by their names."""
    kind, found = type(value), {}
    home = (kind.__module__ or "").split(".")[0]
    if home == "matplotlib" and hasattr(value, "savefig"):
        import io
        data = io.BytesIO()
        value.savefig(data, format="png", bbox_inches="tight")
        found["png"], found["chart"] = data.getvalue(), tried(chart_of, value)
    elif home == "pandas" and kind.__name__ == "DataFrame":
        found["data"] = tried(value.to_dict, orient="list")
    elif kind in (list, dict):
        found["json"] = value
    for name in FORMATS:
        method = getattr(kind, "_repr_%s_" % name, None)
        got = tried(method, value) if callable(method) else None
        found.setdefault(name, got[0] if isinstance(got, tuple) and got else got)
    bundle = getattr(kind, "_repr_mimebundle_", None)
    got = tried(bundle, value, include=None, exclude=None) if callable(bundle) else None
    got = got[0] if isinstance(got, tuple) and got else got
    for media, content in got.items() if isinstance(got, dict) else ():
        found[MEDIA.get(media, media)] = content
    text = found.pop("text", None) or repr(value)
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    return {"text": text, **{k: v for k, v in found.items() if v is not None}}


def fitted(found):
    """The same as JSON. Formats that are too large are left out; the text says which."""
    kept, size, notes = {}, 0, []
    for name, content in found.items():
        try:
            safe = json_safe(content, [RESULT_VALUES])
            length = len(json.dumps(safe))
        except (TooLarge, RecursionError, ValueError):
            length = RESULT_BYTES + 1
        if size + length <= RESULT_BYTES:
            kept[plain(str(name))], size = safe, size + length
        else:
            notes.append("[%s left out: it is too large]" % name)
    if notes:
        kept["text"] = "\n".join([str(kept.get("text", ""))] + notes)
    return kept


class Display:
    """Sends each value as it is shown."""

    def __init__(self, send):
        self.send = send

    def show(self, value, main=False):
        hook = getattr(type(value), "_ipython_display_", None)
        if callable(hook):
            hook(value)
            return
        found = formats_of(value)
        self.send({"event": "result", "main": main, "data": fitted(found)})
        if hasattr(value, "savefig") and "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close(value)

    def figures(self, *words, **named):
        plot = sys.modules.get("matplotlib.pyplot")
        for number in plot.get_fignums() if plot else ():
            self.show(plot.figure(number))


# ---- what notebooks expect ----

class Shell:
    """Lines of a notebook that are not Python: !COMMAND, %pip, %cd and %%bash."""

    @staticmethod
    def run(command):
        import subprocess
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        subprocess.run(command, shell=True, executable="/bin/bash" if os.path.exists("/bin/bash") else None)

    @staticmethod
    def translated(code):
        """The code with such lines as calls, or None if it has none."""
        if code.lstrip().startswith(("%%bash", "%%sh")):
            return "__carrel_shell__(%r)" % code.lstrip().split("\n", 1)[-1]
        lines, changed = [], False
        for line in code.split("\n"):
            bare = line.lstrip()
            call = None
            if bare.startswith("!"):
                call = "__carrel_shell__(%r)" % bare[1:].strip()
            elif bare.startswith(("%pip ", "%conda ")):
                call = "__carrel_shell__(%r)" % (sys.executable + " -m " + bare[1:])
            elif bare.startswith("%cd "):
                call = "__import__('os').chdir(__import__('os').path.expanduser(%r))" % bare[4:].strip()
            elif bare.startswith("%") and not bare.startswith("%%"):
                call = "pass"  # settings of a notebook, such as %matplotlib inline
            changed = changed or call is not None
            lines.append(line if call is None else line[:len(line) - len(bare)] + call)
        return "\n".join(lines) if changed else None


class Notebook:
    """IPython.display for code that imports it: the real one, or if it is not installed, a small one."""

    def __init__(self, display):
        self.display = display

    def find_spec(self, name, path=None, target=None):
        if name == "IPython.core.display_functions":  # the real one shows nothing without a shell
            import importlib.machinery
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            if spec:
                run = spec.loader.exec_module
                spec.loader.exec_module = lambda module: (run(module), setattr(module, "display", self.display))
            return spec
        return None

    def install(self):
        sys.meta_path.insert(0, self)
        last = type("Last", (), {"find_spec": staticmethod(self.find_small)})
        sys.meta_path.append(last)

    def find_small(self, name, path=None, target=None):
        if name not in ("IPython", "IPython.display"):
            return None
        import importlib.machinery
        return importlib.machinery.ModuleSpec(name, self, is_package=name == "IPython")

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        if module.__name__ == "IPython":
            module.get_ipython = lambda: None
            return
        for kind in ("HTML", "Markdown", "SVG", "Latex", "Math", "JSON", "Javascript", "Image"):
            setattr(module, kind, self.kind(kind))
        module.display, module.clear_output = self.display, lambda wait=False: None

    @staticmethod
    def kind(name):
        """A class whose objects show the text, the bytes or the file that they are made of."""
        def made(self, data=None, url=None, filename=None, **named):
            self.data = data
            if filename:
                with open(filename, "rb" if name == "Image" else "r") as f:
                    self.data = f.read()

        def shown(self):
            return "$\\displaystyle %s$" % self.data.strip("$") if name == "Math" else self.data

        def is_jpeg(self):
            return bytes(self.data or b"")[:2] == b"\xff\xd8"

        members = {"__init__": made, "__repr__": lambda self: "<IPython.core.display.%s object>" % name}
        if name == "Image":
            members["_repr_png_"] = lambda self: None if is_jpeg(self) else self.data
            members["_repr_jpeg_"] = lambda self: self.data if is_jpeg(self) else None
        else:
            members["_repr_%s_" % {"Math": "latex"}.get(name, name.lower())] = shown
        return type(name, (), members)


