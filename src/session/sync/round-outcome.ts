/** What a round left behind, for whoever delivered its bytes (architecture §2 steps 6 and 8). */
import type { SyncError } from '../../protocol/errors.ts';
import type { ScopeMap, WireVersion } from '../../protocol/frames.ts';
import type { SubscriptionState } from '../../storage/storage.ts';

/** One subscription with its effective scopes, as it stands after a pull or a connect. */
export interface Registration {
  readonly id: string;
  readonly table: string;
  readonly effective: ScopeMap;
  /** Only `live` ones take delta sections. `revoked` subscriptions do not register at all. */
  readonly state: Exclude<SubscriptionState, 'revoked'>;
  /** Everything at or below was delivered; deltas continue after it. */
  readonly nextCursor: number;
  /** False when the window was cut before `snapshotHead`: matching commits may be left (part 3, 3.5.2-7). */
  readonly caughtUp: boolean;
}

export type RoundOutcome =
  /** Success. The caller installs, sends `finalChunk` (it holds END), then calls `handedOver`. */
  | {
      readonly kind: 'served';
      readonly wireVersion: WireVersion;
      readonly schemaVersion: number;
      /** `null` for a push-only round: registrations stay as they are. */
      readonly registrations: readonly Registration[] | null;
      /** Head of the snapshot the pull read. */
      readonly snapshotHead: number;
      readonly finalChunk: Uint8Array;
      /** Call once END was handed to the transport: only then the cursor counts (S-063, part 3, 3.11.8). */
      readonly handedOver: () => void;
    }
  /** Schema floor or epoch reset: one header and END; nothing changes. */
  | { readonly kind: 'header-only'; readonly wireVersion: WireVersion; readonly finalChunk: Uint8Array }
  /** An `ERROR` frame ended the stream after chunks had left; `finalChunk` holds ERROR and END. */
  | { readonly kind: 'failed'; readonly error: SyncError; readonly finalChunk: Uint8Array };
