/** Clients of this library against a whole gateway: real sockets, real SQLite file, the real clock. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { WebSocket } from 'ws';
import { type Client, type ClientOptions, createClient } from '../../src/client/client.ts';
import type { ClientStatus } from '../../src/client/status.ts';
import { createStaticTokens, type StaticGrant } from '../../src/gateway/auth.ts';
import { createGateway, type Gateway } from '../../src/gateway/gateway.ts';
import type { GatewayOptions } from '../../src/gateway/gateway-options.ts';
import { TAG_DELTA, TAG_ROUND } from '../../src/protocol/control.ts';
import { TASKS, type TaskTables } from './harness.ts';

export const PARTITION = 'p1';

const grant = (actorId: string): StaticGrant => ({
  actorId,
  partition: PARTITION,
  scopes: { list: ['*'] },
  expiresAtMs: null,
});

const GRANTS = new Map([
  ['ada', grant('ada')],
  ['ben', grant('ben')],
]);

/** Pauses of a test are as short as may be; the order of things does not depend on them. */
const QUICK = { backoffFirstMs: 1, backoffMaxMs: 20, returnSpreadMs: 1, wakeSpreadMs: 0, herdSpreadMs: 0 };

export interface GatewayRig {
  readonly gateway: Gateway;
  readonly url: string;
  /** Ends the gateway as a deploy does and starts another one on the same file and port. */
  restart(): Promise<void>;
  client(options?: Partial<ClientOptions>): TestClient;
}

export interface TestClient {
  readonly client: Client<TaskTables>;
  readonly taps: Tap[];
  /** What came in and went out on all sockets, as short words. */
  readonly wire: string[];
  /** Paths of HTTP requests. */
  readonly fetched: string[];
  /** The next response chunk ends its connection unread, as often as this says. */
  cutAnswers: number;
  /** Resolves when `holds` is true, asked again after every change of rows or status. */
  until(holds: () => boolean): Promise<void>;
}

/** Closed when the test is over. */
export async function startRig(options: Partial<GatewayOptions> = {}): Promise<GatewayRig> {
  const folder = await mkdtemp(join(tmpdir(), 'tidegate-client-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const open = (): Promise<Gateway> =>
    createGateway({
      schema: TASKS,
      storage: { path: join(folder, 'test.db'), synchronous: 'NORMAL' },
      ...createStaticTokens(GRANTS),
      ...options,
      limits: { drainSpreadMs: 0, ...options.limits },
    });
  let gateway = await open();
  onTestFinished(() => gateway.close());
  const { url, port } = await gateway.listen({ port: 0 });
  return {
    get gateway() {
      return gateway;
    },
    url,
    restart: async () => {
      await gateway.close();
      gateway = await open();
      await gateway.listen({ port });
    },
    client: (own) => testClient(url, own),
  };
}

type Tap = WebSocket;

function testClient(url: string, options: Partial<ClientOptions> = {}): TestClient {
  const wire: string[] = [];
  const fetched: string[] = [];
  const taps: Tap[] = [];
  const control = { cutAnswers: 0 };

  class TappedSocket extends WebSocket {
    constructor(address: string) {
      super(address);
      taps.push(this);
    }

    override emit(event: string | symbol, ...args: unknown[]): boolean {
      if (event === 'message') {
        const [data, isBinary] = args as [Buffer | ArrayBuffer, boolean];
        const word = wordOf(data, isBinary);
        if (word === 'round' && control.cutAnswers > 0) {
          control.cutAnswers--;
          this.terminate();
          return false;
        }
        if (this.readyState === WebSocket.OPEN) wire.push(`< ${word}`);
      }
      return super.emit(event, ...args);
    }

    override send(data: string | Uint8Array): void {
      wire.push(typeof data === 'string' ? '> ack' : '> round');
      super.send(data);
    }
  }

  const client = createClient<TaskTables>({
    url,
    schema: TASKS,
    token: 'ada',
    webSocket: TappedSocket,
    fetch: (address, init) => {
      fetched.push(new URL(address).pathname);
      return fetch(address, init);
    },
    ...options,
    limits: { ...QUICK, ...options.limits },
  });
  onTestFinished(() => client.close());
  return Object.assign(control, {
    client,
    taps,
    wire,
    fetched,
    until: (holds: () => boolean) => untilOf(client, holds),
  });
}

function wordOf(data: Buffer | ArrayBuffer, isBinary: boolean): string {
  const bytes = Buffer.from(data as ArrayBuffer);
  if (!isBinary) return String(JSON.parse(bytes.toString()).event);
  return bytes[0] === TAG_DELTA ? 'delta' : bytes[0] === TAG_ROUND ? 'round' : 'unknown';
}

function untilOf(client: Client<TaskTables>, holds: () => boolean): Promise<void> {
  return new Promise((resolve, reject) => {
    const removers: (() => void)[] = [];
    const judge = (status: ClientStatus): void => {
      const isDone = holds();
      if (!isDone && status.stopReason === null) return;
      for (const remove of removers) remove();
      if (isDone) resolve();
      else reject(new Error(`the client stopped: ${JSON.stringify(status)}`));
    };
    removers.push(
      client.onStatus(judge),
      client.onChange('tasks', () => judge(client.status)),
      client.onChange('notes', () => judge(client.status)),
    );
    judge(client.status);
  });
}
