/** Presence of the client against a whole gateway (§8.6): others come, change, leave; own documents survive a reconnect. */
import { expect, test } from 'vitest';
import type { PresencePeer } from '../../src/client/presence.ts';
import type { SubscriptionHandle } from '../../src/client/subscription-handle.ts';
import { startRig, type TestClient } from './gateway-rig.ts';

const KEY = 'list:l1';

async function enter({ client }: TestClient): Promise<SubscriptionHandle> {
  const subscription = client.subscribe({ table: 'tasks', scopes: { list: 'l1' } });
  client.connect();
  await subscription.ready;
  await client.until(({ state }) => state === 'live');
  return subscription;
}

/** Resolves when `holds` is true of the peers, asked again at every change. */
function peersOf({ client }: TestClient, holds: (docs: unknown[]) => boolean, key = KEY): Promise<unknown[]> {
  const room = client.presence(key);
  const docs = (peers: readonly PresencePeer[]) => peers.map(({ doc }) => doc);
  if (holds(docs(room.peers))) return Promise.resolve(docs(room.peers));
  return new Promise((resolve) => {
    const remove = room.onChange((peers) => {
      if (!holds(docs(peers))) return;
      remove();
      resolve(docs(peers));
    });
  });
}

test('R-039, R-046: documents come, are replaced and go; a late comer sees who is there; nobody sees itself', async () => {
  const rig = await startRig();
  const [a, b, c] = [rig.client(), rig.client(), rig.client()];
  await enter(a);
  const own = a.client.presence(KEY);
  own.set({ cursor: 1 });
  await enter(b);
  expect(await peersOf(b, (docs) => docs.length === 1)).toEqual([{ cursor: 1 }]);
  expect(b.client.presence(KEY).peers[0]).toMatchObject({ clientId: a.client.clientId });
  own.set({ cursor: 2, nested: { deep: [1] } });
  expect(await peersOf(b, ([doc]) => JSON.stringify(doc).includes('deep'))).toEqual([
    { cursor: 2, nested: { deep: [1] } },
  ]);
  await enter(c);
  await peersOf(c, (docs) => docs.length === 1);
  own.clear();
  expect(await peersOf(b, (docs) => docs.length === 0)).toEqual([]);
  await peersOf(c, (docs) => docs.length === 0);
  expect(own.peers).toEqual([]);
  expect(b.client.presence(KEY).peers).toBe(b.client.presence(KEY).peers);
});

test('set before there is a subscription: it is published once the key is held', async () => {
  const rig = await startRig();
  const [a, b] = [rig.client(), rig.client()];
  a.client.presence(KEY).set({ early: true });
  await enter(b);
  await enter(a);
  expect(await peersOf(b, (docs) => docs.length === 1)).toEqual([{ early: true }]);
  expect(a.client.presence(KEY).refusal).toBeNull();
});

test('a restart of the server: everybody is gone, and comes back by itself', async () => {
  const rig = await startRig();
  const [a, b] = [rig.client(), rig.client()];
  await enter(a);
  await enter(b);
  a.client.presence(KEY).set({ name: 'a' });
  b.client.presence(KEY).set({ name: 'b' });
  await Promise.all([peersOf(a, (docs) => docs.length === 1), peersOf(b, (docs) => docs.length === 1)]);
  const gone = Promise.all([
    peersOf(a, (docs) => docs.length === 0),
    peersOf(b, (docs) => docs.length === 0),
  ]);
  await rig.restart();
  await gone;
  expect(await peersOf(a, (docs) => docs.length === 1)).toEqual([{ name: 'b' }]);
  expect(await peersOf(b, (docs) => docs.length === 1)).toEqual([{ name: 'a' }]);
});

test('a client that closes leaves; one that unsubscribes leaves and sees nobody any more', async () => {
  const rig = await startRig();
  const [a, b, c] = [rig.client(), rig.client(), rig.client()];
  await enter(a);
  await enter(b);
  const subscription = await enter(c);
  for (const each of [a, b, c]) each.client.presence(KEY).set({ here: true });
  await Promise.all([a, b, c].map((each) => peersOf(each, (docs) => docs.length === 2)));
  await a.client.close();
  await peersOf(b, (docs) => docs.length === 1);
  await peersOf(c, (docs) => docs.length === 1);
  const alone = peersOf(b, (docs) => docs.length === 0);
  const blind = peersOf(c, (docs) => docs.length === 0);
  subscription.unsubscribe();
  await Promise.all([alone, blind]);
  // Subscribed again, it publishes by itself what it had to say.
  c.client.subscribe({ table: 'tasks', scopes: { list: 'l1' } });
  await peersOf(b, (docs) => docs.length === 1);
  await peersOf(c, (docs) => docs.length === 1);
});

test('R-043: a document that is too large is refused, and the refusal ends with the next that is taken', async () => {
  const rig = await startRig();
  const [a, b] = [rig.client(), rig.client()];
  await enter(a);
  await enter(b);
  const room = a.client.presence(KEY);
  const refused = new Promise<void>((resolve) => {
    room.onChange(() => {
      if (room.refusal !== null) resolve();
    });
  });
  room.set({ text: 'x'.repeat(20_000) });
  await refused;
  expect(room.refusal).toBe('presence.too_large');
  room.set({ text: 'small' });
  expect(await peersOf(b, (docs) => docs.length === 1)).toEqual([{ text: 'small' }]);
  expect(room.refusal).toBeNull();
});

test('what is no document or no key', async () => {
  const rig = await startRig();
  const { client } = rig.client();
  const code = (run: () => unknown): unknown => {
    try {
      run();
    } catch (failure) {
      return (failure as { code?: unknown }).code;
    }
    return null;
  };
  expect(code(() => client.presence(''))).toBe('client.invalid_presence');
  for (const doc of [null, [], 'x', 3, undefined]) {
    expect(code(() => client.presence(KEY).set(doc as never))).toBe('client.invalid_presence');
  }
  const doc = { list: [1] };
  client.presence(KEY).set(doc);
  doc.list.push(2);
  expect(client.presence(KEY).peers).toEqual([]);
});
