/** One sync round over a socket (part 3, 3.11): response chunks at the pace of the reader, and the answers of 3.11.4. */
import { TAG_ROUND } from '../../protocol/control.ts';
import { SyncError } from '../../protocol/errors.ts';
import type { WireVersion } from '../../protocol/frames.ts';
import type { RequestDecoder } from '../sync/admission.ts';
import { errorStream } from '../sync/error-stream.ts';
import type { RoundOutcome } from '../sync/round-outcome.ts';
import type { Outbox } from './outbox.ts';

export interface RoundRequest {
  readonly bytes: Uint8Array;
  readonly wireVersion: WireVersion;
  /** Of a dialect other than SSP2; called when the round begins, before anything of it is answered. */
  readonly decode?: RequestDecoder;
}

export interface RoundHost {
  readonly outbox: Outbox;
  /** Of the partition, for error streams. */
  readonly logEpoch: string;
  /** False once nothing may leave any more. */
  mayLeave(): boolean;
  begin(request: RoundRequest): AsyncGenerator<Uint8Array, RoundOutcome>;
}

export type RoundEnding =
  /** The outcome's `finalChunk` is still to be handed over. */
  | { readonly kind: 'complete'; readonly outcome: RoundOutcome }
  /** Failed before its first chunk; `finalChunk` is the whole response. */
  | { readonly kind: 'refused'; readonly error: SyncError; readonly finalChunk: Uint8Array }
  /** No answer can be given: close with 1011. */
  | { readonly kind: 'broken'; readonly error: unknown }
  /** The session ended meanwhile. */
  | { readonly kind: 'cut' };

export interface RoundResult {
  readonly ending: RoundEnding;
  /** Bytes of the chunks that were sent; the last one is not among them. */
  readonly sentBytes: number;
}

/** Runs the round up to, but without, its last message. Never rejects. */
export async function runSocketRound(request: RoundRequest, host: RoundHost): Promise<RoundResult> {
  let sentBytes = 0;
  try {
    const chunks = host.begin(request);
    let step = await chunks.next();
    while (step.done !== true) {
      if (!host.mayLeave()) return await cutShort(chunks, sentBytes);
      host.outbox.send(tagged(step.value));
      sentBytes += step.value.length;
      const [ahead, socket] = await nextChunk(chunks, host.outbox);
      if (socket === 'closed' && ahead.done !== true) return await cutShort(chunks, sentBytes);
      step = ahead;
    }
    const ending: RoundEnding = host.mayLeave() ? { kind: 'complete', outcome: step.value } : { kind: 'cut' };
    return { ending, sentBytes };
  } catch (failure) {
    return { ending: endingOf(failure, { request, host, sentBytes }), sentBytes };
  }
}

/** One chunk ahead of the socket: the next is made while the last ones drain (3.11.6). */
function nextChunk(
  chunks: AsyncGenerator<Uint8Array, RoundOutcome>,
  outbox: Outbox,
): Promise<[IteratorResult<Uint8Array, RoundOutcome>, 'open' | 'closed']> {
  return Promise.all([chunks.next(), outbox.isHigh ? outbox.drained() : 'open']);
}

/** What a generator that is left early returns; nobody looks at it. */
const ABANDONED: RoundOutcome = { kind: 'header-only', wireVersion: 1, finalChunk: new Uint8Array(0) };

/** Lets go of the snapshot behind the response. */
async function cutShort(
  chunks: AsyncGenerator<Uint8Array, RoundOutcome>,
  sentBytes: number,
): Promise<RoundResult> {
  await chunks.return(ABANDONED);
  return { ending: { kind: 'cut' }, sentBytes };
}

function endingOf(
  failure: unknown,
  round: { readonly request: RoundRequest; readonly host: RoundHost; readonly sentBytes: number },
): RoundEnding {
  const { request, host, sentBytes } = round;
  if (!host.mayLeave()) return { kind: 'cut' };
  const error = SyncError.from(failure);
  if (error === null || sentBytes > 0) return { kind: 'broken', error: failure };
  const { wireVersion } = request;
  return { kind: 'refused', error, finalChunk: errorStream(error, { wireVersion, logEpoch: host.logEpoch }) };
}

/** The chunk as a message of the round's channel. */
export function tagged(chunk: Uint8Array): Uint8Array {
  const message = new Uint8Array(chunk.length + 1);
  message[0] = TAG_ROUND;
  message.set(chunk, 1);
  return message;
}
