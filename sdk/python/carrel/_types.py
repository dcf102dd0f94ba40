"""Types of the API. Written by sdk/generate from the OpenAPI document. Do not edit."""
from typing import Any, Dict, List, Literal, NotRequired, TypedDict, Union


class Freeze(TypedDict):
    # absolute path of a directory in the machine, or of a granted database (default /outbox)
    path: NotRequired[str]
    # path in the machine of the grant that the work started from (default: the same path)
    slice: NotRequired[str]
    # of a granted directory (dir, cow), freeze only what the machine changed; the answer says whether
    # this was possible
    changes_only: NotRequired[bool]


class ChangeSet(TypedDict):
    id: str
    owner: str
    machine: str
    path: str
    # name of the machine when the change set was made
    machine_name: NotRequired[str]
    # path in the machine of the grant that the work started from
    slice: str
    # id of the grant that the work started from
    grant: NotRequired[str]
    # kind of the grant
    kind: NotRequired[Literal["dir", "repo", "sqlite", "postgres"]]
    # path or name of the granted object on the owner's side
    home: NotRequired[str]
    # repo: branch or tag that was cloned
    ref: NotRequired[str]
    # sqlite: SHA-256 of the granted copy of the database
    base_sha256: NotRequired[str]
    # the grant was revoked later: shipping needs an explicit target
    revoked: bool
    # the archive has only what the machine changed, and the baseline only these paths and what was
    # deleted
    changes_only: bool
    # SHA-256 of the archive of the change set
    sha256: str
    # first untrusted source that the machine had read from
    tainted: NotRequired[str]
    # without a grant: paths of files that are unchanged since the image
    image_files: NotRequired[List[str]]
    # size of the archive of the change set
    bytes: int
    created: str
    # when the machine was created, in milliseconds since 1970
    machine_ms: int
    # what became of it; absent in the answer to a freeze. returned: to the model, with a comment;
    # dropped: its files were deleted because it was old
    state: NotRequired[Literal["pending", "returned", "shipped", "undone", "superseded", "dropped"]]
    # superseded: the change set that was frozen later of the same, or with the same content and shipped
    # or undone before
    instead: NotRequired[str]


class ChangeSets(TypedDict):
    # without `image_files`
    changesets: List["ChangeSet"]
    # cursor of the next page; absent on the last page
    next: NotRequired[str]


class Ship(TypedDict):
    action: Literal["ship", "shipped", "undo", "undone"]
    # directory, branch or file to ship to, as text for the journal
    target: str
    # SHA-256 of the list of changes (hashes and paths)
    sha256: str
    files: int
    # shipped, undone: `record` from the answer to ship or undo
    intent: NotRequired[int]
    # shipped, undone: present state of these files, in the format of GET /v1/changesets/{changeset}/base
    now: NotRequired[str]


class Shipped(TypedDict):
    changeset: str
    sha256: str
    # number of the journal record
    record: int


class RunStart(TypedDict):
    # the task, as text
    task: str
    # id or name of the machine (default: a new machine without grants)
    machine: NotRequired[str]
    # PROVIDER/MODEL (default: from carrel.conf); for a provider of carrel.conf a token needs the scope
    # admin
    model: NotRequired[str]
    # script of model answers for `rehearsal`, a provider for tests
    script: NotRequired[str]
    # free (default), plan-then-execute, action-selector, map or handles
    mode: NotRequired[str]
    # action-selector: allowed tool calls, as JSON
    menu: NotRequired[str]
    # set `guard` of the machine; see MachineRequest
    guard: NotRequired[bool]
    # environment variables of the provider, kept in memory for this run only; a token needs the scope
    # admin to set its base URL
    keys: NotRequired[Dict[str, str]]
    # limit of model turns (default 200)
    turns: NotRequired[int]
    # limit of tokens of all kinds (default: unlimited)
    tokens: NotRequired[int]
    # limit of cost, in millionths of the price unit (default: unlimited)
    money_micro: NotRequired[int]
    # limit of wall-clock time, without waiting for approvals (default: unlimited)
    timeout: NotRequired[Union[float, str]]
    # plan-then-execute: ask the owner about a tool call that is not in the plan, instead of refusing it
    ask_deviations: NotRequired[bool]
    # number of parallel attempts, on forks of the machine or on new machines; only the best machine is
    # kept, and all attempts share the limits of tokens and cost
    tries: NotRequired[int]
    # tries: command that exits with 0 if the work is good
    check: NotRequired[str]
    # tries: files for the check by absolute path, which replace those in the machine; at most 1 MiB in
    # total
    check_files: NotRequired[Dict[str, str]]
    # tries: use these machines, one per attempt; all but the best are removed, and all if the run is
    # cancelled
    machines: NotRequired[List[str]]


class RunResume(TypedDict):
    # same as in the request that started the run
    keys: NotRequired[Dict[str, str]]
    # for a run that has ended: continue its work with this message
    comment: NotRequired[str]
    # idempotency key of `comment`: a repeated request does not add it twice
    key: NotRequired[str]


class RunAnswer(TypedDict):
    # id of the question, from `question` of the run
    question: str
    # decision of the user about the question (default: accept)
    action: NotRequired[Literal["accept", "decline", "cancel"]]
    # text of the answer, for accept
    answer: NotRequired[str]


class Run(TypedDict):
    id: str
    owner: str
    machine: str
    model: str
    task: str
    mode: Literal["free", "plan-then-execute", "action-selector", "map", "handles"]
    state: Literal["running", "waiting", "interrupted", "ended"]
    # how the run ended
    status: NotRequired[Literal["done", "partial", "blocked", "budget", "stuck", "format_error", "refused", "failed", "cancelled"]]
    # why the run was interrupted
    reason: NotRequired[str]
    # question whose answer the run waits for, with its id
    question: NotRequired[Dict[str, Any]]
    created: str
    # number of model turns
    turns: int
    # number of tool calls
    calls: int
    # tokens used
    tokens: int
    # cost in millionths of the price unit
    cost_micro: int
    # wall-clock time used
    wall_ms: int
    # number of lines of the transcript
    lines: int
    # work done, evidence, work left
    report: NotRequired[Dict[str, Any]]


class Runs(TypedDict):
    runs: List["Run"]


class TokenRequest(TypedDict):
    # owner of machines made with the token (default: the caller)
    owner: NotRequired[str]
    # free text that says what the token is for
    note: NotRequired[str]
    # rights of the token: one or more of read, run, admin
    scopes: NotRequired[List[str]]
    # quota: number of machines
    machines: NotRequired[int]
    # quota: processors of all machines
    cpus: NotRequired[Union[float, str]]
    # quota: memory of all machines
    mem: NotRequired[Union[float, str]]
    # quota: disk of all machines
    disk: NotRequired[Union[float, str]]
    # quota: longest ttl (time to live) of a machine
    max_ttl: NotRequired[Union[float, str]]


class Token(TypedDict):
    id: str
    owner: str
    note: NotRequired[str]
    # the secret text of the token; only in the response that creates it
    secret: NotRequired[str]
    scopes: str
    created: str
    # time of the last use, accurate to one minute
    used: NotRequired[str]
    revoked: NotRequired[str]
    # quota of machines; 0: unlimited
    machines: int
    # quota of processors; 0: unlimited
    cpus: float
    # quota of memory; 0: unlimited
    mem: int
    # quota of disk space; 0: unlimited
    disk: int
    # quota: longest ttl (time to live) of a machine; 0: unlimited
    max_ttl_ms: int


class Tokens(TypedDict):
    tokens: List["Token"]


class Verification(TypedDict):
    whole: bool
    records: int
    segments: int
    # number of the first record; greater than 1 if older records were deleted
    first: int
    # number and hash of the last record, as SEQ:HASH
    head: str
    # number of the last record that a signature covers
    signed: int
    problem: NotRequired[str]
    # journal file with the first broken record
    segment: NotRequired[str]
    line: NotRequired[int]
    seq: NotRequired[int]


class Status(TypedDict):
    version: str
    pid: int
    # commands that run now; without the scope admin only your own
    commands: int
    # number of machines in each state; without the scope admin only your own
    machines: Dict[str, int]
    store: "Room"
    # calls of each tool since the daemon started, as in Stats; requires the scope admin
    tools: NotRequired[List["ToolCount"]]
    # kernel of vms that carrel.conf names; absent: one of /boot
    vm_kernel: NotRequired[str]
    # status of the spawner (process that makes boxes); counters require the scope admin
    box: NotRequired[Dict[str, Any]]
    box_error: NotRequired[str]


class Agents(TypedDict):
    # token budget of a machine of an agent; 0: no limit
    tokens: int
    # money budget of a machine of an agent; 0: no limit
    money: str
    currency: str
    # model formats (anthropic, chat, responses, gemini) whose provider has its key
    formats: List[str]
    # agents of carrel.conf, each with name, image, start, once, resume and env
    agents: List[Dict[str, Any]]


class Models(TypedDict):
    # model of runs that name none; empty: none
    default: str
    currency: str
    # each with name, format, ready (a run of the caller can call it without a key of its own), key_env or
    # key_secret (only for the user of the daemon: name of the variable of the daemon's environment, or of
    # the secret, that holds the API key), url (requires the scope admin), and if it is not ready what is
    # missing
    providers: List[Dict[str, Any]]
    # each with name and models, in the order in which they are tried
    aliases: List[Dict[str, Any]]
    # models of carrel.conf, each with name, window, max_tokens and prices of a million tokens: in, out,
    # cache_read, cache_write, cache_write_long
    models: List[Dict[str, Any]]


class ModelUsage(TypedDict):
    # day, model, machine or owner
    by: str
    currency: str
    # newest day, or dearest model, machine or owner first: each with that member, calls, tokens, in (not
    # from a cache), cache_read, cache_write, out and money. Calls whose usage is not known count as
    # estimated, in tokens and money only
    usage: List[Dict[str, Any]]


class MkdirRequest(TypedDict):
    path: str
    # mode as a decimal number (default 493, which is 0755)
    mode: NotRequired[int]
    # fail if the parent directory is missing or the directory exists
    exact: NotRequired[bool]
    # act as user, root, or a numeric uid (default: the image's user)
    user: NotRequired[str]


MoveRequest = TypedDict("MoveRequest", {
    "from": str,
    "to": str,
    # fail if `to` exists
    "no_replace": NotRequired[bool],
    # act as user, root, or a numeric uid (default: the image's user)
    "user": NotRequired[str],
})


class ChmodRequest(TypedDict):
    path: str
    # mode in octal, such as 644
    mode: str
    # act as user, root, or a numeric uid (default: the image's user)
    user: NotRequired[str]


class ChownRequest(TypedDict):
    path: str
    # numeric id of the new owner (uid)
    owner: NotRequired[int]
    # numeric id of the new group (gid)
    group: NotRequired[int]
    # act as user, root, or a numeric uid (default: the image's user)
    user: NotRequired[str]


class SymlinkRequest(TypedDict):
    # target of the link
    target: str
    # path of the link
    path: str
    # act as user, root, or a numeric uid (default: the image's user)
    user: NotRequired[str]


class Entry(TypedDict):
    name: str
    type: Literal["file", "directory", "symlink", "other"]
    # permission bits in octal
    mode: str
    size: int
    uid: int
    gid: int
    modified: NotRequired[str]
    # target of a symlink
    target: NotRequired[str]


class Entries(TypedDict):
    entries: List["Entry"]
    # cursor of the next page; absent on the last page
    next: NotRequired[str]


class Written(TypedDict):
    # SHA-256 of the file after the write
    sha256: NotRequired[str]
    size: NotRequired[int]
    # entries of the archive that were skipped, with a reason; one line per entry
    left_out: NotRequired[str]


MachineRequest = TypedDict("MachineRequest", {
    # kind of machine (default: box)
    "kind": NotRequired[Literal["box", "cell", "vm"]],
    # image to start from (default: host)
    "image": NotRequired[str],
    "hostname": NotRequired[str],
    # name of the machine, unique among the owner's machines that have not ended
    "name": NotRequired[str],
    "limits": NotRequired["LimitsRequest"],
    # apply `on_ttl` to the machine after this time from now; 0: never
    "ttl": NotRequired[Union[float, str]],
    # at the end of the ttl: destroy the machine (default), or pause it, without a ttl from then on; a
    # machine that cannot be paused is stopped
    "on_ttl": NotRequired[Literal["destroy", "pause"]],
    # apply `idle_action` after this time without use; 0: never
    "idle": NotRequired[Union[float, str]],
    # action when idle; release: delete the machine if it is unchanged, else stop it
    "idle_action": NotRequired[Literal["pause", "stop", "destroy", "release"]],
    # when to take a step (restore point): after every change, before a risky command, or on request
    "steps": NotRequired[Literal["every", "risky", "manual"]],
    # cell: capabilities of its programs, such as `log,args`; a token needs the scope admin
    "allow": NotRequired[str],
    # names and values for the caller's own use
    "metadata": NotRequired[Dict[str, str]],
    # environment variables of every command in the machine
    "env": NotRequired[Dict[str, str]],
    # directories to grant
    "dirs": NotRequired[List["DirRequest"]],
    # volumes to attach; a token needs the scope admin
    "volumes": NotRequired[List["VolumeUse"]],
    # network rules (default: nothing is reachable)
    "net": NotRequired[List["NetRule"]],
    # secrets to grant, each for one host; the machine sees placeholders
    "secrets": NotRequired[List["SecretGrant"]],
    # other grants; descriptors of files follow those of directories
    "grants": NotRequired[List["GrantRequest"]],
    # revoke all grants after this time
    "expires": NotRequired[Union[float, str]],
    "models": NotRequired["ModelsRequest"],
    # required for mode rw: writes go to the host without review
    "unreviewed": NotRequired[bool],
    # once the machine has read untrusted data, only rules with `tainted` stay in force
    "guard": NotRequired[bool],
    # idempotency key: a repeated request creates no second machine
    "key": NotRequired[str],
    # start as a copy of a machine or of MACHINE@STEP, as a fork does, or from an image; limits,
    # variables, rules and grants of this request come on top
    "from": NotRequired[str],
})


class UpdateRequest(TypedDict):
    # name of the machine, unique among the owner's machines that have not ended
    name: NotRequired[str]
    limits: NotRequired["LimitsRequest"]
    # apply `on_ttl` to the machine after this time from now; 0: never
    ttl: NotRequired[Union[float, str]]
    # at the end of the ttl: destroy the machine (default), or pause it, without a ttl from then on; a
    # machine that cannot be paused is stopped
    on_ttl: NotRequired[Literal["destroy", "pause"]]
    # apply `idle_action` after this time without use; 0: never
    idle: NotRequired[Union[float, str]]
    # action when idle; release: delete the machine if it is unchanged, else stop it
    idle_action: NotRequired[Literal["pause", "stop", "destroy", "release"]]
    # when to take a step (restore point): after every change, before a risky command, or on request
    steps: NotRequired[Literal["every", "risky", "manual"]]
    # cell: capabilities of its programs, such as `log,args`; a token needs the scope admin
    allow: NotRequired[str]
    # names and values for the caller's own use
    metadata: NotRequired[Dict[str, str]]
    models: NotRequired["ModelsRequest"]


class LimitsRequest(TypedDict):
    # limit of memory
    mem: NotRequired[Union[float, str]]
    # limit of processors, at least 0.01
    cpus: NotRequired[Union[float, str]]
    # limit of processes and threads
    pids: NotRequired[int]
    # limit of bytes on the machine's disk
    disk: NotRequired[Union[float, str]]
    # cell: limit of fuel (instructions) of each command
    fuel: NotRequired[int]
    # cell: limit of fuel per second of each command; 0: none
    fuel_rate: NotRequired[int]


class NetRule(TypedDict):
    # action of the rule (default: allow)
    action: NotRequired[Literal["allow", "deny", "ask"]]
    # [http://|https://|tcp://]HOST[:PORT][/PATH]; HOST is a name, *.suffix, an address, a range of IPv4
    # addresses, or *; or a preset: apt, npm, pip, cargo, go
    target: str
    # HTTP methods, such as GET,HEAD; requires http:// or https:// in `target`
    methods: NotRequired[str]
    # also allow private, loopback and other non-public addresses
    local: NotRequired[bool]
    # responses are trusted: they do not taint the machine (mark it as having read untrusted data)
    trusted: NotRequired[bool]
    # keep this rule after a guarded machine has read untrusted data (is tainted)
    tainted: NotRequired[bool]
    # limit of the bytes sent plus received under this rule; then the connection is cut
    bytes: NotRequired[Union[float, str]]
    # limit of bytes per second, for all connections under this rule together
    rate: NotRequired[Union[float, str]]
    # ask: how long a request waits for approval (default 2m, at most 290 s)
    hold: NotRequired[Union[float, str]]
    # delete the rule after this time
    ttl: NotRequired[Union[float, str]]


class Network(TypedDict):
    machine: str
    # whether the gate accepts connections of this machine
    listening: bool
    # action if no rule matches: deny
    default: str
    # whether the network closes once the machine has read untrusted data
    guarded: bool
    # first untrusted source that the machine read from
    tainted: NotRequired[str]
    # when the machine was tainted, in milliseconds since 1970
    tainted_ms: NotRequired[int]
    # warning that the machine has private data, untrusted content and network access at once, or that a
    # mirror of a preset has a private address
    warnings: NotRequired[str]
    # network rules, oldest first
    rules: List["Rule"]


class ModelsRequest(TypedDict):
    # allow models at http://models.carrel; a limit implies this
    allow: NotRequired[bool]
    # limit of tokens; 0: unlimited
    tokens: NotRequired[int]
    # limit of cost, in the unit of the prices in carrel.conf; 0: unlimited
    money: NotRequired[Union[float, str]]


class SecretRequest(TypedDict):
    # value of the secret: one line of 8 to 8192 bytes
    value: str


class LoginRequest(TypedDict):
    # claude: token of `claude setup-token`; codex: text of the file auth.json of a ChatGPT login
    value: str


class Logins(TypedDict):
    # logins, each with name, created_ms, changed_ms, used_ms, expires_ms and problem
    logins: List["Login"]


class GrantRequest(TypedDict):
    kind: Literal["file", "env", "secret", "repo", "sqlite", "postgres", "identity", "login"]
    # granted object: path on the host, sent with a descriptor or below a root of carrel.conf; or a name;
    # postgres: name of the secret that holds the server URL; login: claude or codex
    what: str
    # path in the machine; secret: host that receives it; identity: e-mail address
    at: NotRequired[str]
    # secret: header (default), basic or query; repo: branch or tag (granted as a bundle)
    mode: NotRequired[str]
    # env: value of the variable; repo: default author of commits, NAME <MAIL> (default: agent
    # <agent@agents.invalid>); postgres: server URL instead of a secret,
    # postgres://USER:PASSWORD@HOST:PORT/TEMPLATE
    value: NotRequired[str]
    # revoke the grant after this time
    expires: NotRequired[Union[float, str]]
    # the content is untrusted: it taints the machine (marks it as having read untrusted data)
    untrusted: NotRequired[bool]


SecretGrant = TypedDict("SecretGrant", {
    # name of the secret and of the environment variable
    "name": str,
    # the only host that receives the value of the secret, inside TLS
    "host": str,
    # where a request may carry the secret: header (default), password (basic) or query
    "as": NotRequired[Literal["header", "basic", "query"]],
})


class ExposeRequest(TypedDict):
    # port inside the machine
    port: int
    # whoever reaches the address may use the port, without a token
    public: NotRequired[bool]


class Exposure(TypedDict):
    machine: str
    port: int
    # URL of the port for a browser, with the token
    url: str
    # the same port for programs, without a host name: send `headers`; absent with TLS
    direct_url: NotRequired[str]
    # headers for direct_url: Carrel-Port, and Carrel-Token where the answer has a token
    headers: NotRequired[Dict[str, str]]
    # the port is public, and has no token
    public: NotRequired[bool]
    # token of a private port, only in this response; send it in the header Carrel-Token
    token: NotRequired[str]
    # the port was exposed before, and its earlier token is now invalid
    replaced: NotRequired[bool]


class Exposures(TypedDict):
    machine: str
    # exposed ports, each with port, url, direct_url and headers
    exposures: List["Port"]


class Secrets(TypedDict):
    # secrets, each with name, created_ms, changed_ms and used_ms
    secrets: List["Secret"]


class Grants(TypedDict):
    machine: str
    # warning that the machine has private data, untrusted content and network access at once
    warnings: NotRequired[str]
    # grants, each with id, kind, what, at, mode, created_ms, expires_ms, detail
    grants: List["Grant"]


class GrantDiff(TypedDict):
    machine: str
    grant: str
    # kind of database
    kind: Literal["sqlite", "postgres"]
    # path or name of the database on the owner's side
    what: str
    # path in the machine
    at: str
    # true if the database is the same as when it was granted
    same: NotRequired[bool]
    # lines that begin with - (when granted) or + (now); sqlite: schema and rows; postgres: relations,
    # routines, and for each table its row count and a checksum
    diff: NotRequired[str]
    # the diff is incomplete: it reached its size limit
    cut: NotRequired[bool]
    # postgres: name of the database on the server; it is dropped when the grant ends
    database: NotRequired[str]
    # postgres: why the state of the database is unknown
    error: NotRequired[str]


class Approval(TypedDict):
    decision: Literal["approve", "deny", "answer"]
    # answer: what the machine is told
    text: NotRequired[str]
    # also add the network rule that the pending item shows as `always`
    always: NotRequired[bool]
    # also add the network rule `always` of the pending item, for this time
    ttl: NotRequired[Union[float, str]]


class Pending(TypedDict):
    # pending items, each with id, machine, host, port, protocol, method, path, query, body, body_sha256,
    # rule, always or no_rule, left_ms ...
    pending: List["PendingItem"]


class Decided(TypedDict):
    # number of the added network rule
    rule: NotRequired[int]
    # text of the added network rule
    added: NotRequired[str]


class DirRequest(TypedDict):
    # directory on the host, sent with a descriptor or below a root of carrel.conf
    path: str
    # path in the machine (default: the same path)
    at: NotRequired[str]
    # ro: read-only; cow (default): a copy; rw: writable
    mode: NotRequired[Literal["ro", "cow", "rw"]]
    # the content is untrusted: it taints the machine (marks it as having read untrusted data)
    untrusted: NotRequired[bool]


class VolumeUse(TypedDict):
    # name of the volume, or NAME@SNAPSHOT
    name: str
    # path in the machine
    at: str
    # ro: read-only; cow: changes stay in the machine; rw (default): writable, for one machine at a time.
    # A snapshot is ro by default and never rw
    mode: NotRequired[Literal["ro", "cow", "rw"]]


TimerRequest = TypedDict("TimerRequest", {
    # the command and its arguments
    "argv": NotRequired[List[str]],
    # a task of upkeep, instead of argv: install security updates, delete old files, or restart failed
    # units of systemd
    "task": NotRequired[Literal["updates", "cleanup", "units"]],
    # run as this user (default: that of the image)
    "user": NotRequired[str],
    # run again and again, at least a minute apart
    "every": NotRequired[Union[float, str]],
    # time until the first run
    "in": NotRequired[Union[float, str]],
    # time of the first run, in milliseconds since 1970; without it and `in`: after `every`
    "at_ms": NotRequired[int],
})


VolumeRequest = TypedDict("VolumeRequest", {
    # name of the volume, unique among those of the owner
    "name": str,
    # limit of bytes in the volume (default: 1G)
    "size": NotRequired[Union[float, str]],
    # volume or snapshot to copy, which no machine may have; the copy has its size
    "from": NotRequired[str],
})


class VolumeSnapRequest(TypedDict):
    # name of the snapshot (default: the time)
    name: NotRequired[str]


class DesktopRequest(TypedDict):
    # width in pixels of a desktop that does not run yet (default 1280)
    width: NotRequired[int]
    # height in pixels of a desktop that does not run yet (default 800)
    height: NotRequired[int]


class DesktopInput(TypedDict):
    action: Literal["click", "move", "scroll", "type", "key"]
    # click, move, scroll: pixels from the left edge of the screenshot
    x: NotRequired[int]
    # click, move, scroll: pixels from its upper edge
    y: NotRequired[int]
    # click: drag to this point
    to_x: NotRequired[int]
    # click: drag to this point
    to_y: NotRequired[int]
    # click (default left)
    button: NotRequired[Literal["left", "middle", "right"]]
    # click: 2 is a double click
    count: NotRequired[int]
    # scroll (default down)
    direction: NotRequired[Literal["up", "down", "left", "right"]]
    # scroll: steps of the wheel (default 3)
    amount: NotRequired[int]
    # type: the text; key: keys such as ctrl+s or Return, several separated by spaces
    text: NotRequired[str]
    # click, scroll: keys that are held down meanwhile, such as shift
    hold: NotRequired[str]


class Desktop(TypedDict):
    # width in pixels
    width: int
    # height in pixels
    height: int
    # DISPLAY of the programs that use the desktop
    display: str


Volume = TypedDict("Volume", {
    # name of the volume, or NAME@SNAPSHOT
    "name": str,
    "id": str,
    # limit of bytes in the volume
    "size": int,
    # bytes on the disk of the store
    "used_bytes": int,
    # when it was made, in milliseconds since 1970
    "created_ms": int,
    # name of the volume or snapshot that it was copied from
    "from": NotRequired[str],
    # machines that have it, each with machine, at and mode
    "machines": List["VolumePlace"],
})


class Volumes(TypedDict):
    volumes: List["Volume"]


class Timer(TypedDict):
    id: str
    machine: str
    # the command and its arguments
    argv: List[str]
    # task of upkeep; argv is empty
    task: NotRequired[str]
    user: NotRequired[str]
    # time between two runs; left out: it runs once
    every_ms: NotRequired[int]
    # time of the next run, in milliseconds since 1970; 0: none
    next_ms: int
    created_ms: int
    # how often its command was started
    runs: int
    # runs left out because no daemon ran at their time
    missed: int
    # time of the last run
    last_ms: NotRequired[int]
    # id of the command of the last run
    last_exec: NotRequired[str]
    # exit status of the last run; -1: none; left out: it has not ended
    last_status: NotRequired[int]
    # why the last run did not start
    error: NotRequired[str]


class Timers(TypedDict):
    timers: List["Timer"]


class BackupPruneRequest(TypedDict):
    # number of backups to keep, the newest ones
    keep: int


BackupRestoreRequest = TypedDict("BackupRestoreRequest", {
    # name of the new machine (default: none)
    "as": NotRequired[str],
})


class Backup(TypedDict):
    id: str
    # id of the machine
    machine: str
    # name of the machine when the backup was made
    name: NotRequired[str]
    # when it was complete, in milliseconds since 1970
    created_ms: int
    # files, directories and links in it
    files: int
    # bytes of its files
    bytes: int
    # bytes that it added to the store: the rest is in earlier backups
    written_bytes: int


class Backups(TypedDict):
    backups: List["Backup"]


class BackupVerified(TypedDict):
    id: str
    # files that were read
    packs: int
    # bytes that were read
    bytes: int


class BackupForgotten(TypedDict):
    # number of backups that were deleted
    forgotten: int


class ExecRequest(TypedDict):
    # program and arguments; exclusive with `command`
    argv: NotRequired[List[str]]
    # command line for bash, or for /bin/sh if the machine has no /bin/bash; exclusive with `argv`
    command: NotRequired[str]
    # variables added to those of the machine
    env: NotRequired[Dict[str, str]]
    # working directory (default: the first directory or repository that the machine was created with, or
    # home)
    cwd: NotRequired[str]
    # run the command as this user of the machine: a name or a uid (default user)
    user: NotRequired[str]
    # complete standard input, as text
    stdin: NotRequired[str]
    # complete standard input, as base64
    stdin_base64: NotRequired[str]
    # keep standard input open for requests to /stdin (default: close it)
    stdin_open: NotRequired[bool]
    # kill the command and its descendants after this time
    timeout: NotRequired[Union[float, str]]
    # run the command in a terminal
    terminal: NotRequired[bool]
    size: NotRequired["Size"]
    # unix socket only: null or fd (a pipe) for each stream; the fds come with the request. Output is also
    # kept (unless kill_left), and the pipes end with the command
    stdio: NotRequired[List[str]]
    # kill the remaining descendants of the command when it ends
    kill_left: NotRequired[bool]
    # name of the command; no other running command of the machine may have it
    name: NotRequired[str]
    # respond when the command has started, not when it has ended
    background: NotRequired[bool]
    # the command is part of another action, such as a review: take no step for it, and leave it out of
    # lists and events; the next step has its changes, if it leaves any
    no_step: NotRequired[bool]
    # maximum bytes of each stream in the response (default 1 MiB)
    output_max: NotRequired[Union[float, str]]
    # idempotency key: the command runs at most once
    key: NotRequired[str]


class RunRequest(TypedDict):
    machine: NotRequired["MachineRequest"]
    exec: "ExecRequest"


class SignalRequest(TypedDict):
    # signal to send, such as TERM, SIGTERM or 15
    signal: str
    # signal only the first process, not its process group
    main_only: NotRequired[bool]


class Size(TypedDict):
    # rows of the terminal (default 24)
    rows: NotRequired[int]
    # columns of the terminal (default 80)
    cols: NotRequired[int]


class SnapRequest(TypedDict):
    # name of the step; a step with a name is never deleted
    name: NotRequired[str]
    # vm: save its memory too, so that a rewind to the step resumes its processes
    memory: NotRequired[bool]


class StepName(TypedDict):
    # new name of the step; empty: it has none, and may be deleted when it is old
    name: str


class RewindRequest(TypedDict):
    # number, id or name of the step, `last`, or `start`: the machine as created
    step: str
    # proceed even if the host's packages have changed
    drifted: NotRequired[bool]
    # if the step has no restore point, return to the newest one before it; a rewind ends all processes of
    # the machine
    stop_processes: NotRequired[bool]


class ReinstallRequest(TypedDict):
    # keep the files in /home and /root
    keep_home: NotRequired[bool]


class HibernateRequest(TypedDict):
    # take a step and end every process; memory is lost
    files_only: NotRequired[bool]


class KindRequest(TypedDict):
    # the new kind
    kind: Literal["vm"]
    # memory of the vm (default: the limit that was set for the box, or 512M)
    mem: NotRequired[Union[float, str]]


class ForkRequest(TypedDict):
    # number of new machines (default 1)
    count: NotRequired[int]
    # step to fork (default: the present state); `start`: the machine as created
    step: NotRequired[str]
    # proceed even if the host's packages have changed
    drifted: NotRequired[bool]
    # vm: copy its memory too, so that its processes go on in each new machine
    memory: NotRequired[bool]
    # idempotency key: a repeated request returns the same machines
    key: NotRequired[str]


class Step(TypedDict):
    id: str
    machine: str
    # number of the step in its machine: 1, 2, ...
    number: int
    # cause of the step; kept: state before a rewind or a risky command
    kind: Literal["exec", "file", "snap", "kept", "rewind", "fork"]
    name: NotRequired[str]
    created: str
    # command that caused the step
    exec: NotRequired[str]
    # argv of the command as JSON, a path, or a remark
    what: NotRequired[str]
    # exit status of the command; -1: no command
    status: int
    # rewind and fork can use this step
    restorable: bool
    # the step has the memory of the vm
    memory: bool
    # why the step is not restorable
    reason: NotRequired[str]
    # how the step was taken: switch (of the root); while commands ran: btrfs (snapshot), reflink or copy;
    # same (nothing was written since the last step)
    how: NotRequired[str]
    # number of filesystem layers of the step, without those of the image
    layers: int
    # `files` and `bytes` are known
    counted: bool
    # files changed since the previous step
    files: int
    # disk space of these files
    bytes: int
    # the step survives a restart of the host
    durable: bool


class ImageRequest(TypedDict):
    # name of the image
    name: str
    # step of the machine (default: its present state)
    step: NotRequired[str]
    # environment variables of commands; they override those of the base image
    env: NotRequired[Dict[str, str]]
    # default user of commands
    user: NotRequired[str]
    # default working directory of commands
    workdir: NotRequired[str]
    # default command, kept for other runtimes
    command: NotRequired[List[str]]
    # program in front of the default command; if this or `command` is given, both are replaced
    entrypoint: NotRequired[List[str]]


class ImageName(TypedDict):
    # new name of the image; another image with this name loses it
    name: str


class LayersRequest(TypedDict):
    # digests of all layers of the image, lowest first, as sha256:HEX
    digests: List[str]


class Image(TypedDict):
    # id of the image, made from its content
    id: str
    name: str
    owner: str
    # `import`, or the machine that the image was made from
    origin: str
    created: str
    # bytes in the files of the image
    bytes: int
    # files, directories and links
    entries: int
    # machines of the image's owner that use it
    machines: int
    # layers of the image, with those of images below it
    layers: int
    # topmost layer: `erofs` (a mounted file) or `directory`
    stored: str
    # arch, env, user, workdir, command ...
    config: Dict[str, Any]


class Images(TypedDict):
    images: List["Image"]


class Pruned(TypedDict):
    # number of deleted image names
    removed: int
    # bytes in the files of layers that became free
    bytes: int


class Layers(TypedDict):
    # number of the lowest layers that an import need not send
    stored: int


class BuildRequest(TypedDict):
    # image to start from, or `host`
    base: str
    # name of the new image; another image with this name loses it
    name: NotRequired[str]
    # run all steps, also those whose image exists
    no_cache: NotRequired[bool]
    # hosts, or presets such as npm, that machines may reach at private addresses if a step allows them
    local: NotRequired[List[str]]
    # steps, in order
    steps: NotRequired[List["BuildStep"]]


class BuildStep(TypedDict):
    # the text of the step, for logs
    what: str
    # where the step comes from, for errors, such as `line 3 of the recipe`
    place: NotRequired[str]
    # of a step that is only shown: `using` or `setting`
    how: NotRequired[str]
    # run the step and keep an image; without it the step is only shown in the log
    make: NotRequired[bool]
    # run the step in a new machine of the image before it
    fresh: NotRequired[bool]
    # hosts, URLs and presets that the machine may reach
    net: NotRequired[List[str]]
    # directories to create first
    dirs: NotRequired[List[str]]
    # a shell command
    command: NotRequired[str]
    # a command, instead of `command`
    argv: NotRequired[List[str]]
    # environment variables of the command
    env: NotRequired[Dict[str, str]]
    # user of the command
    user: NotRequired[str]
    # working directory of the command
    cwd: NotRequired[str]
    # number of the archive whose files are copied, from 0 in the order of the steps
    archive: NotRequired[int]
    # destination of the copy
    to: NotRequired[str]
    # the destination is a directory, also if it does not exist
    into: NotRequired[bool]
    # the destination is the path of the one file in the archive
    as_file: NotRequired[bool]
    # owner of the copies: USER[:GROUP]
    chown: NotRequired[str]
    # hash of the files of the archive: steps with equal keys share their cached image
    key: NotRequired[str]
    config: NotRequired["BuildConfig"]


class BuildConfig(TypedDict):
    # environment variables of commands; they override those of the base image
    env: NotRequired[Dict[str, str]]
    # default user of commands
    user: NotRequired[str]
    # default working directory of commands
    workdir: NotRequired[str]
    # default command
    command: NotRequired[List[str]]
    # program that the command is passed to
    entrypoint: NotRequired[List[str]]


class Build(TypedDict):
    id: str
    owner: str
    # name of the new image
    name: NotRequired[str]
    # a build is `uploading` until the files of its steps have come
    state: Literal["uploading", "running", "done", "failed", "cancelled"]
    # number of the present step, from 1
    step: int
    # number of steps
    steps: int
    # text of the present step
    what: NotRequired[str]
    # steps that were run
    made: int
    # steps whose image existed
    cached: int
    started: str
    ended: NotRequired[str]
    # id of the new image
    image: NotRequired[str]
    # of a failed build: code of the error
    code: NotRequired[str]
    # of a failed build: the error
    error: NotRequired[str]
    # of a failed build: what to do
    remedy: NotRequired[str]


class Builds(TypedDict):
    builds: List["Build"]


class Package(TypedDict):
    # URL that the package came from, with its port
    url: str
    # verified digest, as sha256:HEX or sha512:HEX
    digest: str
    # size of the package
    bytes: int
    # when it was last stored or delivered, ms since 1970
    used_ms: int


class Packages(TypedDict):
    # disk space of the package cache
    bytes: int
    # limit of the disk space
    max_bytes: int
    # packages, the last used first
    packages: List["Package"]


class Cleared(TypedDict):
    # number of deleted packages
    removed: int
    # disk space that became free
    bytes: int


class Steps(TypedDict):
    steps: List["Step"]
    # cursor of the next page; absent on the last page
    next: NotRequired[str]


Diff = TypedDict("Diff", {
    "machine": str,
    "from": "DiffEnd",
    "to": "DiffEnd",
    # number of all added entries, listed or not
    "added": int,
    "modified": int,
    "deleted": int,
    # file names that were looked at; depends on what changed, not on the number of files
    "looked": int,
    # why the list is incomplete; entries: over 5,000 differ; looked: over two million file names; time:
    # over 25 s; absent if complete
    "cut": NotRequired[Literal["entries", "looked", "time", "depth"]],
    "changes": List["Change"],
})


class StoreCheck(TypedDict):
    # true if there are no problems
    whole: bool
    # machines that were checked
    machines: int
    # machines that could not be checked
    unchecked: int
    # stacks (ordered lists of layers) of steps and root filesystems
    stacks: int
    # number of layers that the stacks refer to
    layers: int
    # unused layers, which are deleted together with the next old steps
    leftovers: int
    problems: List["StoreProblem"]


class Boxes(TypedDict):
    # id of this store
    store: str
    boxes: List["Box"]


class Box(TypedDict):
    # id of the box
    id: str
    # store that owns the box; absent if unknown
    store: NotRequired[str]
    # why the daemon leaves the box alone
    reason: str
    # true if adopt can make the box a machine of the caller
    adoptable: bool


class StoreProblem(TypedDict):
    # machine that needs the layer (directory of changed files)
    machine: str
    layer: NotRequired[str]
    what: str
    remedy: str


class DiffEnd(TypedDict):
    # id of the compared step, or `start` or `now`; or the id of the command that cloned a repository, if
    # its step is gone
    name: str
    # number of the step
    number: NotRequired[int]


class Change(TypedDict):
    # path of the file from the root, without a leading '/'
    path: str
    # the path as base64, if it is not UTF-8
    path_base64: NotRequired[str]
    change: Literal["added", "modified", "deleted"]
    # true if Carrel itself wrote the file for the network, and nobody changed it since
    own: NotRequired[bool]
    before: NotRequired["ChangeSide"]
    after: NotRequired["ChangeSide"]
    # target of a symbolic link before the change
    target_before: NotRequired[str]
    target_before_base64: NotRequired[str]
    target_after: NotRequired[str]
    target_after_base64: NotRequired[str]
    # present if the content differs; large: over 1 MiB, without a line diff; cut: the diff reached its
    # size limit
    content: NotRequired[Literal["text", "binary", "large", "cut", "unreadable"]]
    lines_added: NotRequired[int]
    lines_removed: NotRequired[int]
    # unified hunks of a text file, without file headers
    diff: NotRequired[str]


class ChangeSide(TypedDict):
    # kind of file
    type: Literal["file", "directory", "symlink", "fifo", "socket", "device"]
    # permission bits in octal
    mode: str
    # numeric id of the owner (uid) in the machine
    owner: int
    group: int
    # size in bytes
    size: int


class Machine(TypedDict):
    id: str
    name: NotRequired[str]
    owner: str
    kind: Literal["box", "cell", "vm"]
    # name of the image
    image: str
    # id of the image, made from its content; absent for the image `host`
    image_id: NotRequired[str]
    # home directory of the user that commands run as; absent if the machine has ended
    home: NotRequired[str]
    # directory in which commands start: the first granted one of its creation, or the working directory
    # of the image; absent if the machine has ended
    cwd: NotRequired[str]
    state: Literal["creating", "running", "paused", "stopped", "ending", "ended"]
    # where a paused machine has what runs in it; on disk it outlives a restart of the host
    paused_in: NotRequired[Literal["memory", "disk"]]
    # why that is not on disk, if this daemon paused it
    paused_why: NotRequired[str]
    # who paused or stopped the machine, if known; idle: the idle timeout
    state_by: NotRequired[Literal["idle", "owner", "admin"]]
    # why the machine ended, or was stopped by a restart of the host
    reason: NotRequired[str]
    created: str
    ended: NotRequired[str]
    # end of the machine's ttl, when `on_ttl` applies
    expires: NotRequired[str]
    on_ttl: NotRequired[Literal["destroy", "pause"]]
    limits: "Limits"
    # time without use before `idle_action`; 0: never
    idle_ms: int
    idle_action: NotRequired[Literal["pause", "stop", "destroy", "release"]]
    # when steps are taken
    steps: Literal["every", "risky", "manual"]
    # cell: capabilities of its programs, such as `log,args`; absent: none
    allow: NotRequired[str]
    metadata: NotRequired[Dict[str, str]]
    # volumes of the machine, each with name, at and mode; only if one machine is shown
    volumes: NotRequired[List["VolumePlace"]]
    # commands that run now
    commands: int
    # bytes on disk of the machine's files and steps at the last measurement, without files that it shares
    # with its image or the machines it was forked from
    disk_bytes: int
    step_count: int
    # the host's packages changed since the machine was created
    drifted: bool
    warnings: NotRequired[str]
    # vm: how it started, if this daemon did it: `boot`, as a `clone` of a template, or with saved
    # `memory`
    start: NotRequired[Literal["boot", "clone", "memory"]]
    # vm: what runs its code, if this daemon started it: the processor (`kvm`), or QEMU, which translates
    # it (`tcg`)
    accel: NotRequired[Literal["kvm", "tcg"]]
    # why the machine is unreachable; the daemon retries
    unreached: NotRequired[str]
    # why the newest step is not on disk yet; the daemon retries
    undurable: NotRequired[str]


class Machines(TypedDict):
    machines: List["Machine"]
    # cursor of the next page; absent on the last page
    next: NotRequired[str]
    # for administrators: number of boxes on this host that do not belong to this store
    left_alone: NotRequired[int]
    store: NotRequired["Room"]


class Limits(TypedDict):
    # limit of memory, in bytes
    mem: int
    # limit of processors; 0: all processors of the host
    cpus: float
    pids: int
    # limit of disk space, in bytes
    disk: int
    # cell: limit of fuel of each command
    fuel: NotRequired[int]
    # cell: limit of fuel per second, if there is one
    fuel_rate: NotRequired[int]


class Stats(TypedDict):
    # absent if this host does not count it
    cpu_us: NotRequired[int]
    # absent if this host does not count it
    mem_bytes: NotRequired[int]
    # absent if this host does not count it
    mem_peak_bytes: NotRequired[int]
    # absent if this host does not count it
    mem_limit_bytes: NotRequired[int]
    # absent if this host does not count it
    pids: NotRequired[int]
    # absent if this host does not count it
    io_bytes: NotRequired[int]
    disk_bytes: int
    # absent if this host does not count it
    oom_kills: NotRequired[int]
    # absent if this host does not count it
    pids_refused: NotRequired[int]
    # DNS lookups that were refused
    lookups_refused: int
    frozen: bool
    # calls, tokens and cost of models, and the rest of each limit
    models: NotRequired[Dict[str, Any]]
    # calls of each tool since the daemon started: a list of tool, calls, failed, fallbacks and wall_ms
    tools: NotRequired[List["ToolCount"]]


class MachineStats(TypedDict):
    # id of the machine
    machine: str
    stats: "Stats"
    # words of the newest running command, or `…` if they are longer than 4 KiB; absent: none runs
    argv: NotRequired[List[str]]


class StatsList(TypedDict):
    # without machines that have ended, or have no processes
    machines: List["MachineStats"]


class Health(TypedDict):
    machine: str
    # the worst state of the checks
    state: Literal["unknown", "good", "bad"]
    # guest: it answers; disk and files: space is left; memory: no process was killed since the last
    # check; units: none of systemd has failed; upkeep: the last runs of its tasks; backup: age of the
    # newest
    checks: List["HealthCheck"]


class HealthCheck(TypedDict):
    name: Literal["guest", "disk", "files", "memory", "units", "upkeep", "backup"]
    state: Literal["unknown", "good", "bad"]
    # what was found, for people
    text: str


class Exec(TypedDict):
    id: str
    machine: str
    # name of the command, if it has one
    name: NotRequired[str]
    argv: List[str]
    cwd: NotRequired[str]
    user: NotRequired[str]
    # failed: the command did not start; unknown: its end was not seen
    state: Literal["starting", "running", "exited", "failed", "unknown"]
    # how the command ended (exit, signal, timeout, memory, killed), or why it did not start
    reason: NotRequired[str]
    # exit status as a shell shows it; -1: not known yet
    status: int
    # signal that ended the command, or 0
    signal: int
    # process id in the machine; 0: not known, as of commands in the foreground
    pid: int
    started: NotRequired[str]
    ended: NotRequired[str]
    stdout_bytes: int
    stderr_bytes: int
    usage: "Usage"
    # why the command did not start
    error: NotRequired[str]
    terminal: bool
    # the first command since the last restore point that ended beside other processes: its step may not
    # be restorable
    check_step: bool


class Execs(TypedDict):
    execs: List["Exec"]
    # cursor of the next page; absent on the last page
    next: NotRequired[str]


class Usage(TypedDict):
    user_us: int
    system_us: int
    max_rss_kb: int
    wall_us: int
    # fuel that the command used; only in a cell
    fuel: NotRequired[int]


class Result(TypedDict):
    exec: "Exec"
    # standard output, if it is UTF-8 text
    stdout: NotRequired[str]
    # standard output as base64, if it is not UTF-8 text
    stdout_base64: NotRequired[str]
    # number of bytes of standard output that are left out
    stdout_left_out: NotRequired[int]
    stderr: NotRequired[str]
    stderr_base64: NotRequired[str]
    stderr_left_out: NotRequired[int]


class Error(TypedDict):
    error: "ErrorBody"


class ErrorBody(TypedDict):
    code: Literal["internal", "invalid", "not_found", "exists", "denied", "limit", "busy", "unsupported", "gone", "unknown", "timeout"]
    message: str
    cause: NotRequired[str]
    remedy: NotRequired[str]
    approval_url: NotRequired[str]


class Done(TypedDict):
    warnings: NotRequired[str]


class Room(TypedDict):
    # the directory CARREL_HOME; requires the scope admin
    home: NotRequired[str]
    free_bytes: int
    total_bytes: int
    used_percent: int
    # nothing new is stored until there is room
    full: bool
    # what to do
    remedy: NotRequired[str]


class ToolCount(TypedDict):
    tool: str
    calls: int
    failed: int
    fallbacks: int
    wall_ms: int


Rule = TypedDict("Rule", {
    # number of the rule, for its deletion
    "id": int,
    # allow, deny or ask
    "action": str,
    "target": str,
    # HTTP methods; absent: all
    "methods": NotRequired[str],
    # the path must be the same, not only begin so
    "exact": NotRequired[bool],
    "query": NotRequired[str],
    "local": NotRequired[bool],
    # limit of bytes sent plus received
    "bytes": NotRequired[int],
    # limit of bytes per second
    "rate": NotRequired[int],
    # ask: how long a request waits for approval
    "hold_ms": NotRequired[int],
    # when the rule is deleted, in milliseconds since 1970
    "expires": NotRequired[int],
    "preset": NotRequired[str],
    # who gave the rule: client (of E2B) or conf (carrel.conf); absent: the owner
    "from": NotRequired[str],
    "trusted": NotRequired[bool],
    "tainted": NotRequired[bool],
})


class Secret(TypedDict):
    name: str
    created_ms: int
    changed_ms: int
    used_ms: NotRequired[int]


class Login(TypedDict):
    name: str
    created_ms: int
    changed_ms: int
    used_ms: NotRequired[int]
    expires_ms: NotRequired[int]
    # why the login cannot be used
    problem: NotRequired[str]


class Grant(TypedDict):
    id: str
    kind: str
    # granted object
    what: str
    # path in the machine, or host that receives a secret
    at: NotRequired[str]
    mode: NotRequired[str]
    created_ms: int
    expires_ms: NotRequired[int]
    detail: NotRequired[Dict[str, Any]]


class Port(TypedDict):
    port: int
    # URL of the port, without the token
    url: str
    # the same port for programs, without a host name: send `headers`; absent with TLS
    direct_url: NotRequired[str]
    # headers for direct_url: Carrel-Port, and Carrel-Token where the answer has a token
    headers: NotRequired[Dict[str, str]]
    # the port is public, and has no token
    public: NotRequired[bool]


class PendingItem(TypedDict):
    id: str
    machine: str
    # of a request; or `question`, which a program of the machine asks
    protocol: str
    question: NotRequired[str]
    # the question asks that the box becomes a vm; `approve` does that
    moves: NotRequired[bool]
    host: NotRequired[str]
    port: NotRequired[int]
    method: NotRequired[str]
    path: NotRequired[str]
    query: NotRequired[str]
    # bytes of the body
    body: NotRequired[int]
    body_sha256: NotRequired[str]
    # first bytes of a connection that is not HTTP
    first: NotRequired[str]
    # rule that an approval with `always` adds
    always: NotRequired[str]
    # why an approval cannot add a rule
    no_rule: NotRequired[str]
    # number of the rule that requires the approval
    rule: NotRequired[int]
    # text of that rule
    why: NotRequired[str]
    since_ms: int
    # time until the item is refused
    left_ms: int
    # connections that wait for the decision
    waiting: NotRequired[int]
    approved: bool


class VolumePlace(TypedDict):
    # id of the machine, in a list of machines
    machine: NotRequired[str]
    # name of the volume, in a list of volumes
    name: NotRequired[str]
    # path in the machine
    at: str
    # ro, cow or rw
    mode: str


class ExecStart(TypedDict):
    type: Literal["start"]
    machine: str
    # id of the command
    exec: str
    # output also goes to the descriptors of the request
    copied: NotRequired[bool]
    warnings: NotRequired[str]


class ExecOutput(TypedDict):
    type: Literal["stdout", "stderr"]
    # offset of the first byte in its stream
    offset: int
    # the output, if it is UTF-8 text
    data: NotRequired[str]
    # the output as base64, if it is not UTF-8 text
    data_base64: NotRequired[str]


class ExecGap(TypedDict):
    type: Literal["gap"]
    stream: Literal["stdout", "stderr"]
    # offset of the first byte that was not kept
    offset: int
    bytes: int


class ExecExit(TypedDict):
    # now: the stream was not followed to the end of the command
    type: Literal["exit", "now"]
    exec: "Exec"


class BuildLogStep(TypedDict):
    type: Literal["step"]
    step: int
    steps: int
    how: str
    what: str


class BuildLogOutput(TypedDict):
    type: Literal["output"]
    data: NotRequired[str]
    data_base64: NotRequired[str]


class BuildLogEnd(TypedDict):
    type: Literal["end"]
    build: "Build"


class FileEvent(TypedDict):
    change: Literal["created", "modified", "written", "removed", "moved_from", "moved_to", "attributes", "gone", "overflow", "other"]
    # name of the entry in the watched directory
    name: NotRequired[str]
    # the entry is a directory
    directory: bool
    # the same for the two events of one move
    cookie: NotRequired[int]


class Event(TypedDict):
    id: int
    # such as machine.created
    type: str
    time_ms: int
    machine: NotRequired[str]
    owner: str
    detail: NotRequired[Dict[str, Any]]


class Record(TypedDict):
    # number of the record
    seq: int
    # in milliseconds since 1970
    time: int
    kind: Literal["intent", "result", "note", "segment", "head"]
    owner: NotRequired[str]
    token: NotRequired[str]
    client: NotRequired[str]
    # what was done, such as machine.create
    verb: NotRequired[str]
    machine: NotRequired[str]
    exec: NotRequired[str]
    argv: NotRequired[List[str]]
    argv_bytes: NotRequired[int]
    argv_hash: NotRequired[str]
    exit: NotRequired[Any]
    bytes: NotRequired[int]
    # result: number of the record of its intent
    intent: NotRequired[int]
    reason: NotRequired[str]
    segment: NotRequired[int]
    journal: NotRequired[str]
    # hash of the record before
    prev: NotRequired[str]
    sig: NotRequired[str]
    detail: NotRequired[Any]
    hash: str


RunEvent = TypedDict("RunEvent", {
    # such as start, answer, call, result or end
    "event": str,
    # in milliseconds since 1970
    "time": int,
    "note": NotRequired[str],
    "run": NotRequired[str],
    "owner": NotRequired[str],
    "machine": NotRequired[str],
    "own_machine": NotRequired[bool],
    "model": NotRequired[str],
    "task": NotRequired[str],
    "card": NotRequired[str],
    "window": NotRequired[int],
    "prompt_bytes": NotRequired[int],
    "turns": NotRequired[int],
    "tokens": NotRequired[int],
    "money": NotRequired[int],
    "timeout_ms": NotRequired[int],
    "script": NotRequired[str],
    "mode": NotRequired[str],
    "menu": NotRequired[str],
    "parent": NotRequired[str],
    "tries": NotRequired[int],
    "check": NotRequired[str],
    "check_files": NotRequired[str],
    "guard": NotRequired[bool],
    "asks": NotRequired[bool],
    "good": NotRequired[bool],
    "changes": NotRequired[int],
    "calls": NotRequired[int],
    "changeset": NotRequired[str],
    "in": NotRequired[int],
    "cache_read": NotRequired[int],
    "cache_write": NotRequired[int],
    "cache_write_long": NotRequired[int],
    "out": NotRequired[int],
    "reasoning": NotRequired[int],
    "has_usage": NotRequired[bool],
    "cost": NotRequired[int],
    "request_bytes": NotRequired[int],
    "index": NotRequired[int],
    "tool": NotRequired[str],
    # arguments of the tool, as JSON text
    "arguments": NotRequired[str],
    "hash": NotRequired[str],
    "failed": NotRequired[bool],
    "bytes": NotRequired[int],
    "took_ms": NotRequired[int],
    "fallback": NotRequired[str],
    "text": NotRequired[str],
    "media": NotRequired[str],
    "image": NotRequired[str],
    "name": NotRequired[str],
    "step": NotRequired[str],
    "before": NotRequired[int],
    "attempt": NotRequired[int],
    "wait_ms": NotRequired[int],
    # end: how the run ended
    "status": NotRequired[str],
    # answer: what the model was asked for
    "purpose": NotRequired[str],
    "stop": NotRequired[int],
    # answer: parts, each with kind and text
    "parts": NotRequired[List[Dict[str, Any]]],
    # end: work done, evidence, work left
    "report": NotRequired[Dict[str, Any]],
})


ExecEvent = Union[ExecStart, ExecOutput, ExecGap, ExecExit]


BuildLogLine = Union[BuildLogStep, BuildLogOutput, BuildLogEnd]
