/**
 * Whatever clients ask for, however their pulls are sliced, cut, lost or overtaken by writes and pruning: once they keep
 * pulling they hold exactly the rows they may see.
 */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { canonicalScopes } from '../../src/protocol/canonical-json.ts';
import type {
  PullHeaderFrame,
  ScopeMap,
  SegmentRefFrame,
  SubscriptionFrame,
} from '../../src/protocol/frames.ts';
import { decodeSegment } from '../../src/protocol/segment.ts';
import { openSegment } from '../../src/session/sync/segment-access.ts';
import type { StoredRow } from '../../src/storage/storage.ts';
import { PARTITION, SyncHarness, subscription } from '../support/sync-harness.ts';
import { type Section, sectionsOf } from '../support/sync-sections.ts';

const PROJECTS = ['p1', 'p2', 'p3'];
const OWNERS = ['ann', 'bob'];
const ROWS = 12;

/** Row id → version and payload, as text that compares. */
type Rows = Map<string, string>;

const shown = (version: number, payload: Uint8Array): string =>
  `${version}:${Buffer.from(payload).toString('hex')}`;

/** One client that follows the rules of §5.6 and §4.6, and keeps the rows of each subscription apart. */
class Replica {
  readonly #h: SyncHarness;
  readonly #clientId: string;
  readonly subscriptions: SubscriptionFrame[];
  readonly rows: Rows[];

  constructor(h: SyncHarness, clientId: string, subscriptions: readonly SubscriptionFrame[]) {
    this.#h = h;
    this.#clientId = clientId;
    this.subscriptions = [...subscriptions];
    this.rows = subscriptions.map(() => new Map());
  }

  /** Applies only the first `sectionsMax` sections: then the stream was cut. */
  async pull(header: Partial<PullHeaderFrame>, sectionsMax = Number.POSITIVE_INFINITY): Promise<void> {
    const asked = [...this.subscriptions];
    const { frames } = await this.#h.round({
      clientId: this.#clientId,
      actorId: this.#clientId,
      pull: header,
      subscriptions: asked,
    });
    const sections = sectionsOf(frames);
    expect(sections.map(({ start }) => start.id)).toEqual(asked.map(({ id }) => id));
    for (const [i, section] of sections.slice(0, sectionsMax).entries()) {
      this.subscriptions[i] = await this.#apply(i, asked[i]!, section);
    }
  }

  async #apply(i: number, asked: SubscriptionFrame, section: Section): Promise<SubscriptionFrame> {
    const { id, table, scopes } = asked;
    const rows = this.rows[i]!;
    if (section.start.status === 'reset') return subscription(id, table, scopes);
    if (section.start.status === 'revoked') {
      rows.clear();
      return subscription(id, table, scopes);
    }
    expect(section.commits.length * section.segments.length).toBe(0);
    if (asked.cursor >= 0) expect(section.end.nextCursor).toBeGreaterThanOrEqual(asked.cursor);
    if (section.segments.length > 0 && asked.cursor < 0 && asked.bootstrapState === undefined) rows.clear();
    for (const segment of section.segments) {
      const bytes =
        segment.type === 'SEGMENT_INLINE' ? segment.payload : await this.#download(segment, scopes);
      for (const { serverVersion, payload, values } of decodeSegment(bytes).blocks.flat()) {
        rows.set(String(values[0]), shown(serverVersion, payload));
      }
    }
    for (const { rowId, rowVersion, row } of section.commits.flatMap(({ changes }) => changes)) {
      if (row === undefined) rows.delete(rowId);
      else rows.set(rowId, shown(rowVersion!, row));
    }
    const { nextCursor: cursor, bootstrapState } = section.end;
    const rest = bootstrapState === undefined ? { cursor } : { cursor, bootstrapState };
    return subscription(id, table, scopes, rest);
  }

  async #download({ segmentId }: SegmentRefFrame, scopes: ScopeMap): Promise<Uint8Array> {
    const who = this.#h.who({ actorId: this.#clientId });
    const opened = { who, segmentId, scopesHeader: canonicalScopes(scopes), deps: this.#h.deps };
    return (await openSegment(opened)).read();
  }
}

type Step =
  | { readonly kind: 'write'; readonly edits: readonly Edit[] }
  | { readonly kind: 'prune'; readonly share: number }
  | { readonly kind: 'grant'; readonly client: number; readonly projects: readonly string[] }
  | {
      readonly kind: 'pull';
      readonly client: number;
      readonly header: Partial<PullHeaderFrame>;
      readonly applied: number;
      /** Writes that land while it runs. */
      readonly meanwhile: readonly Edit[];
    };
interface Edit {
  readonly table: 'notes' | 'tasks';
  readonly row: number;
  readonly op: 'upsert' | 'delete';
  readonly fill: number;
}

const edit: fc.Arbitrary<Edit> = fc.record({
  table: fc.constantFrom('notes', 'tasks'),
  row: fc.nat(ROWS - 1),
  op: fc.constantFrom('upsert', 'upsert', 'delete'),
  fill: fc.nat(400),
});
const header = fc.record({
  limitCommits: fc.integer({ min: 0, max: 6 }),
  limitSnapshotRows: fc.integer({ min: 0, max: 4 }),
  maxSnapshotPages: fc.integer({ min: 0, max: 3 }),
  accept: fc.constantFrom(0b01, 0b10, 0b11),
});
const edits = fc.array(edit, { minLength: 1, maxLength: 5 });
const client = fc.nat(2);
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('write' as const), edits }) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('prune' as const),
      share: fc.double({ min: 0, max: 1, noNaN: true }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('grant' as const), client, projects: fc.subarray(PROJECTS) }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('pull' as const),
      client,
      header,
      applied: fc.constantFrom(0, 1, 2, 3, 3, 3, 3),
      meanwhile: fc.oneof(fc.constant([]), edits),
    }),
  },
);
const limits = fc.record({
  pullBytesMax: fc.constantFrom(1, 700, 3_000, 1_000_000),
  windowSliceBytes: fc.constantFrom(1, 500, 1_000_000),
  segmentBytesMax: fc.constantFrom(1, 600, 1_000_000),
  segmentInlineBytesMax: fc.constantFrom(0, 300, 1_000_000),
  segmentBlockRows: fc.constantFrom(1, 2, 1_000),
  responseChunkBytes: fc.constantFrom(1, 500, 65_536),
});

/** Three clients with overlapping, narrow, and two-variable subscriptions. */
const SUBSCRIPTIONS: readonly (readonly SubscriptionFrame[])[] = [
  [
    subscription('all', 'notes', { project: PROJECTS }),
    subscription('tasks', 'tasks', { project: PROJECTS, owner: OWNERS }),
    subscription('ann', 'tasks', { owner: ['ann'] }),
  ],
  [
    subscription('w1', 'notes', { project: ['p1'] }),
    subscription('w2', 'notes', { project: ['p2'] }),
    subscription('bob2', 'tasks', { project: ['p2', 'p3'], owner: ['bob'] }),
  ],
  [subscription('one', 'tasks', { project: ['p1'], owner: ['ann'] })],
];

class World {
  readonly h: SyncHarness;
  readonly replicas: readonly Replica[];

  constructor(h: SyncHarness) {
    this.h = h;
    this.replicas = SUBSCRIPTIONS.map((subscriptions, i) => new Replica(h, `client-${i}`, subscriptions));
    for (const i of this.replicas.keys()) this.grant(i, PROJECTS);
  }

  grant(i: number, projects: readonly string[]): void {
    this.h.grants.set(`client-${i}`, { project: projects, owner: OWNERS });
  }

  async write(list: readonly Edit[]): Promise<void> {
    await this.h.commit(
      list.map((one) => this.#operation(one)),
      { actorId: 'writer' },
    );
  }

  /** The row number decides its scopes, which a push cannot change. */
  #operation({ table, row, op, fill }: Edit) {
    const id = `r${row}`;
    if (op === 'delete') return this.h.delete(table, id);
    const project = PROJECTS[row % 3]!;
    if (table === 'notes')
      return this.h.upsert('notes', { id, project, title: 'x'.repeat(fill), rank: fill });
    return this.h.upsert('tasks', { id, project, owner: OWNERS[row % 2]!, done: fill % 2 === 0 });
  }

  async run(one: Step): Promise<void> {
    if (one.kind === 'write') return this.write(one.edits);
    if (one.kind === 'grant') return this.grant(one.client, one.projects);
    if (one.kind === 'prune') {
      const { head } = await this.h.readState();
      const horizon = Math.floor(head * one.share);
      await this.h.storage.pruneLog({ partition: PARTITION, horizon, commitsMax: 1_000 });
      return;
    }
    const pull = this.replicas[one.client]!.pull(one.header, one.applied);
    await Promise.all([pull, one.meanwhile.length > 0 ? this.write(one.meanwhile) : null]);
  }

  /** Pulls of one client until nothing is left to come. */
  async settle(replica: Replica, asked: Partial<PullHeaderFrame>): Promise<void> {
    const { head } = await this.h.readState();
    const isBehind = () =>
      replica.subscriptions.some(
        ({ cursor, bootstrapState }) => cursor < head || bootstrapState !== undefined,
      );
    // The first tells the client of grants that changed.
    for (let pulls = 0; pulls === 0 || isBehind(); pulls++) {
      expect(pulls).toBeLessThan(400);
      await replica.pull(asked);
    }
  }

  async visible({ table, scopes }: SubscriptionFrame): Promise<Rows> {
    const compiled = this.h.table(table);
    const scan = { table: compiled, scopes, afterRowId: null, rowsMax: 1_000, bytesMax: 10_000_000 };
    const { rows } = await this.h.storage.readSnapshot(PARTITION, (reader) => reader.readRowPage(scan));
    return new Map(rows.map((row: StoredRow) => [row.rowId, shown(row.serverVersion, row.payload)]));
  }
}

const sorted = (rows: Rows): object => Object.fromEntries([...rows].sort(([a], [b]) => (a < b ? -1 : 1)));

test('S-047, S-058, S-062, S-069, S-072, R-081: replicas converge to what they may see', async () => {
  const scenario = fc.record({
    limits,
    steps: fc.array(step, { minLength: 5, maxLength: 40 }),
    last: header,
  });
  await fc.assert(
    fc.asyncProperty(scenario, async ({ limits, steps, last }) => {
      const h = await SyncHarness.open({ limits });
      try {
        await h.admit();
        const world = new World(h);
        for (const one of steps) await world.run(one);
        for (const [i, replica] of world.replicas.entries()) {
          world.grant(i, PROJECTS);
          await world.settle(replica, last);
          for (const [s, asked] of replica.subscriptions.entries()) {
            expect(sorted(replica.rows[s]!)).toEqual(sorted(await world.visible(asked)));
          }
        }
        expect(h.deps.segmentBuilds.inFlight).toBe(0);
      } finally {
        await h.close();
      }
    }),
    { numRuns: 40 },
  );
}, 120_000);
