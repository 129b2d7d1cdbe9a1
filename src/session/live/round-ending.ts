/** The end of a socket round: registrations and versions switch, then `END` is handed over, then the cursor counts (part 3, 3.11.7). */
import type { RoundOutcome } from '../sync/round-outcome.ts';
import type { Downlink } from './downlink.ts';
import type { LiveEvent } from './live-events.ts';
import type { Outbox } from './outbox.ts';
import type { SessionMachine } from './session-machine.ts';
import { type RoundEnding, tagged } from './socket-round.ts';

export interface RoundOwner {
  readonly outbox: Outbox;
  readonly downlink: Downlink;
  readonly machine: SessionMachine;
  mayLeave(): boolean;
  /** The round's registrations are in force and its `END` is out. */
  roundInstalled(): void;
  roundBroke(error: unknown): void;
}

export interface RoundReport {
  readonly outcome: Extract<LiveEvent, { type: 'round.finished' }>['outcome'];
  /** Bytes of the message that held `END`. */
  readonly lastBytes: number;
}

interface RoundClosing {
  readonly owner: RoundOwner;
  /** `changed`: the host took scopes away or gave some while the round ran, so what it resolved is out of date. */
  readonly scopes: 'current' | 'changed';
}

type Served = Extract<RoundOutcome, { kind: 'served' }>;

export function finishRound(ending: RoundEnding, closing: RoundClosing): RoundReport {
  const { owner } = closing;
  if (ending.kind === 'broken') {
    owner.roundBroke(ending.error);
    return { outcome: 'broken', lastBytes: 0 };
  }
  if (ending.kind === 'cut' || !owner.mayLeave()) return { outcome: 'cut', lastBytes: 0 };
  if (ending.kind === 'refused') return refuse(ending.finalChunk, 'refused', owner);
  const { outcome } = ending;
  if (outcome.kind === 'served') return serve(outcome, closing);
  return refuse(outcome.finalChunk, outcome.kind, owner);
}

/** Nothing switches. */
function refuse(finalChunk: Uint8Array, outcome: RoundReport['outcome'], owner: RoundOwner): RoundReport {
  owner.downlink.settle();
  handOver(finalChunk, 'round-refused', owner);
  return { outcome, lastBytes: finalChunk.length };
}

function serve(outcome: Served, { owner, scopes }: RoundClosing): RoundReport {
  const { wireVersion, schemaVersion, registrations, snapshotHead, finalChunk } = outcome;
  const isInstalled = registrations !== null && scopes === 'current';
  if (isInstalled) {
    owner.downlink.installPulled({ wireVersion, schemaVersion, registrations, snapshotSeq: snapshotHead });
  } else {
    owner.downlink.adopt(wireVersion, schemaVersion);
  }
  const event = registrations === null ? 'round-pushed' : 'round-pulled';
  if (handOver(finalChunk, event, owner) !== 'closed') outcome.handedOver();
  if (isInstalled) owner.roundInstalled();
  return { outcome: 'served', lastBytes: finalChunk.length };
}

/** The flag falls with the hand-over, not after clean-up: the client may start its next round at once. */
function handOver(
  finalChunk: Uint8Array,
  event: 'round-pulled' | 'round-pushed' | 'round-refused',
  { outbox, machine }: RoundOwner,
): 'sent' | 'buffered' | 'closed' {
  const handed = outbox.send(tagged(finalChunk));
  machine.step(event);
  return handed;
}
