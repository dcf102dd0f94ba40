// The peer of http_bench: the same two answers from Node's own server.
'use strict';
const piece = Buffer.alloc(65536);
require('http').createServer((request, response) => {
  if (request.url === '/') {
    response.writeHead(200, { 'Content-Type': 'text/plain', 'Content-Length': 6 });
    response.end('hello\n');
    return;
  }
  let left = Number(request.url.slice(1));
  const pour = () => {
    while (left > 0) {
      left -= piece.length;
      if (!response.write(piece)) return;
    }
    response.end();
  };
  response.on('drain', pour);
  pour();
}).listen(process.argv[2], () => process.stdout.write('ready\n'));
