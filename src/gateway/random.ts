/** Real randomness and real digests, handed to everything that needs them. */
import { createHash, randomBytes } from 'node:crypto';
import type { Random } from '../protocol/clock.ts';

const ID_BYTES = 16;

export function createRandom(): Random {
  return {
    unit: () => Math.random(),
    id: () => randomBytes(ID_BYTES).toString('base64url'),
  };
}

/** SHA-256 as 64 lower-case hex digits. */
export function sha256Hex(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}
