/** An HTTP response on a bare socket, where Node has no `ServerResponse`: refused upgrades and unparsable requests. */
import { STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import type { HttpHeaders } from './http-message.ts';

/** Writes it and ends the connection. Harmless on a socket that is gone. */
export function endWithResponse(
  socket: Duplex,
  {
    status,
    headers,
    body,
  }: { readonly status: number; readonly headers: HttpHeaders; readonly body: Uint8Array },
): void {
  if (socket.destroyed || !socket.writable) {
    socket.destroy();
    return;
  }
  const lines = Object.entries({ ...headers, connection: 'close' }).map(
    ([name, value]) => `${name}: ${value}`,
  );
  socket.once('finish', () => socket.destroy());
  socket.write(`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\n${lines.join('\r\n')}\r\n\r\n`);
  socket.end(body);
}
