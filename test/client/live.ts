/** Shortcuts to a client that is live with one subscription. */
import type { SubscriptionHandle } from '../../src/client/subscription-handle.ts';
import type { FakeConnection } from './fake-server.ts';
import { bootstrap, epochAnswer, header, type Rig, type Task, type VersionedTask } from './harness.ts';

export interface LiveRig {
  readonly connection: FakeConnection;
  readonly sub: SubscriptionHandle;
}

/** Epoch, bootstrap of `s1` over list `l1` at `pin`, ack consumed. */
export async function goLive(
  { client, server }: Rig,
  rows: readonly (Task | VersionedTask)[] = [],
  pin = 5,
): Promise<LiveRig> {
  const sub = client.subscribe({ id: 's1', table: 'tasks', scopes: { list: 'l1' } });
  client.connect();
  const connection = await server.greeted({ latestCursor: pin });
  await answerEpoch(connection);
  await connection.request();
  connection.respond([header(), ...bootstrap('s1', rows, pin)]);
  await connection.ack();
  await client.until(({ state }) => state === 'live');
  return { connection, sub };
}

export async function answerEpoch(connection: FakeConnection): Promise<void> {
  await connection.request();
  connection.respond(epochAnswer());
}
