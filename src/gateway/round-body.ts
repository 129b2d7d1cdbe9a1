/** The bytes of one round as an HTTP body (architecture §2 steps 6 to 8). */
import type { RoundOutcome } from '../session/sync/round-outcome.ts';

export type Round = AsyncGenerator<Uint8Array, RoundOutcome, undefined>;

export interface RoundBody {
  readonly bytes: AsyncIterable<Uint8Array>;
  /** Only a response that was handed over whole raises the client's cursor (S-063); any other ends the round's reads. */
  ended(how: 'delivered' | 'cut'): void;
}

/**
 * `first` is the step that was awaited before status 200 was committed. Not a generator function: one that never started
 * would not run its `finally`, and the round behind it would keep its snapshot.
 */
export function createRoundBody(
  round: Round,
  first: IteratorResult<Uint8Array, RoundOutcome>,
  onFailure: (failure: unknown) => void,
): RoundBody {
  let upcoming: IteratorResult<Uint8Array, RoundOutcome> | null = first;
  let outcome: RoundOutcome | null = null;

  const release = (): void => {
    round.return(NEVER_SERVED).catch(onFailure);
  };
  const bytes: AsyncIterableIterator<Uint8Array> = {
    [Symbol.asyncIterator]: () => bytes,
    next: async () => {
      if (outcome !== null) return { done: true, value: undefined };
      const step = upcoming ?? (await round.next());
      upcoming = null;
      if (!step.done) return { done: false, value: step.value };
      outcome = step.value;
      return { done: false, value: outcome.finalChunk };
    },
    return: async () => {
      if (outcome === null) release();
      return { done: true, value: undefined };
    },
  };
  return {
    bytes,
    ended: (how) => {
      if (outcome === null) release();
      else if (how === 'delivered' && outcome.kind === 'served') outcome.handedOver();
    },
  };
}

/** What a released round is told to return; nobody looks at it. */
export const NEVER_SERVED: RoundOutcome = {
  kind: 'header-only',
  wireVersion: 2,
  finalChunk: new Uint8Array(0),
};
