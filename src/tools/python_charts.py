# ---- charts: what a figure of matplotlib shows, as data ----

def chart_of(figure):
    """The chart as a dictionary, or None for a figure without data. Call it after the figure was drawn."""
    axes = figure.get_axes()
    if not any(ax.has_data() for ax in axes):
        return None
    if len(axes) == 1:
        return chart_of_axes(axes[0])
    title = getattr(figure, "_suptitle", None)
    return {"type": "superchart", "title": title.get_text() if title else None,
            "elements": [chart_of_axes(ax) for ax in axes]}


def chart_of_axes(ax):
    kind = chart_kind(ax)
    chart = {"type": kind, "title": ax.get_title() or None}
    if kind == "pie":
        chart["elements"] = [{"label": w.get_label(), "angle": round(abs(float(w.theta2) - float(w.theta1)), 4),
                              "radius": float(w.r)} for w in ax.patches]
        return chart
    if kind == "unknown":
        return {**chart, "elements": []}
    for name, text in ("x", ax.get_xlabel()), ("y", ax.get_ylabel()):
        chart[name + "_label"], chart[name + "_unit"] = text or None, chart_unit(text)
    if kind in ("line", "scatter"):
        chart_ticks(chart, "x", ax.xaxis, ax.get_xscale())
        chart_ticks(chart, "y", ax.yaxis, ax.get_yscale())
        chart["elements"] = chart_lines(ax) if kind == "line" else chart_dots(ax)
    else:
        chart["elements"], lies = chart_bars(ax) if kind == "bar" else chart_boxes(ax)
        if lies:  # the labels are those of upright bars
            for part in ("label", "unit"):
                chart["x_" + part], chart["y_" + part] = chart["y_" + part], chart["x_" + part]
    return chart


def chart_kind(ax):
    from matplotlib import collections, lines, patches, text
    drawn = [c for c in ax.get_children() if c in ax.lines or c in ax.patches or c in ax.collections or c in ax.images]
    if all(isinstance(d, lines.Line2D) for d in drawn):
        return "line"
    if all(isinstance(d, (lines.Line2D, patches.PathPatch)) for d in drawn):
        return "box_and_whisker"
    drawn = [d for d in drawn if not (isinstance(d, lines.Line2D) and is_rule(d))]
    for kind, name in ((collections.PathCollection, "scatter"), (patches.Wedge, "pie"), (patches.Rectangle, "bar")):
        if all(isinstance(d, kind) for d in drawn):
            return name
    return "unknown"


def is_rule(line):
    """A straight line from edge to edge, as axhline() draws it, is not data."""
    x, y = list(line.get_xdata()), list(line.get_ydata())
    return len(x) == len(y) == 2 and (x[0] == x[1] or y[0] == y[1])


def chart_unit(label):
    """The unit in "Time (s)" or "Time [s]"."""
    import re
    found = re.search(r"\s\((.*?)\)|\[(.*?)\]", label)
    return (found.group(1) or found.group(2)) if found else None


def chart_label(label, prefix, name):
    rest = label[len(prefix):]
    return "%s %s" % (name, rest) if label.startswith(prefix) and rest.isdigit() else label


def chart_ticks(chart, name, axis, scale):
    converter = type(axis.get_converter() if hasattr(axis, "get_converter") else axis.converter).__name__
    chart[name + "_tick_labels"] = [t.get_text() for t in axis.get_ticklabels()]
    ticks = [float(t) for t in axis.get_ticklocs()]
    if "Date" in converter:
        from matplotlib import dates
        chart[name + "_ticks"], scale = [dates.num2date(t).isoformat() for t in ticks], "datetime"
    else:
        chart[name + "_ticks"] = ticks
        if "Category" in converter and scale == "linear":
            scale = "categorical"
    chart[name + "_scale"] = scale


def chart_value(value):
    if isinstance(value, str):
        return value
    if hasattr(value, "astype") and getattr(value.dtype, "kind", "") == "M":
        return str(value.astype("datetime64[s]"))
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return float(value)


def chart_points(xs, ys):
    return [[chart_value(x), chart_value(y)] for x, y in zip(xs, ys)]


def chart_lines(ax):
    return [{"label": chart_label(line.get_label(), "_child", "Line"),
             "points": chart_points(line.get_xdata(), line.get_ydata())}
            for line in ax.get_lines() if not is_rule(line)]


def chart_dots(ax):
    return [{"label": chart_label(dots.get_label(), "_child", "Dots"),
             "points": chart_points(*zip(*dots.get_offsets())) if len(dots.get_offsets()) else []}
            for dots in ax.collections]


def chart_tick_label(axis, at):
    """The label of the tick at this place, or else the place."""
    for place, label in zip(axis.get_ticklocs(), axis.get_ticklabels()):
        if abs(place - at) < 1e-6 and label.get_text():
            return label.get_text()
    return "%g" % at


def chart_bars(ax):
    bars, lies = [], False
    for group in ax.containers:
        lies = getattr(group, "orientation", "vertical") == "horizontal"
        name = chart_label(group.get_label(), "_container", "Group")
        for bar in group:
            at = bar.get_y() + bar.get_height() / 2 if lies else bar.get_x() + bar.get_width() / 2
            bars.append({"label": chart_tick_label(ax.yaxis if lies else ax.xaxis, at), "group": name,
                         "value": float(bar.get_width() if lies else bar.get_height())})
    return bars, lies


def chart_boxes(ax):
    """Boxes are paths; their medians, whiskers and outliers are lines."""
    lines = [([float(x) for x in line.get_xdata()], [float(y) for y in line.get_ydata()],
              line.get_linestyle() in ("None", "", " ")) for line in ax.lines]
    frames = []
    for patch in ax.patches:
        corners = patch.get_path().vertices
        frames.append([float(n) for n in (min(corners[:, 0]), max(corners[:, 0]), min(corners[:, 1]), max(corners[:, 1]))])
    # A median crosses its box: along it lies the other axis.
    lies = any(len(x) == 2 and x[0] == x[1] and f[0] < x[0] < f[1] and min(y) == f[2] and max(y) == f[3]
               for x, y, loose in lines for f in frames)
    if lies:
        lines = [(y, x, loose) for x, y, loose in lines]
        frames = [f[2:] + f[:2] for f in frames]
    return [chart_box(f, lines, ax.yaxis if lies else ax.xaxis) for f in frames], lies


def chart_box(frame, lines, axis):
    left, right, low, high = frame
    box = {"label": chart_tick_label(axis, (left + right) / 2), "min": low, "first_quartile": low, "median": low,
           "third_quartile": high, "max": high, "outliers": []}
    for x, y, loose in lines:
        if not x or not all(left <= v <= right for v in x):
            continue
        if loose:
            box["outliers"] += y
        elif len(y) == 2 and y[0] == y[1] and low <= y[0] <= high and x[0] != x[1]:
            box["median"] = y[0]
        elif len(y) == 2 and x[0] == x[1] and max(y) == low:
            box["min"] = min(y)
        elif len(y) == 2 and x[0] == x[1] and min(y) == high:
            box["max"] = max(y)
    return box


