/** A whole gateway on an ephemeral port and a SQLite file that ends with it, with two actors in one partition and one in another. */
import { onTestFinished } from 'vitest';
import { createStaticTokens, type StaticGrant } from '../../../src/gateway/auth.ts';
import { createGateway, type Gateway } from '../../../src/gateway/gateway.ts';
import type { GatewayOptions } from '../../../src/gateway/gateway-options.ts';
import { ada, frameOf, SCHEMA } from './requests.ts';
import { RoundSocket } from './round-socket.ts';

const grant = (actorId: string, partition: string, project: readonly string[]): StaticGrant => ({
  actorId,
  partition,
  scopes: { project },
  expiresAtMs: null,
});

/** `ada` may do everything in tenant-1, `ben` only project shared; `eve` is of tenant-2. */
export const GRANTS: ReadonlyMap<string, StaticGrant> = new Map([
  ['token-ada', grant('ada', 'tenant-1', ['*'])],
  ['token-ben', grant('ben', 'tenant-1', ['shared'])],
  ['token-eve', grant('eve', 'tenant-2', ['*'])],
  ['token-old', { ...grant('old', 'tenant-1', ['*']), expiresAtMs: 1 }],
]);

/** Sockets close at once in tests: nobody waits for a spread. */
const QUICK = { drainSpreadMs: 0, sessionTickMs: 1 };

export interface LiveGateway {
  readonly gateway: Gateway;
  readonly url: string;
  readonly port: number;
  /** Opens a socket and waits for its `hello`. */
  connect(options?: ConnectOptions): Promise<RoundSocket>;
}

export interface ConnectOptions {
  readonly clientId?: string;
  readonly token?: string;
}

export function gatewayOptions(options: Partial<GatewayOptions> = {}): GatewayOptions {
  return {
    schema: SCHEMA,
    storage: { path: ':memory:' },
    ...createStaticTokens(GRANTS),
    ...options,
    limits: { ...QUICK, ...options.limits },
  };
}

/** Closed when the test is over, whatever came of it. */
export async function startGateway(options: Partial<GatewayOptions> = {}): Promise<LiveGateway> {
  const gateway = await createGateway(gatewayOptions(options));
  onTestFinished(() => gateway.close());
  const { url, port } = await gateway.listen({ port: 0 });
  return { gateway, url, port, connect: (connecting = {}) => connectTo(url, connecting) };
}

export async function connectTo(
  url: string,
  { clientId = 'client-1', token = 'token-ada' }: ConnectOptions,
): Promise<RoundSocket> {
  const query = new URLSearchParams({ clientId, token });
  const socket = new RoundSocket(`${url.replace('http:', 'ws:')}/realtime?${query}`);
  onTestFinished(() => socket.end());
  await socket.control('hello');
  return socket;
}

/** Somebody who follows project shared, to notice whether others are disturbed. */
export async function startWitness(live: LiveGateway): Promise<{ noticesNothing(): Promise<void> }> {
  const witness = await live.connect({ clientId: 'witness' });
  const pulled = await witness.round(ada.pull({ clientId: 'witness', projects: ['shared'] }));
  // A client that never pulled starts behind; its ack makes it live.
  witness.ack(frameOf(pulled, 'SUB_END').nextCursor);
  const writer = await live.connect({ clientId: 'witness-writer' });
  let writes = 0;
  return {
    noticesNothing: async () => {
      const seen = witness.deltas.length;
      writes += 1;
      await writer.round(ada.push({ clientId: 'witness-writer', rowId: `witness-${writes}` }));
      await witness.until(() => witness.deltas.length > seen);
      if (witness.closed !== null || writer.closed !== null) throw new Error('a neighbour lost its socket');
    },
  };
}
