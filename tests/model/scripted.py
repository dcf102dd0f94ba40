"""A model server whose answers a test writes byte by byte: real HTTP, real streams, and it can be cut or held."""
import http.server
import json
import threading


class Request:
    def __init__(self, handler, body):
        self.method, self.path, self.fields = handler.command, handler.path, {k.lower(): v for k, v in handler.headers.items()}
        self.body = json.loads(body) if body else None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        got = Request(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        with self.server.lock:
            self.server.requests.append(got)
        status, fields, pieces = self.server.answer(got)
        self.send_response(status)
        self.close_connection = True
        for name, value in {"Connection": "close", **fields}.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            for piece in pieces:
                if piece is None:  # cut
                    return
                self.wfile.write(piece if isinstance(piece, bytes) else piece.encode())
                self.wfile.flush()
        except (BrokenPipeError, ConnectionResetError):
            with self.server.lock:
                self.server.left += 1
        if fields.get("Transfer-Encoding") == "chunked":
            self.wfile.write(b"0\r\n\r\n")

    do_GET = do_POST


class Scripted:
    """answer(request) gives status, header fields and an iterable of pieces of the body; None in it cuts the connection."""

    def __init__(self, answer):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.answer, self.server.requests, self.server.left, self.server.lock = answer, [], 0, threading.Lock()
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    @property
    def requests(self):
        return self.server.requests

    def end(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def chunk(text):
    data = text if isinstance(text, bytes) else text.encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(data, name=None):
    return (f"event: {name}\n" if name else "") + "data: " + (data if isinstance(data, str) else json.dumps(data)) + "\n\n"


def whole(body, status=200, **fields):
    text = json.dumps(body).encode()
    return status, {"Content-Type": "application/json", "Content-Length": str(len(text)), **{k.replace("_", "-"): v for k, v in fields.items()}}, [text]


def stream(records, cut=False):
    """A stream of events. A record may be a function: it is called, and may wait."""
    def pieces():
        for r in records:
            if callable(r):
                r()
            else:
                yield chunk(r)
        if cut:
            yield None

    return 200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}, pieces()


def chat_answer(text="x", tokens=(7, 3)):
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}}


def chat_stream(text="x", tokens=(7, 3)):
    def record(delta, finish=None, **more):
        return event({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
                      "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more})

    last = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [],
            "usage": {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}}
    return [record({"role": "assistant", "content": ""}, usage=None), record({"content": text}), record({}, "stop"), event(last), event("[DONE]")]


def messages_stream(text="x", tokens=(7, 3)):
    usage = {"input_tokens": tokens[0], "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 1}
    return [event({"type": "message_start", "message": {"id": "a", "type": "message", "role": "assistant", "model": "m", "content": [],
                                                        "stop_reason": None, "usage": usage}}, "message_start"),
            event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}, "content_block_start"),
            event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}, "content_block_delta"),
            event({"type": "content_block_stop", "index": 0}, "content_block_stop"),
            event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": tokens[1]}}, "message_delta"),
            event({"type": "message_stop"}, "message_stop")]


def answer_any(text="x", tokens=(7, 3)):
    """The answer to a request of any format, whole or as a stream."""
    def answer(r):
        if "messages" in r.path:
            return stream(messages_stream(text, tokens))
        return stream(chat_stream(text, tokens)) if r.body.get("stream") else whole(chat_answer(text, tokens))

    return answer
