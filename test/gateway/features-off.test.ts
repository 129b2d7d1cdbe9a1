/** What a gateway without a feature must never send, whatever a client accepts. */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { rowCodecOf } from '../../src/protocol/row-codec.ts';
import { compileSchema } from '../../src/protocol/schema-compiler.ts';
import { call } from './support/http-client.ts';
import { startGateway } from './support/live-gateway.ts';
import { ada, encodeRequest, frames, postSync } from './support/requests.ts';

const ACCEPTS_EVERYTHING = 0b1111;

test('S-169, S-060: without leases, images and signed URLs no response carries one', async () => {
  const live = await startGateway({ limits: { segmentInlineBytesMax: 64 } });
  const rows = Array.from({ length: 5 }, (_, i) => ada.push({ rowId: `row-${i}` }));
  const pushed = await Promise.all(rows.map((row) => postSync(live.url, row)));
  const pulled = await postSync(live.url, ada.pull({ accept: ACCEPTS_EVERYTHING }));
  const seen = [...pushed, pulled].flatMap((answer) => frames(answer.body));
  expect(seen.filter((frame) => frame.type === 'LEASE')).toEqual([]);
  const segments = seen.filter((frame) => frame.type === 'SEGMENT_REF');
  expect(segments).toHaveLength(1);
  for (const segment of segments) {
    expect(segment.mediaType).toBe('rows');
    expect(segment.url).toBeUndefined();
  }
});

test('S-119: a table with an encrypted column stays on the rows lane, also when larger than a page', async () => {
  const schema = {
    version: 1,
    tables: [
      {
        name: 'secrets',
        primaryKey: 'id',
        columns: [
          { name: 'id', type: 'string' },
          { name: 'project', type: 'string' },
          { name: 'body', type: 'bytes', encrypted: true, declaredType: 'string' },
        ],
        scopes: ['project:{project}'],
      },
    ],
  } as const;
  const live = await startGateway({ schema });
  const codec = rowCodecOf(compileSchema(schema).tables[0]!);
  const operations = Array.from({ length: 5 }, (_, i) => ({
    table: 'secrets',
    rowId: `s${i}`,
    op: 'upsert' as const,
    payload: codec.encode([`s${i}`, 'shared', Uint8Array.of(1, i)]),
  }));
  await postSync(
    live.url,
    encodeRequest({ schemaVersion: 1 }, [{ type: 'PUSH_COMMIT', clientCommitId: 'c', operations }]),
  );
  const pull = encodeRequest({ schemaVersion: 1 }, [
    {
      type: 'PULL_HEADER',
      limitCommits: 0,
      limitSnapshotRows: 2,
      maxSnapshotPages: 50,
      accept: ACCEPTS_EVERYTHING,
    },
    { type: 'SUBSCRIPTION', id: 's', table: 'secrets', scopes: { project: ['shared'] }, cursor: -1 },
  ]);
  const answer = frames((await postSync(live.url, pull)).body);
  expect(answer.filter((frame) => frame.type === 'SEGMENT_INLINE')).toHaveLength(3);
  expect(answer.filter((frame) => frame.type === 'SEGMENT_REF')).toEqual([]);
});

test('S-026: the partition is in no response, delta, control message or segment', async () => {
  const live = await startGateway({ limits: { segmentInlineBytesMax: 0 } });
  const socket = await live.connect({ clientId: 'reader' });
  await postSync(live.url, ada.push({ clientId: 'writer', rowId: 'r1' }));
  const pulled = await socket.round(ada.pull({ clientId: 'reader' }));
  const segment = frames(pulled).find((frame) => frame.type === 'SEGMENT_REF')!;
  socket.ack(frames(pulled).find((frame) => frame.type === 'SUB_END')!.nextCursor);
  const pushed = await postSync(live.url, ada.push({ clientId: 'writer', rowId: 'r2' }));
  await socket.until(() => socket.deltas.length > 0);
  const download = await call(`${live.url}/segments/${segment.segmentId}`, {
    headers: { authorization: 'Bearer token-ada', 'x-syncular-scopes': '{"project":["shared"]}' },
  });
  expect(download.status).toBe(200);
  const seen = [pulled, pushed.body, download.body, ...socket.deltas].map((bytes) => Buffer.from(bytes));
  const text = JSON.stringify([socket.controls, pushed.headers, download.headers]);
  expect([...seen.map((bytes) => bytes.includes('tenant-1')), text.includes('tenant-1')]).not.toContain(true);
  // The search would find it: the row's own scope value is there.
  expect(seen[0]!.includes('shared')).toBe(true);
});

test('S-112: no CRDT library is installed with the package', () => {
  const lock = JSON.parse(readFileSync(new URL('../../package-lock.json', import.meta.url), 'utf8'));
  const installed = Object.entries<{ dev?: boolean }>(lock.packages)
    .filter(([path, { dev }]) => path !== '' && dev !== true)
    .map(([path]) => path.replace(/^.*node_modules\//, ''));
  expect(installed).toContain('ws');
  expect(installed.filter((name) => /yjs|automerge|loro|crdt|y-protocols/i.test(name))).toEqual([]);
});
