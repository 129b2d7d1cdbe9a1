/**
 * Random lives of several clients on two nodes: commits anywhere, notices lost, repeated and reordered, reads that fail, slow
 * readers, late acks, rounds that change the list, reconnects. At every step no client may see a gap, in the end each has
 * everything, and then each is live again.
 */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import type { RoundContext } from '../../src/session/sync/admission.ts';
import type { RoundOutcome } from '../../src/session/sync/round-outcome.ts';
import type { StoredSubscription } from '../../src/storage/storage.ts';
import { LiveHarness, note, registered, stored, TENANT } from '../session/live/support/live-harness.ts';
import { requestBytes } from '../session/live/support/scripted-rounds.ts';
import { SimulatedClient } from './simulated-client.ts';

const PROJECTS = ['a', 'b', 'c'];
const LIMITS = {
  ringCommitsMax: 6,
  catchUpCommitsMax: 12,
  fanoutSessionsPerTurn: 2,
  deltaBytesMax: 1_500,
  deltasInFlightMax: 3,
  outboxBytesHigh: 1_500,
  outboxBytesLow: 0,
  headPollMs: 1_000,
};

const ACTIONS = [
  'commit',
  'commit',
  'commit',
  'big-commit',
  'turn',
  'turn',
  'read',
  'read',
  'read',
  'ack',
  'ack',
  'pull',
  'pull',
  'http-pull',
  'http-answer',
  'resume',
  'resume',
  'settle',
  'stall',
  'drain',
  'reconnect',
  'release',
  'repeat',
  'fail-read',
  'poll',
] as const;

interface Step {
  readonly action: (typeof ACTIONS)[number];
  readonly pick: number;
}

interface RoundPlan {
  readonly list: readonly string[];
  readonly isCut: boolean;
  readonly pushes: string | null;
}

export class World {
  readonly h: LiveHarness;
  readonly clients: SimulatedClient[];
  readonly #plans = new Map<string, RoundPlan>();
  readonly #paused: (() => void)[] = [];
  #picks = 0;
  /** The end: no more surprises. */
  #isQuiescing = false;

  constructor(clients: number) {
    const runRound = (_request: Uint8Array, context: RoundContext) => this.#round(context);
    this.h = new LiveHarness({ nodes: 2, limits: LIMITS, runRound });
    const log = this.h.storage.partition(TENANT).commits;
    this.clients = Array.from({ length: clients }, (_, at) => new SimulatedClient(`client-${at}`, log));
  }

  async start(): Promise<void> {
    for (const [at, client] of this.clients.entries()) {
      const list = PROJECTS.slice(0, 1 + (at % PROJECTS.length));
      const subscriptions = list.map((project) => subscriptionOf(project));
      this.h.storage.record(TENANT, { clientId: client.clientId, cursor: 0, subscriptions });
      for (const project of list) client.held.set(`s-${project}`, { project, cursor: 0 });
      client.attach(await this.h.connect({ clientId: client.clientId, node: at % 2 }));
    }
  }

  async step({ action, pick }: Step): Promise<void> {
    const { h } = this;
    this.#picks = pick;
    const client = this.clients[this.#choose(this.clients.length)]!;
    switch (action) {
      case 'commit':
      case 'big-commit':
        return this.#commit(PROJECTS[this.#choose(PROJECTS.length)]!, action === 'commit' ? 8 : 1_600);
      case 'turn':
        return h.clock.turn();
      case 'read':
        for (let messages = this.#choose(6); messages >= 0; messages--) client.readOne();
        return;
      case 'ack':
        return this.#ack(client);
      case 'pull':
        return this.#pull(client);
      case 'http-pull':
        return this.#startHttpPull(client);
      case 'http-answer':
        return this.#finishHttpPull(client);
      case 'resume':
        return this.#paused.splice(this.#choose(Math.max(1, this.#paused.length)), 1)[0]?.();
      case 'settle':
        return h.settle();
      case 'stall':
        return client.connection?.stall();
      case 'drain':
        return client.connection?.drain();
      case 'reconnect':
        return this.#reconnect(client);
      case 'release':
        return h.bus.release((held) => this.#choose(held));
      case 'repeat':
        return this.#repeat();
      case 'fail-read':
        return h.storage.fail('readCommits');
      case 'poll':
        return h.clock.advance(LIMITS.headPollMs);
    }
  }

  /** Everything that is under way comes to its end; every client does what it was asked to. */
  async quiesce(): Promise<void> {
    const { h } = this;
    this.#isQuiescing = true;
    h.bus.fate = () => 'deliver';
    h.storage.fail('readCommits', 0);
    h.bus.release();
    h.bus.reconnect();
    for (let round = 0; round < 60; round++) {
      for (const resume of this.#paused.splice(0)) resume();
      for (const client of this.clients) {
        client.connection!.drain();
        while (client.readOne());
        this.#finishHttpPull(client);
        if (client.wantsPull) this.#pull(client);
        while (client.acks.length > 0) this.#ack(client);
      }
      await h.settle();
    }
  }

  /** Everybody has everything, and is live again. Returns the deltas of the walk. */
  checkEnd(): number {
    for (const { connection, clientId, hasEverything } of this.clients) {
      assert.equal(connection!.closed, null, clientId);
      assert.ok(hasEverything, `${clientId} has everything`);
    }
    const before = this.clients.map(({ deltas }) => deltas);
    for (const project of PROJECTS) this.h.commit([note(project)]);
    for (const [at, client] of this.clients.entries()) {
      while (client.readOne());
      const isLive = client.deltas > before[at]!;
      assert.equal(isLive, client.held.size > 0, `${client.clientId} is live`);
      assert.ok(client.hasEverything, `${client.clientId} has what came last`);
    }
    return this.clients.reduce((sum, { deltas }) => sum + deltas, 0);
  }

  #commit(project: string, bytes: number): void {
    const fate = (['deliver', 'lose', 'hold'] as const)[this.#choose(3)]!;
    this.h.bus.fate = () => fate;
    this.h.accept([note(project, 'n', bytes)], { node: this.#choose(2) });
  }

  #ack(client: SimulatedClient): void {
    const cursor = client.acks.shift();
    if (cursor !== undefined) client.connection!.ack(cursor);
  }

  #pull(client: SimulatedClient): void {
    if (client.isPulling || client.httpPull !== null) return;
    client.isPulling = true;
    client.wantsPull = false;
    const kept = [...client.held.values()].map(({ project }) => project);
    const list =
      !this.#isQuiescing && this.#choose(3) === 0 ? PROJECTS.filter(() => this.#choose(2) === 0) : kept;
    const pushes = !this.#isQuiescing && this.#choose(3) === 0 ? PROJECTS[this.#choose(3)]! : null;
    const isCut = !this.#isQuiescing && this.#choose(4) === 0;
    this.#plans.set(client.clientId, { list, isCut, pushes });
    client.connection!.round(requestBytes(client.clientId));
  }

  #startHttpPull(client: SimulatedClient): void {
    if (client.isPulling || client.isAhead || client.isListInDoubt || client.httpPull !== null) return;
    client.wantsPull = false;
    client.httpPull = this.h.storage.head(TENANT);
  }

  #finishHttpPull(client: SimulatedClient): void {
    if (client.httpPull === null) return;
    for (const held of client.held.values()) held.cursor = Math.max(held.cursor, client.httpPull);
    client.httpPull = null;
    client.ackAfterPull();
  }

  async #reconnect(client: SimulatedClient): Promise<void> {
    client.connection!.vanish();
    const { clientId } = client;
    client.attach(await this.h.connect({ clientId, node: this.#choose(2) }));
  }

  #repeat(): void {
    const { announced } = this.h.bus;
    const notice = announced[this.#choose(Math.max(1, announced.length))];
    if (notice !== undefined) this.h.bus.deliver(notice, this.#choose(2));
  }

  /** A round as the sync core runs it: pushes, one snapshot, sections, record, END, each at a time of its own. */
  async *#round({ clientId, signal }: RoundContext): AsyncGenerator<Uint8Array, RoundOutcome> {
    const { storage } = this.h;
    const { list, isCut, pushes } = this.#plans.get(clientId!)!;
    const held = new Map(this.clients.find((client) => client.clientId === clientId)!.held);
    await this.#pause(signal);
    if (pushes !== null) this.h.accept([note(pushes)], { node: this.#choose(2) });
    await this.#pause(signal);
    const snapshotHead = storage.head(TENANT);
    yield Buffer.from('section');
    await this.#pause(signal);
    const cursors: Record<string, number> = {};
    const registrations = list.map((project) => {
      const id = `s-${project}`;
      const known = held.get(id)?.cursor;
      const nextCursor = isCut && known !== undefined ? known : snapshotHead;
      cursors[id] = nextCursor;
      return registered(id, { project: [project] }, { nextCursor, caughtUp: nextCursor >= snapshotHead });
    });
    const known = storage.partition(TENANT).clients.get(clientId!)!;
    storage.record(TENANT, { ...known, subscriptions: list.map((project) => subscriptionOf(project)) });
    const cursor = Math.min(...Object.values(cursors), snapshotHead);
    return {
      kind: 'served',
      wireVersion: 2,
      schemaVersion: 1,
      registrations,
      snapshotHead,
      finalChunk: Buffer.from(JSON.stringify({ cursors })),
      handedOver: () => {
        for (const { deps } of this.h.nodes.slice(0, 1))
          deps.cursors.pulled({ partition: TENANT, clientId: clientId! }, cursor);
      },
    };
  }

  async #pause(signal: AbortSignal): Promise<void> {
    if (this.#choose(2) === 0) return;
    await new Promise<void>((resolve) => {
      this.#paused.push(resolve);
      signal.addEventListener('abort', () => resolve(), { once: true });
    });
    signal.throwIfAborted();
  }

  /** A number below `max`, from the step's own picks. */
  #choose(max: number): number {
    const chosen = this.#picks % max;
    this.#picks = Math.floor(this.#picks / max) + 7 * this.#picks + 3;
    this.#picks %= 1_000_003;
    return chosen;
  }
}

function subscriptionOf(project: string): StoredSubscription {
  return stored(`s-${project}`, { project: [project] });
}

export interface WalksReport {
  readonly runs: number;
  readonly steps: number;
  readonly deltas: number;
  /** Holes that could not be read. */
  readonly gaps: number;
}

export interface Walks {
  readonly seed: number;
  readonly runs: number;
  readonly onRun?: (report: WalksReport) => void;
}

const CLIENTS = 4;
const STEPS = { minLength: 10, maxLength: 120 };

const anyStep: fc.Arbitrary<Step> = fc.record({
  action: fc.constantFrom(...ACTIONS),
  pick: fc.nat(1_000_000),
});

/** Throws at the first violated promise, with the shortest walk that violates it, and the seed and path that reproduce it. */
export async function runWalks({ seed, runs, onRun }: Walks): Promise<WalksReport> {
  const report = { runs: 0, steps: 0, deltas: 0, gaps: 0 };
  await fc.assert(
    fc.asyncProperty(fc.array(anyStep, STEPS), async (steps) => {
      const world = new World(CLIENTS);
      await world.start();
      for (const step of steps) await world.step(step);
      await world.quiesce();
      report.gaps += world.h.eventsOf('feed.gap').length;
      report.deltas += world.checkEnd();
      report.runs++;
      report.steps += steps.length;
      onRun?.(report);
    }),
    { seed, numRuns: runs },
  );
  return report;
}
