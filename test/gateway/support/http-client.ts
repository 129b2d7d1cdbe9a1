/** A plain HTTP client that shows what was on the wire: no decompression, no redirects, no header magic. */
import { request as httpRequest, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import { connect, type Socket } from 'node:net';

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

export interface Call {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array | string;
}

export function begin(
  url: string,
  { method = 'GET', headers = {}, body }: Call = {},
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const outgoing = httpRequest(url, { method, headers: { ...headers }, agent: false }, resolve);
    outgoing.on('error', reject);
    outgoing.end(body);
  });
}

export async function call(url: string, options: Call = {}): Promise<Answer> {
  const incoming = await begin(url, options);
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk as Buffer);
  return { status: incoming.statusCode ?? 0, headers: incoming.headers, body: Buffer.concat(chunks) };
}

export function json(answer: { readonly body: Uint8Array }): unknown {
  return JSON.parse(new TextDecoder().decode(answer.body));
}

/** Opens a TCP connection, writes `text`, gives everything that came until the peer closed. */
export async function rawExchange(port: number, text: string): Promise<string> {
  const socket = await rawConnect(port);
  socket.write(text);
  const chunks: Buffer[] = [];
  for await (const chunk of socket) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString('latin1');
}

export function rawConnect(port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.off('error', reject);
      resolve(socket);
    });
    socket.once('error', reject);
  });
}

/** Resolves when `event` was emitted, with its first argument. */
export function once<T = void>(
  emitter: { once(event: string, listener: (value: T) => void): unknown },
  event: string,
): Promise<T> {
  return new Promise((resolve) => emitter.once(event, resolve));
}
