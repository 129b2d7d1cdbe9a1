/** Sync rounds on the socket, one at a time: request bytes out, response frames in as they arrive (part 3, 3.11). */
import type { Clock } from '../protocol/clock.ts';
import type { ResponseFrame } from '../protocol/frames.ts';
import { ResponseReader } from '../protocol/response-reader.ts';
import { ClientError, protocolViolation } from './client-error.ts';
import { Bell, within } from './waiting.ts';

interface RunningRound {
  readonly reader: ResponseReader;
  readonly arrived: Bell;
  frames: ResponseFrame[];
}

export interface RoundChannelParts {
  readonly send: (request: Uint8Array) => void;
  readonly clock: Clock;
  readonly timeoutMs: number;
}

export class RoundChannel {
  readonly #parts: RoundChannelParts;
  #running: RunningRound | null = null;

  constructor(parts: RoundChannelParts) {
    this.#parts = parts;
  }

  /** From the request until its frames are consumed. */
  get busy(): boolean {
    return this.#running !== null;
  }

  /** The response's `END` has arrived: what the server sends from here on it sends after the round. */
  get answered(): boolean {
    return this.#running?.reader.state === 'ended';
  }

  /**
   * Frames in wire order until `END`. Throws `SyncError` for a response that does not decode and `client.connection_lost` when
   * nothing comes for `timeoutMs`; both leave the stream without a findable end, so the socket must go.
   */
  async *run(request: Uint8Array, signal: AbortSignal): AsyncGenerator<ResponseFrame, void, void> {
    if (this.#running !== null) throw new Error('a round is running already');
    const { clock, timeoutMs, send } = this.#parts;
    const round: RunningRound = { reader: new ResponseReader(), arrived: new Bell(clock), frames: [] };
    this.#running = round;
    const late = (): Error => new ClientError('client.connection_lost', 'a round made no progress in time');
    try {
      send(request);
      for (;;) {
        const frames = round.frames;
        round.frames = [];
        yield* frames;
        if (round.frames.length > 0) continue;
        if (round.reader.state !== 'open') break;
        await within(round.arrived.wait(null, signal), { clock, timeoutMs, signal, late });
      }
      round.reader.finish();
    } finally {
      this.#running = null;
    }
  }

  /** Throws when nobody asked: the server spoke out of turn. */
  receive(chunk: Uint8Array): void {
    const round = this.#running;
    if (round === null || round.reader.state === 'ended') {
      if (chunk.length === 0) return;
      throw protocolViolation('response bytes without a round');
    }
    const { frames, rest, state } = round.reader.push(chunk);
    if (state === 'ended' && rest.length > 0) throw protocolViolation('bytes behind the end of a response');
    for (const frame of frames) round.frames.push(frame);
    round.arrived.ring();
  }
}
