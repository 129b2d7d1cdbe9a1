/** What comes in on one socket, in order: held until `hello`, then read in the connection's dialect (part 3, 3.3-5). */
import type { Limits } from '../../protocol/limits.ts';
import type { Connection } from './connection.ts';
import type { Dialect } from './dialect.ts';
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
  readonly dialect: Dialect;
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
    const { machine } = this.#owner;
    if (machine.state === 'closed') return;
    const inbound = this.#deps.dialect.read(message);
    switch (inbound.kind) {
      case 'ack':
        this.#owner.acked(inbound.cursor);
        return;
      case 'presence-publish':
      case 'presence-leave':
        if (machine.step('presence-received') === 'publish') this.#owner.presenceReceived(inbound);
        return;
      case 'malformed':
        // A malformed ack is the one malformed message that does not close.
        machine.step(inbound.event === 'presence' ? 'presence-malformed' : 'text-ignored');
        return;
      case 'unknown':
        machine.step('text-ignored');
        return;
      case 'round-chunk':
        if (this.#takesRequests()) this.#collect(inbound.chunk);
        return;
      case 'round-request':
        if (this.#takesRequests()) this.#serve(inbound.request);
        return;
      case 'refused':
        machine.step('bad-tag');
        return;
      case 'too-big':
        machine.step('too-big');
        return;
      case 'empty':
    }
  }

  /** While a response is in flight, and while draining, a request is not even looked at. */
  #takesRequests(): boolean {
    const { machine } = this.#owner;
    if (machine.peek('request-partial') === 'collect') return true;
    machine.step('request-partial');
    return false;
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
    if (collected.kind === 'complete') this.#serve(collected.request);
    else this.#owner.machine.step(collected.kind);
  }

  #serve(request: RoundRequest): void {
    if (this.#owner.machine.step('request-complete') === 'run-round') this.#owner.serve(request);
  }
}
