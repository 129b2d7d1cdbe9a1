/** How a connection's messages are read. The session core knows what they mean, not how they are written (§5). */
import { type ClientControl, parseClientControl, TAG_ROUND } from '../../protocol/control.ts';
import type { RoundRequest } from './socket-round.ts';

export type Inbound =
  | ClientControl
  /** Part of a request stream. */
  | { readonly kind: 'round-chunk'; readonly chunk: Uint8Array }
  /** A request that came in one message. */
  | { readonly kind: 'round-request'; readonly request: RoundRequest }
  /** Carries nothing. */
  | { readonly kind: 'empty' }
  /** No message of the dialect: close with 1008. */
  | { readonly kind: 'refused' }
  /** Over a bound of the dialect: close with 1009. */
  | { readonly kind: 'too-big' };

/** Never throws. */
export interface Dialect {
  read(message: string | Uint8Array): Inbound;
}

const EMPTY: Inbound = { kind: 'empty' };
const REFUSED: Inbound = { kind: 'refused' };

/** Control messages are JSON texts, binary messages begin with a channel tag (part 3, 3.3). */
export const SSP2: Dialect = {
  read: (message) => {
    if (typeof message === 'string') return parseClientControl(message);
    const tag = message[0];
    if (tag === undefined) return EMPTY;
    return tag === TAG_ROUND ? { kind: 'round-chunk', chunk: message.subarray(1) } : REFUSED;
  },
};
