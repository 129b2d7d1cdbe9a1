/** Real randomness and real digests, handed to everything that needs them. */
import { createHash, randomBytes } from 'node:crypto';
import type { Random } from '../protocol/clock.ts';

const ID_BYTES = 16;
/** Ids made from one call to the system's source: a call each is a noticeable part of a small round. */
const IDS_PER_DRAW = 256;

export function createRandom(): Random {
  let drawn: Buffer = Buffer.alloc(0);
  return {
    unit: () => Math.random(),
    id: () => {
      if (drawn.length === 0) drawn = randomBytes(ID_BYTES * IDS_PER_DRAW);
      const id = drawn.toString('base64url', 0, ID_BYTES);
      drawn = drawn.subarray(ID_BYTES);
      return id;
    },
  };
}

/** SHA-256 as 64 lower-case hex digits. */
export function sha256Hex(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}
