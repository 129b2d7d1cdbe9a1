/** A TCP proxy that a test cuts, or silences, at the bytes it chooses. */
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';

export interface Fault {
  /** `request`: bytes on their way to the server; `answer`: bytes that come back. */
  readonly on: 'request' | 'answer';
  /** The fault strikes at the chunk that holds this text, or the first one. */
  readonly text?: string;
  /**
   * `drop`: the chunk does not arrive and the connection breaks. `deliver`: it arrives, and the connection breaks before an
   * answer comes back. `silence`: neither this chunk nor anything after it arrives, and nobody is told.
   */
  readonly what: 'drop' | 'deliver' | 'silence';
}

interface Pair {
  readonly client: Socket;
  readonly server: Socket;
}

export class TcpProxy {
  readonly #listener: Server;
  readonly #target: number;
  readonly #pairs = new Set<Pair>();
  #fault: { readonly fault: Fault; readonly strike: () => void } | null = null;

  private constructor(listener: Server, target: number) {
    this.#listener = listener;
    this.#target = target;
    listener.on('connection', (client) => this.#link(client));
  }

  /** `port` 0 takes any. */
  static async start({
    target,
    port = 0,
  }: {
    readonly target: number;
    readonly port?: number;
  }): Promise<TcpProxy> {
    const listener = createServer();
    listener.listen(port, '127.0.0.1');
    await once(listener, 'listening');
    return new TcpProxy(listener, target);
  }

  get port(): number {
    const address = this.#listener.address();
    return typeof address === 'object' && address !== null ? address.port : 0;
  }

  get connections(): number {
    return this.#pairs.size;
  }

  /** The next chunk that fits meets the fault, once; resolves then. */
  next(fault: Fault): Promise<void> {
    return new Promise((strike) => {
      this.#fault = { fault, strike };
    });
  }

  /** Breaks every connection that exists. */
  cutAll(): void {
    for (const pair of this.#pairs) this.#cut(pair);
  }

  async close(): Promise<void> {
    this.cutAll();
    this.#listener.close();
    await once(this.#listener, 'close');
  }

  #link(client: Socket): void {
    const server = connect(this.#target, '127.0.0.1');
    const pair = { client, server };
    this.#pairs.add(pair);
    for (const socket of [client, server]) {
      socket.setNoDelay(true);
      // A reset is what this proxy is for; `close` follows.
      socket.on('error', () => socket.destroy());
      socket.on('close', () => this.#cut(pair));
    }
    client.on('data', (chunk) => this.#forward(pair, 'request', chunk));
    server.on('data', (chunk) => this.#forward(pair, 'answer', chunk));
  }

  #forward(pair: Pair, on: Fault['on'], chunk: Buffer): void {
    const to = on === 'request' ? pair.server : pair.client;
    const armed = this.#fault;
    if (armed === null || armed.fault.on !== on || !chunk.includes(armed.fault.text ?? '')) {
      to.write(chunk);
      return;
    }
    this.#fault = null;
    if (armed.fault.what === 'drop') this.#cut(pair);
    else if (armed.fault.what === 'silence') for (const socket of [pair.client, pair.server]) socket.pause();
    else {
      pair.client.destroy();
      pair.server.removeAllListeners('data').resume().end(chunk);
    }
    armed.strike();
  }

  #cut(pair: Pair): void {
    this.#pairs.delete(pair);
    pair.client.destroy();
    // What was written before still arrives.
    if (!pair.server.writableEnded) pair.server.destroy();
  }
}
