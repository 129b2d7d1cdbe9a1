/** Rounds whose chunks and outcome a test hands out one by one. */
import type { WireVersion } from '../../../../src/protocol/frames.ts';
import { encodeMessage } from '../../../../src/protocol/message.ts';
import type { RoundContext } from '../../../../src/session/sync/admission.ts';
import type { Registration, RoundOutcome } from '../../../../src/session/sync/round-outcome.ts';

type Step =
  | { readonly kind: 'chunk'; readonly bytes: Uint8Array }
  | { readonly kind: 'outcome'; readonly outcome: RoundOutcome }
  | { readonly kind: 'failure'; readonly failure: unknown };

export class ScriptedRound {
  readonly request: Uint8Array;
  readonly context: RoundContext;
  /** Chunks that the session took. */
  taken = 0;
  handedOver = 0;
  isOver = false;
  readonly #steps: Step[] = [];
  #wake: () => void = () => undefined;

  constructor(request: Uint8Array, context: RoundContext) {
    this.request = request;
    this.context = context;
  }

  chunk(text: string): this {
    return this.#add({ kind: 'chunk', bytes: Buffer.from(text) });
  }

  fail(failure: unknown): this {
    return this.#add({ kind: 'failure', failure });
  }

  finish(outcome: RoundOutcome): this {
    return this.#add({ kind: 'outcome', outcome });
  }

  /** A successful pull that read at `snapshotHead`. */
  pulled(
    registrations: readonly Registration[],
    snapshotHead: number,
    rest: Partial<Extract<RoundOutcome, { kind: 'served' }>> = {},
  ): this {
    return this.finish({ ...this.#served(), registrations, snapshotHead, ...rest });
  }

  pushed(rest: Partial<Extract<RoundOutcome, { kind: 'served' }>> = {}): this {
    return this.finish({ ...this.#served(), ...rest });
  }

  #served(): Extract<RoundOutcome, { kind: 'served' }> {
    return {
      kind: 'served',
      wireVersion: 2,
      schemaVersion: 1,
      registrations: null,
      snapshotHead: 0,
      finalChunk: Buffer.from('END'),
      handedOver: () => void this.handedOver++,
    };
  }

  #add(step: Step): this {
    this.#steps.push(step);
    this.#wake();
    return this;
  }

  async *run(): AsyncGenerator<Uint8Array, RoundOutcome> {
    try {
      for (;;) {
        const step = this.#steps.shift();
        if (step === undefined) {
          await this.#more();
          this.context.signal.throwIfAborted();
        } else if (step.kind === 'chunk') {
          this.taken++;
          yield step.bytes;
        } else if (step.kind === 'outcome') {
          return step.outcome;
        } else {
          throw step.failure;
        }
      }
    } finally {
      this.isOver = true;
    }
  }

  #more(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
      this.context.signal.addEventListener('abort', () => resolve(), { once: true });
    });
  }
}

export class ScriptedRounds {
  readonly started: ScriptedRound[] = [];

  readonly run = (request: Uint8Array, context: RoundContext): AsyncGenerator<Uint8Array, RoundOutcome> => {
    const round = new ScriptedRound(request, context);
    this.started.push(round);
    return round.run();
  };

  get last(): ScriptedRound {
    return this.started.at(-1)!;
  }
}

/** A whole request. What it asks for is up to the script. */
export function requestBytes(clientId = 'client-1', wireVersion: WireVersion = 2): Uint8Array {
  const pull = { limitCommits: 0, limitSnapshotRows: 0, maxSnapshotPages: 0, accept: 3 };
  const epoch = wireVersion === 2 ? { logEpoch: 'epoch-of-tenant' } : {};
  return encodeMessage({
    kind: 'request',
    wireVersion,
    frames: [
      { type: 'REQ_HEADER', clientId, schemaVersion: 1, ...epoch },
      { type: 'PULL_HEADER', ...pull },
    ],
  });
}
