/** What comes in on one socket, in order: held until `hello`, then read by tag and name (part 3, 3.3-5). */
import { parseClientControl, TAG_ROUND } from '../../protocol/control.ts';
import type { Limits } from '../../protocol/limits.ts';
import type { Connection } from './connection.ts';
import { HeldMessages } from './held-messages.ts';
import type { PresenceMessage } from './presence.ts';
import { RequestCollector } from './request-collector.ts';
import type { SessionMachine } from './session-machine.ts';
import type { RoundRequest } from './socket-round.ts';

export interface InboxOwner {
  readonly connection: Connection;
  readonly machine: SessionMachine;
  acked(cursor: number): void;
  presenceReceived(message: PresenceMessage): void;
  requestBegun(): void;
  requestOver(): void;
  /** A request is complete and the state took it: the round begins. */
  serve(request: RoundRequest): void;
}

export interface InboxDeps {
  readonly limits: Limits;
}

export class Inbox {
  readonly #owner: InboxOwner;
  readonly #deps: InboxDeps;
  #held: HeldMessages | null = null;
  #isReadingPaused = false;
  #collector: RequestCollector | null = null;

  constructor(owner: InboxOwner, deps: InboxDeps) {
    this.#owner = owner;
    this.#deps = deps;
  }

  receive(message: string | Uint8Array): void {
    const { machine } = this.#owner;
    if (this.#isTooBig(message)) machine.step('too-big');
    else if (machine.state === 'connecting') this.#hold(message);
    else this.#read(message);
  }

  /** `hello` is out: what was held is read, in order. */
  release(): void {
    const messages = this.#held?.take() ?? [];
    this.#held = null;
    for (const message of messages) this.#read(message);
    if (this.#isReadingPaused && this.#owner.machine.state !== 'closed')
      this.#owner.connection.resumeReading();
    this.#isReadingPaused = false;
  }

  clear(): void {
    this.#held = null;
    this.#collector = null;
  }

  #isTooBig(message: string | Uint8Array): boolean {
    const { controlBytesMax, messageBytesMax } = this.#deps.limits;
    if (typeof message !== 'string') return message.length > messageBytesMax;
    // A UTF-16 unit makes at most three bytes: counting is for the few that come close.
    return message.length * 3 > controlBytesMax && Buffer.byteLength(message) > controlBytesMax;
  }

  #hold(message: string | Uint8Array): void {
    this.#held ??= new HeldMessages(this.#deps.limits);
    if (!this.#held.add(message)) {
      this.#owner.machine.step('too-big');
    } else if (this.#held.isHalfFull && !this.#isReadingPaused) {
      this.#isReadingPaused = true;
      this.#owner.connection.pauseReading();
    }
  }

  #read(message: string | Uint8Array): void {
    if (this.#owner.machine.state === 'closed') return;
    if (typeof message === 'string') this.#readText(message);
    else this.#readBinary(message);
  }

  #readText(text: string): void {
    const { machine } = this.#owner;
    const control = parseClientControl(text);
    switch (control.kind) {
      case 'ack':
        this.#owner.acked(control.cursor);
        return;
      case 'presence-publish':
      case 'presence-leave':
        if (machine.step('presence-received') === 'publish') this.#owner.presenceReceived(control);
        return;
      case 'malformed':
        // A malformed ack is the one malformed message that does not close.
        machine.step(control.event === 'presence' ? 'presence-malformed' : 'text-ignored');
        return;
      case 'unknown':
        machine.step('text-ignored');
    }
  }

  #readBinary(bytes: Uint8Array): void {
    const { machine } = this.#owner;
    const tag = bytes[0];
    if (tag === undefined) return;
    if (tag !== TAG_ROUND) {
      machine.step('bad-tag');
      return;
    }
    // While a response is in flight, and while draining, round bytes are not even looked at.
    if (machine.peek('request-partial') !== 'collect') {
      machine.step('request-partial');
      return;
    }
    this.#collect(bytes.subarray(1));
  }

  #collect(chunk: Uint8Array): void {
    this.#collector ??= new RequestCollector(this.#deps.limits);
    const collected = this.#collector.push(chunk);
    if (collected.kind === 'partial') {
      this.#owner.requestBegun();
      return;
    }
    this.#collector = null;
    if (collected.kind === 'idle') return;
    this.#owner.requestOver();
    const { machine } = this.#owner;
    if (collected.kind !== 'complete') machine.step(collected.kind);
    else if (machine.step('request-complete') === 'run-round') this.#owner.serve(collected.request);
  }
}
