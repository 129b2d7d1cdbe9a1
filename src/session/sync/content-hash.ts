/** What a commit says, as one hash: the same idempotency key with other content is an error (part 2.24 decision 19). */
import { ByteWriter } from '../../protocol/bytes.ts';
import type { PushOperation } from '../../protocol/frames.ts';

/** Bytes that one operation takes beside its texts and payload, at most. */
const OPERATION_OVERHEAD_BYTES = 24;

/**
 * SHA-256 hex over a canonical encoding: equal for commits with equal operations, whatever dialect they came in. Two encodings
 * never meet, since every text and payload is preceded by its length.
 */
export function contentHash(
  operations: readonly PushOperation[],
  sha256: (bytes: Uint8Array) => string,
): string {
  let capacity = 0;
  for (const { table, rowId, payload } of operations) {
    capacity += OPERATION_OVERHEAD_BYTES + table.length + rowId.length + (payload?.length ?? 0);
  }
  const writer = new ByteWriter(capacity);
  for (const operation of operations) writeOperation(writer, operation);
  return sha256(writer.finish());
}

function writeOperation(writer: ByteWriter, { table, rowId, op, baseVersion, payload }: PushOperation): void {
  writer.str(table);
  writer.str(rowId);
  writer.u8(op === 'upsert' ? 1 : 2);
  writer.bool(baseVersion !== undefined);
  if (baseVersion !== undefined) writer.i64(baseVersion);
  writer.bool(payload !== undefined);
  if (payload !== undefined) writer.blob(payload);
}
