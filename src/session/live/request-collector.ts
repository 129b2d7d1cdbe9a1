/** Collects the request stream of one round (part 3, 3.11.1). Exists only while a request is coming in. */
import type { Limits } from '../../protocol/limits.ts';
import { MessageScanner } from '../../protocol/stream.ts';
import type { RoundRequest } from './socket-round.ts';

export type Collected =
  /** No byte of a request has come. */
  | { readonly kind: 'idle' }
  | { readonly kind: 'partial' }
  | { readonly kind: 'complete'; readonly request: RoundRequest }
  | { readonly kind: 'bytes-past-end' }
  | { readonly kind: 'bad-request-header' }
  | { readonly kind: 'too-big' };

export class RequestCollector {
  readonly #scanner: MessageScanner;

  constructor(limits: Limits) {
    this.#scanner = new MessageScanner('request', limits);
  }

  push(chunk: Uint8Array): Collected {
    const result = this.#scanner.push(chunk);
    switch (result.kind) {
      case 'more':
        return { kind: this.#scanner.idle ? 'idle' : 'partial' };
      case 'message': {
        // The complete request in front of them is not executed either (3.11.3-2).
        if (result.rest.length > 0) return { kind: 'bytes-past-end' };
        const { message: bytes, wireVersion } = result;
        return { kind: 'complete', request: { bytes, wireVersion } };
      }
      case 'bad-header':
        return { kind: 'bad-request-header' };
      case 'too-big':
        return { kind: 'too-big' };
    }
  }
}
