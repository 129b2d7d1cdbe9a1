/** The shape of a BlobRef is judged by the row codec, so a bad one costs its commit and nothing else (§5.9.1). */
import { expect, onTestFinished, test } from 'vitest';
import { PushHarness, rejection, verdict } from './support/push-harness.ts';

const BLOB_ID = `sha256:${'a'.repeat(64)}`;
const GOOD = `{"blobId":"${BLOB_ID}","byteLength":3}`;

/** The row codec refuses to encode a bad text, so it is put into good bytes of the same length. */
function replaceText(payload: Uint8Array, from: string, to: string): Uint8Array {
  expect(to).toHaveLength(from.length);
  const at = Buffer.from(payload).indexOf(from);
  expect(at).toBeGreaterThan(0);
  const bytes = Uint8Array.from(payload);
  bytes.set(Buffer.from(to), at);
  return bytes;
}

test.each([
  ['S-097: keys in another order', `{"byteLength":3,"blobId":"${BLOB_ID}"}`],
  ['S-097: an unknown key', GOOD.replace('byteLength', 'bytelength')],
  ['S-097: an upper-case digest', GOOD.replace('aaaa', 'AAAA')],
])('%s rejects its own commit only', async (_fault, text) => {
  const host = await PushHarness.open({ blobs: { exists: () => true } });
  onTestFinished(() => host.close());
  const good = host.upsert('files', { id: 'f1', project_id: 'p1', cover: GOOD });
  const bad = { ...good, rowId: 'f1', payload: replaceText(good.payload!, GOOD, text) };
  const [refused, neighbour] = await host.send({ commits: [host.commit(bad), host.commit(good)] });
  expect(rejection(refused!)).toMatchObject({ opIndex: 0, code: 'sync.invalid_request' });
  expect(verdict(neighbour!)).toBe('applied');
});
