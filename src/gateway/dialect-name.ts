/** The encodings of the protocol (§5). Chosen once: by subprotocol for a connection, by content type for a request. */
import { MSGPACK_SUBPROTOCOL } from '../protocol/msgpack/messages.ts';

export type DialectName = 'ssp2' | 'msgpack';

/** Clients that offer no subprotocol speak SSP2 as well. */
export const SSP2_SUBPROTOCOL = 'ssp2';

const DIALECTS: ReadonlyMap<string, DialectName> = new Map([
  [SSP2_SUBPROTOCOL, 'ssp2'],
  [MSGPACK_SUBPROTOCOL, 'msgpack'],
]);

export const SUBPROTOCOLS: readonly string[] = [...DIALECTS.keys()];

/** The first offer that is spoken here, to be echoed: the client's order counts. Its token is no offer (§5.1). */
export function chooseSubprotocol(offers: Iterable<string>): string | null {
  for (const offer of offers) if (DIALECTS.has(offer)) return offer;
  return null;
}

/** Of a `Sec-WebSocket-Protocol` header; `null` when nothing that it offers is spoken here. */
export function dialectOffered(header: string | null): DialectName | null {
  if (header === null) return 'ssp2';
  const chosen = chooseSubprotocol(header.split(',').map((name) => name.trim()));
  return chosen === null ? null : DIALECTS.get(chosen)!;
}
