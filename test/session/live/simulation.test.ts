/**
 * Random lives of several clients on two nodes: commits anywhere, notices lost, repeated and reordered, reads that fail, slow
 * readers, late acks, rounds that change the list, reconnects. At every step no client may see a gap, in the end each has
 * everything, and then each is live again.
 */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { RoundContext } from '../../../src/session/sync/admission.ts';
import type { RoundOutcome } from '../../../src/session/sync/round-outcome.ts';
import type { StoredSubscription } from '../../../src/storage/storage.ts';
import { LiveHarness, note, registered, stored, TENANT } from './support/live-harness.ts';
import { requestBytes } from './support/scripted-rounds.ts';
import { SimulatedClient } from './support/simulated-client.ts';

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

class World {
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
    if (client.isPulling || client.isAhead || client.httpPull !== null) return;
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

/** The walks of the suite are always the same, so that a change shows and not chance; the second once found a client that forgot a lost round. */
const SEEDS = [20_261_201, -1_652_716_619];

const anyStep: fc.Arbitrary<Step> = fc.record({
  action: fc.constantFrom(...ACTIONS),
  pick: fc.nat(1_000_000),
});

test.each(SEEDS)(
  'R-014, R-020, R-022, R-028, R-030, R-066, R-077, R-079: no gap, nothing lost, everybody live again (seed %i)',
  async (seed) => {
    let deltas = 0;
    let gaps = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(anyStep, { minLength: 10, maxLength: 120 }), async (steps) => {
        const world = new World(4);
        await world.start();
        for (const step of steps) await world.step(step);
        await world.quiesce();
        for (const client of world.clients) {
          expect(client.connection!.closed, client.clientId).toBeNull();
          expect(client.hasEverything, `${client.clientId} has everything`).toBe(true);
        }
        gaps += world.h.eventsOf('feed.gap').length;
        const before = world.clients.map((client) => client.deltas);
        for (const project of PROJECTS) world.h.commit([note(project)]);
        world.clients.forEach((client, at) => {
          while (client.readOne());
          const isOwed = client.held.size > 0;
          expect(client.deltas > before[at]!, `${client.clientId} is live`).toBe(isOwed);
          expect(client.hasEverything).toBe(true);
          deltas += client.deltas;
        });
      }),
      { seed, numRuns: 100 },
    );
    // The walk went where it should: deltas flowed, and holes could not always be read.
    expect(deltas).toBeGreaterThan(700);
    expect(gaps).toBeGreaterThan(5);
  },
  120_000,
);
